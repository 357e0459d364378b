//! Checks of the certificate that an upstream is shown, and of the TLS that all its certificates need.

use wellhead_telemetry::SecretUrl;

use super::super::chain::Upstream;
use super::super::problem::SettingPath;
use super::Checker;

/// Whether a connection to the upstream has TLS.
pub(super) fn has_tls(upstream: &Upstream) -> bool {
    let is_secure = |url: &SecretUrl| matches!(url.expose().scheme(), "https" | "wss");
    is_secure(&upstream.url) || upstream.ws.as_ref().is_some_and(is_secure)
}

impl Checker<'_> {
    /// A certificate and its key, of an upstream that can ask for them.
    pub(super) fn identity(&mut self, path: &SettingPath, upstream: &Upstream) {
        let (certificate, key) = (path.key("client_cert_file"), path.key("client_key_file"));
        if self.touched(&certificate) || self.touched(&key) {
            return;
        }
        match (&upstream.client_cert_file, &upstream.client_key_file) {
            (None, None) => {}
            (Some(_), None) => {
                let message = "`client_cert_file` has no effect without `client_key_file`";
                self.key_error(&certificate, message, "name the file of its private key");
            }
            (None, Some(_)) => {
                let message = "`client_key_file` has no effect without `client_cert_file`";
                self.key_error(&key, message, "name the file of the certificate");
            }
            (Some(_), Some(_)) if !has_tls(upstream) && !self.touched(&path.key("url")) => {
                let message = "`client_cert_file` has no effect: the URL is not `https://`";
                self.key_error(&certificate, message, "remove it, and `client_key_file`");
            }
            (Some(_), Some(_)) => {}
        }
    }
}
