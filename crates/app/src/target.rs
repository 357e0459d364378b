//! An upstream of the config as a target of the analyser: reached as the proxy reaches it.

use std::path::Path;
use std::sync::Arc;

use wellhead_analyze::measure::client::{TargetAccess, TargetEndpoint};
use wellhead_analyze::measure::run::RunTerms;
use wellhead_analyze::record::Machine;
use wellhead_net::{ClientIdentity, Endpoint};

use crate::assemble::endpoint_of;
use crate::config::{self, IdentityFiles, Upstream};

/// The target. Reads the files of certificates.
///
/// # Errors
///
/// Where such a file cannot be used.
pub(crate) fn as_configured(upstream: &Upstream) -> Result<TargetEndpoint, String> {
    let Endpoint { url, headers, auth, .. } = endpoint_of(upstream);
    let pem = upstream.ca_file.as_deref().map(|path| authorities("ca_file", path));
    let identity = IdentityFiles::of(upstream).map(|files| identity("client_cert_file", &files));
    let access = TargetAccess {
        headers,
        auth,
        authorities: pem.transpose()?,
        authorities_add: upstream.ca_file_adds,
        identity: identity.transpose()?,
        ..TargetAccess::default()
    };
    Ok(TargetEndpoint::new(upstream.id.as_str().to_owned(), url).with_access(access))
}

/// The certificates of authorities in a file that `what` names.
///
/// # Errors
///
/// Where they cannot be used.
pub(crate) fn authorities(what: &str, path: &Path) -> Result<Arc<[u8]>, String> {
    let read = config::authorities(path).map(Arc::from);
    read.map_err(|why| format!("`{what}` `{}`: {why}", path.display()))
}

/// The certificate and the key in files that `what` names.
///
/// # Errors
///
/// Where they cannot be used.
pub(crate) fn identity(what: &str, files: &IdentityFiles) -> Result<ClientIdentity, String> {
    files.read().map(|read| read.identity).map_err(|why| format!("`{what}`: {why}"))
}

/// What a run says of itself: its chance, its start, and where it is measured, with a remark.
pub(crate) fn run_terms(seed: u64, started_unix: u64, note: Option<String>) -> RunTerms {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    let machine = Machine { os: std::env::consts::OS.to_owned(), cores, note };
    RunTerms { seed, started_unix, wellhead: env!("CARGO_PKG_VERSION").to_owned(), machine }
}
