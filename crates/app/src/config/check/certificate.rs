//! Checks of certificates: that of `listen`, from files or from an ACME server, and those that upstreams are
//! shown.

use wellhead_telemetry::SecretUrl;

use super::super::acme::Acme;
use super::super::chain::Upstream;
use super::super::problem::SettingPath;
use super::Checker;

/// Names in one certificate; Let's Encrypt issues no more.
const DOMAINS_MAX: usize = 100;

/// The hint where neither files nor `acme` are whole.
const EITHER: &str = "write `certificate: FILE` and `key: FILE`, or `acme: { domains: [rpc.example.org], cache: DIRECTORY }`";

/// Whether a connection to the upstream has TLS.
pub(super) fn has_tls(upstream: &Upstream) -> bool {
    let is_secure = |url: &SecretUrl| matches!(url.expose().scheme(), "https" | "wss");
    is_secure(&upstream.url) || upstream.ws.as_ref().is_some_and(is_secure)
}

impl Checker<'_> {
    /// There is exactly one origin of the certificate.
    pub(super) fn certificate(&mut self) {
        let (path, settings) = (SettingPath::root().key("tls"), self.settings);
        let Some(tls) = &settings.tls else { return };
        let given = [("certificate", tls.certificate.is_some()), ("key", tls.key.is_some())];
        if self.given(&path.key("acme")) {
            for (key, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
                let message = format!("`{key}` and `acme` exclude each other");
                let hint = "remove `certificate` and `key`, or remove `acme`";
                self.key_error(&path.key(key), message, hint);
            }
        } else if !self.touched(&path) {
            let message = match given {
                [(_, true), (_, true)] => None,
                [(key, false), (_, true)] | [(_, true), (key, false)] => {
                    Some(format!("`tls` has no `{key}`"))
                }
                [(_, false), (_, false)] => Some("`tls` has no certificate".to_owned()),
            };
            if let Some(message) = message {
                self.key_error(&path, message, EITHER);
            }
        }
        if let Some(acme) = &tls.acme {
            self.domains(&path.key("acme").key("domains"), acme);
        }
    }

    fn domains(&mut self, path: &SettingPath, acme: &Acme) {
        if self.touched(path) {
            return;
        }
        if acme.domains.is_empty() {
            let hint = "write the names by which clients call: `domains: [rpc.example.org]`";
            self.error(path, "`domains` is empty", hint);
        }
        if acme.domains.len() > DOMAINS_MAX {
            let message = format!("a certificate has at most {DOMAINS_MAX} domains");
            self.error(path, message, "serve the others by another wellhead");
        }
        for (index, domain) in acme.domains.iter().enumerate() {
            if let Some(first) = acme.domains[..index].iter().position(|it| it == domain) {
                let message = format!("the domain `{domain}` is listed twice");
                self.clash(&path.item(index), &path.item(first), &message, "remove one of them");
            }
        }
    }

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
