//! What requests come from.

use std::mem::offset_of;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use wellhead_prefetch::FetchAddress;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::key_check::KeyCheck;
use crate::meter::SubjectMeter;
use crate::meter_book::MeterBook;
use crate::quota::QuotaPlan;
use crate::rights::Rights;
use crate::unix_seconds::UnixSeconds;

/// The holder of limits and usage, which pays.
#[derive(Debug, PartialEq, Eq)]
pub struct Tenant {
    /// As the settings, the claims of tokens and the usage name it. Printable.
    pub name: Arc<str>,
    /// The hash of its name: one tenant of a new snapshot is the one of the old.
    pub number: u64,
    /// The named set of limits of all that it does.
    pub quota: Option<Arc<str>>,
    /// Tells other rights from those that it has; 0 without any.
    pub(crate) rights_mark: u64,
}

impl Tenant {
    /// The tenant of this name, without limits.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        let number = xxh3_64(name.as_bytes());
        Self { name, number, quota: None, rights_mark: 0 }
    }
}

/// How a grant was found. Its words stand in files and queries of usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
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

wellhead_word::words!(GrantKind);

/// The meters that the calls of a grant pass. They are read by each look-up: see [`AccessGrant`].
#[derive(Debug, Default)]
#[repr(C)]
pub struct GrantMeters {
    /// Of each address that uses the grant.
    pub each_address: Option<Arc<QuotaPlan>>,
    /// Of the grant itself.
    pub key: Option<Arc<SubjectMeter>>,
    /// Of its tenant.
    pub tenant: Option<Arc<SubjectMeter>>,
}

/// What the holder of a credential may do. Shared by all its requests; a new snapshot of the keys has
/// new grants.
///
/// What the look-up of a key reads stands first, behind the counters: of many keys each is in no cache, and
/// the time of a look-up is that of the lines of memory that it waits for.
#[derive(Debug)]
#[repr(C)]
pub struct AccessGrant {
    /// What it may do of what its tenant may.
    pub rights: Arc<Rights>,
    pub(crate) check: KeyCheck,
    /// What bounds its use.
    pub meters: GrantMeters,
    /// The tenant that it belongs to.
    pub tenant: Arc<Tenant>,
    /// The hash of its kind and id: one key of a new snapshot is the one of the old.
    pub number: u64,
    /// The public id of the key, or the subject: for logs and metrics, never a secret. Printable.
    pub id: Arc<str>,
    /// The named set of limits of this grant alone, beside its tenant's.
    pub quota: Option<Arc<str>>,
    /// How it was found.
    pub kind: GrantKind,
}

/// What the look-up of a key reads of its grant and of the two counters before it: all up to the meters.
const LOOK_UP_BYTES: usize = 2 * size_of::<usize>() + offset_of!(AccessGrant, tenant);

impl AccessGrant {
    /// A grant to a tenant, of everything.
    pub fn new(kind: GrantKind, id: impl Into<Arc<str>>, tenant: Arc<Tenant>) -> Self {
        let id = id.into();
        let number = xxh3_64_with_seed(id.as_bytes(), kind as u64);
        let (rights, check) = (Rights::unlimited(), KeyCheck::NONE);
        let (quota, meters) = (None, GrantMeters::default());
        Self { rights, check, tenant, number, id, quota, kind, meters }
    }

    /// From when on it may not be used; `None`: it does not end by itself.
    pub fn ends_at(&self) -> Option<UnixSeconds> {
        self.check.ends_at().into_iter().chain(self.rights.ends_at()).min()
    }

    /// Asks for what the look-up of a key needs, so that it arrives while the text of the key is hashed.
    #[inline]
    pub(crate) fn fetch_ahead(grant: &Arc<Self>) {
        FetchAddress::of_shared(grant).fetch(LOOK_UP_BYTES);
    }
}

/// The origin of one request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// What it may do.
    pub grant: Arc<AccessGrant>,
    /// The client's address, behind proxies that are trusted.
    pub address: IpAddr,
    /// What bounds the use of the grant from this address.
    address_meter: Option<Arc<SubjectMeter>>,
}

impl Caller {
    /// The user of a grant at an address. `at`: since the epoch of the meters.
    pub fn new(grant: Arc<AccessGrant>, address: IpAddr, book: &MeterBook, at: Duration) -> Self {
        let GrantMeters { each_address, key, tenant } = &grant.meters;
        // Its calls will be taken from them, after their bodies were read.
        key.iter().chain(tenant).for_each(|meter| meter.fetch_ahead());
        let plan = each_address.as_ref();
        let address_meter = plan.map(|plan| book.address(grant.number, address, plan, at));
        Self { grant, address, address_meter }
    }

    /// The meters that its calls pass, the narrowest first.
    pub fn meters(&self) -> impl Iterator<Item = &Arc<SubjectMeter>> {
        let GrantMeters { key, tenant, each_address: _ } = &self.grant.meters;
        [&self.address_meter, key, tenant].into_iter().flatten()
    }
}
