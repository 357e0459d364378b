//! What requests come from.

use std::net::IpAddr;
use std::sync::Arc;

/// Who pays: the holder of limits and usage.
#[derive(Debug, PartialEq, Eq)]
pub struct Tenant {
    /// As the settings, the claims of tokens and the usage name it. Printable.
    pub name: Arc<str>,
}

/// How a grant was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GrantKind {
    /// A key of ours.
    Key,
    /// The subject of a signed token.
    Token,
    /// A client certificate.
    Certificate,
    /// An address in a network that the settings name.
    Network,
    /// None of these.
    Anonymous,
}

/// What the holder of a credential may do. Shared by all its requests; a new snapshot of the keys has
/// new grants.
#[derive(Debug)]
pub struct AccessGrant {
    /// How it was found.
    pub kind: GrantKind,
    /// The public id of the key, or the subject: for logs and metrics, never a secret. Printable.
    pub id: Arc<str>,
    /// The tenant that it belongs to.
    pub tenant: Arc<Tenant>,
}

/// The origin of one request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// What it may do.
    pub grant: Arc<AccessGrant>,
    /// The client's address, behind proxies that are trusted.
    pub address: IpAddr,
}
