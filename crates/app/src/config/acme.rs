//! The settings of a certificate that wellhead orders itself, and the words in them.
//!
//! How an order goes is `server`'s business. What these settings say together with others is in
//! `check`.

use std::path::PathBuf;

use url::Url;
use wellhead_server::AcmeSettings;

use super::mask::Hide;
use super::name::AcmeDomain;
use super::problem::Wrong;
use super::read::{SettingWord, section};
use super::rule::{ValueShape, default, derived, required};
use super::write::Yaml;

section! {
    /// A certificate from an ACME server, such as Let's Encrypt, whose terms of service this setting
    /// accepts. wellhead orders it at start and renews it after two thirds of its validity. The ACME server
    /// verifies each domain by TLS-ALPN-01: it connects to port 443 of the domain, which must lead
    /// to `listen` of this wellhead. Until the first certificate is issued, handshakes fail.
    Acme {
        /// The names that the certificate is for, without wildcards.
        domains: Vec<AcmeDomain> = required(),
        /// E-mail addresses that the ACME server may write to.
        contact: Vec<AcmeContact> = default(Vec::new()),
        /// A directory for the account key and the certificate, for nothing else and for this
        /// wellhead alone. It is made if it is missing, and closed to other users. With a directory
        /// that is lost at a restart each start orders a certificate, and ACME servers limit that.
        cache: PathBuf = required(),
        /// The ACME server: `production` and `staging` are those of Let's Encrypt; any other by the
        /// URL of its directory. Certificates of `staging` are for tests, and no client trusts them.
        directory: AcmeDirectory = default(AcmeDirectory::Production),
        /// The authorities that the ACME server itself is verified by, instead of the public ones
        /// (PEM).
        ca: Option<PathBuf> = derived("the public authorities"),
    }
}

impl Acme {
    /// As `server` takes it.
    pub fn order(&self) -> AcmeSettings {
        AcmeSettings {
            domains: self.domains.iter().map(|domain| domain.0.clone()).collect(),
            contact: self.contact.iter().map(|contact| format!("{MAILTO}{}", contact.0)).collect(),
            cache: self.cache.clone(),
            directory: self.directory.url().to_owned(),
            ca: self.ca.clone(),
        }
    }
}

/// What ACME servers want before an e-mail address.
const MAILTO: &str = "mailto:";

/// As in RFC 5321.
const ADDRESS_LEN_MAX: usize = 254;

/// An e-mail address, without `mailto:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeContact(pub String);

impl SettingWord for AcmeContact {
    const EXPECTED: &'static str = "an e-mail address";
    const SHAPE: ValueShape = ValueShape::word("e-mail contact", "(mailto:)?[^@ ]+@[^@ ]+");

    fn parse(text: &str) -> Result<Self, Wrong> {
        let address = text.strip_prefix(MAILTO).unwrap_or(text);
        let is_odd = |byte: u8| !byte.is_ascii_graphic() || b"<>,;:?\"".contains(&byte);
        let is_address = address.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty() && !host.is_empty() && !host.contains('@')
        });
        if !is_address || address.len() > ADDRESS_LEN_MAX || address.bytes().any(is_odd) {
            return Err(Wrong::hinted("this is not an e-mail address", "write `ops@example.org`"));
        }
        Ok(Self(address.to_owned()))
    }

    fn write(&self) -> Yaml {
        Yaml::Text(self.0.clone())
    }

    fn blank() -> Self {
        Self(String::new())
    }
}

/// Which ACME server issues certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcmeDirectory {
    /// Let's Encrypt.
    Production,
    /// Let's Encrypt, for tests.
    Staging,
    /// The directory of another one.
    Other(String),
}

const PRODUCTION: &str = "production";
const STAGING: &str = "staging";

impl AcmeDirectory {
    fn url(&self) -> &str {
        match self {
            Self::Production => "https://acme-v02.api.letsencrypt.org/directory",
            Self::Staging => "https://acme-staging-v02.api.letsencrypt.org/directory",
            Self::Other(url) => url,
        }
    }
}

impl SettingWord for AcmeDirectory {
    const EXPECTED: &'static str =
        "`production`, `staging`, or a URL such as `https://ca.example.org/acme/directory`";
    const HIDE: Option<Hide> = Some(Hide::Url);
    const SHAPE: ValueShape =
        ValueShape::word("`production`, `staging` or URL", "production|staging|https://.+");

    fn parse(text: &str) -> Result<Self, Wrong> {
        match text {
            PRODUCTION => return Ok(Self::Production),
            STAGING => return Ok(Self::Staging),
            _ => {}
        }
        let expected = || Wrong::new(Self::expected());
        let url = Url::parse(text).map_err(|_| expected())?;
        match url.scheme() {
            "https" => {}
            "http" => {
                let hint =
                    "begin it with `https://`; `ca` names the authorities of a server of your own";
                return Err(Wrong::hinted("ACME servers are asked over TLS only", hint));
            }
            _ => return Err(expected()),
        }
        // The file of the account and log lines name it.
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            let hint = "write scheme, host and path: `https://ca.example.org/acme/directory`";
            return Err(Wrong::hinted("the URL of a directory has no password and no query", hint));
        }
        Ok(Self::Other(url.to_string()))
    }

    fn write(&self) -> Yaml {
        Yaml::Text(match self {
            Self::Production => PRODUCTION.to_owned(),
            Self::Staging => STAGING.to_owned(),
            Self::Other(url) => url.clone(),
        })
    }

    fn blank() -> Self {
        Self::Production
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value written again, or a part of the message.
    fn check<T: SettingWord>(text: &str, expected: Result<&str, &str>) {
        let found = T::parse(text).map(|value| value.write().inline()).map_err(|it| it.message);
        match (&found, expected) {
            (Ok(written), Ok(expected)) => assert_eq!(written, expected, "{text}"),
            (Err(message), Err(part)) => assert!(message.contains(part), "{text}: {message}"),
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn contacts() {
        check::<AcmeContact>("ops@example.org", Ok("\"ops@example.org\""));
        check::<AcmeContact>("mailto:ops@example.org", Ok("\"ops@example.org\""));
        for text in [
            "",
            "ops",
            "@b",
            "a@",
            "a@b@c",
            "tel:+12025551212",
            "Ops <ops@example.org>",
            "a@b,c@d",
            "a@b?cc=c",
        ] {
            check::<AcmeContact>(text, Err("not an e-mail address"));
        }
    }

    #[test]
    fn directories() {
        check::<AcmeDirectory>("production", Ok("production"));
        check::<AcmeDirectory>("staging", Ok("staging"));
        check::<AcmeDirectory>("https://ca.example:14000/dir", Ok("https://ca.example:14000/dir"));
        check::<AcmeDirectory>("http://ca.example/dir", Err("over TLS only"));
        check::<AcmeDirectory>("https://u:p@ca.example/dir", Err("no password"));
        check::<AcmeDirectory>("https://ca.example/dir?key=1", Err("no query"));
        for text in ["", "letsencrypt", "ca.example/dir", "ftp://ca.example/dir"] {
            check::<AcmeDirectory>(text, Err("expected `production`"));
        }
    }
}
