//! What is read of certificates and revocation lists beside their verification: the names of a
//! client, the issuer, and when a certificate or a file ends to be valid.
//!
//! No verifier: rustls has verified a client's certificate before its names are read, and what is
//! wrong with a file is found when rustls takes it. A field that cannot be read is left out.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_parser::prelude::{
    ASN1Time, AttributeTypeAndValue, CertificateRevocationList, FromDer, GeneralName,
    X509Certificate, X509Name,
};

/// Names that are read of one certificate; further ones are not seen.
const NAMES_MAX: usize = 64;

/// A longer name is left out.
const NAME_BYTES_MAX: usize = 256;

/// A name in the verified certificate of a client, of printable ASCII characters and at most 256
/// bytes. Other names are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientName {
    /// A URI among the alternative names, such as a SPIFFE id.
    Uri(Box<str>),
    /// A DNS name among the alternative names; it may begin with `*.`.
    Dns(Box<str>),
    /// A common name of the subject.
    Common(Box<str>),
}

impl ClientName {
    /// The name without its kind. Two names of different kinds are different names, even with equal text.
    pub fn text(&self) -> &str {
        match self {
            Self::Uri(text) | Self::Dns(text) | Self::Common(text) => text,
        }
    }
}

/// What a certificate says of itself. Nothing in it is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSummary {
    /// The common name of its issuer, or else its organization.
    pub issuer: Option<Box<str>>,
    /// The last moment at which it is valid, since 1970.
    pub not_after: Option<Duration>,
}

impl CertificateSummary {
    /// Reads it from DER; `None` if this is no certificate.
    pub fn read(der: &[u8]) -> Option<Self> {
        let certificate = parse_certificate(der)?;
        let issuer = certificate.issuer();
        let name = common_names(issuer).chain(issuer.iter_organization().filter_map(text)).next();
        let not_after = since_1970(certificate.validity().not_after);
        Some(Self { issuer: name.map(Into::into), not_after: Some(not_after) })
    }
}

/// The names in a certificate: alternative names in their order, then those of the subject.
pub(crate) fn names(certificate: &CertificateDer<'_>) -> Box<[ClientName]> {
    let Some(certificate) = parse_certificate(certificate) else { return Box::default() };
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternative.iter().flat_map(|it| &it.value.general_names);
    let alternative = alternative.filter_map(|name| match name {
        GeneralName::URI(text) => Some(ClientName::Uri(good(text)?.into())),
        GeneralName::DNSName(text) => Some(ClientName::Dns(good(text)?.into())),
        _ => None,
    });
    let common = common_names(certificate.subject()).map(|it| ClientName::Common(it.into()));
    alternative.chain(common).take(NAMES_MAX).collect()
}

/// The last moment at which a certificate is valid, since 1970.
pub(crate) fn certificate_end(certificate: &CertificateDer<'_>) -> Option<Duration> {
    parse_certificate(certificate).map(|it| since_1970(it.validity().not_after))
}

/// The first moment at which a certificate is valid, since 1970.
pub(crate) fn certificate_start(certificate: &CertificateDer<'_>) -> Option<Duration> {
    parse_certificate(certificate).map(|it| since_1970(it.validity().not_before))
}

/// When the next issue of a revocation list is due, since 1970.
pub(crate) fn revocation_list_end(list: &CertificateRevocationListDer<'_>) -> Option<Duration> {
    let (_rest, list) = CertificateRevocationList::from_der(list).ok()?;
    list.next_update().map(since_1970)
}

fn parse_certificate(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().map(|(_rest, certificate)| certificate)
}

fn common_names<'a>(name: &'a X509Name<'a>) -> impl Iterator<Item = &'a str> {
    name.iter_common_name().filter_map(text)
}

fn text<'a>(attribute: &'a AttributeTypeAndValue<'a>) -> Option<&'a str> {
    good(attribute.as_str().ok()?)
}

/// The name, unless it could spoil a log line.
fn good(name: &str) -> Option<&str> {
    let is_good = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    is_good.then_some(name)
}

/// A moment since 1970; one before that is 1970.
fn since_1970(moment: ASN1Time) -> Duration {
    Duration::from_secs(u64::try_from(moment.timestamp()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use rcgen::string::Ia5String;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn made(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.not_after = rcgen::date_time_ymd(2031, 3, 1);
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").into()
    }

    fn ia5(text: &str) -> Ia5String {
        Ia5String::try_from(text).expect("ASCII")
    }

    #[track_caller]
    fn check(alternatives: &[SanType], common: &[&str], expected: &[ClientName]) {
        let certificate = made(|params| {
            params.subject_alt_names = alternatives.to_vec();
            for name in common {
                params.distinguished_name.push(DnType::CommonName, *name);
                params.distinguished_name.push(DnType::OrganizationName, "Example");
            }
        });
        assert_eq!(*names(&certificate), *expected);
    }

    #[test]
    fn names_of_each_kind() {
        let uri = || ClientName::Uri("spiffe://prod.example/indexer".into());
        let uri_name = || SanType::URI(ia5("spiffe://prod.example/indexer"));
        let dns_name = |name| SanType::DnsName(ia5(name));
        check(&[], &[], &[]);
        check(&[uri_name()], &[], &[uri()]);
        check(&[], &["Indexer 7"], &[ClientName::Common("Indexer 7".into())]);
        let address = SanType::IpAddress([10, 0, 0, 1].into());
        check(
            &[address, dns_name("*.a.example"), uri_name()],
            &["indexer"],
            &[ClientName::Dns("*.a.example".into()), uri(), ClientName::Common("indexer".into())],
        );
    }

    #[test]
    fn names_that_would_spoil_a_log_are_left_out() {
        check(&[], &["two\nlines"], &[]);
        check(&[], &["na\u{ef}ve"], &[]);
        check(&[], &[&"x".repeat(257)], &[]);
        check(&[], &[&"x".repeat(256)], &[ClientName::Common("x".repeat(256).into())]);
        let many: Vec<_> = (0..100).map(|n| SanType::DnsName(ia5(&format!("n{n}")))).collect();
        let certificate = made(|params| params.subject_alt_names = many);
        assert_eq!(names(&certificate).len(), NAMES_MAX);
    }

    #[test]
    fn the_start_of_a_certificate() {
        let made = made(|params| params.not_before = rcgen::date_time_ymd(2026, 11, 25));
        assert_eq!(certificate_start(&made), Some(Duration::from_secs(1_795_564_800)));
    }

    #[test]
    fn the_end_of_a_certificate() {
        let at = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(certificate_end(&made(|_| {})), at(1_930_089_600));
        let late = made(|params| params.not_after = rcgen::date_time_ymd(4096, 1, 1));
        assert_eq!(certificate_end(&late), at(67_090_118_400));
    }

    #[test]
    fn issuer_and_end_of_a_certificate() {
        let end = Some(Duration::from_secs(1_930_089_600));
        for (common, organization, expected) in [
            (Some("Example R11"), Some("Example Inc."), Some("Example R11")),
            (None, Some("Example Inc."), Some("Example Inc.")),
            (None, None, None),
        ] {
            let made = made(|params| {
                let name = &mut params.distinguished_name;
                organization.into_iter().for_each(|it| name.push(DnType::OrganizationName, it));
                common.into_iter().for_each(|it| name.push(DnType::CommonName, it));
            });
            let issuer = expected.map(Into::into);
            let summary = CertificateSummary { issuer, not_after: end };
            assert_eq!(CertificateSummary::read(&made), Some(summary));
        }
        assert_eq!(CertificateSummary::read(b"no certificate"), None);
    }

    #[test]
    fn moments() {
        for (year, month, day, seconds) in [
            (1950, 1, 1, 0),
            (1970, 1, 2, 86_400),
            (2000, 2, 29, 951_782_400),
            (2049, 12, 31, 2_524_521_600),
            (2050, 1, 1, 2_524_608_000),
            (9999, 12, 31, 253_402_214_400),
        ] {
            let made = made(|params| params.not_after = rcgen::date_time_ymd(year, month, day));
            let found = certificate_end(&made).map(|it| it.as_secs());
            assert_eq!(found, Some(seconds), "{year}-{month}-{day}");
        }
    }

    /// Whatever is cut off or changed, the rest is read or not, and never beyond its end.
    #[test]
    fn damaged_certificates_are_read_without_a_panic() {
        let good = made(|params| {
            params.subject_alt_names = vec![SanType::DnsName(ia5("a.example"))];
            params.distinguished_name.push(DnType::CommonName, "a");
        });
        assert_eq!(names(&good).len(), 2);
        let mut unreadable = 0;
        for at in 0..good.len() {
            let cut = CertificateDer::from(&good[..at]);
            assert!(names(&cut).is_empty(), "cut at {at}");
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = good.to_vec();
                changed[at] = byte;
                let changed = CertificateDer::from(changed);
                unreadable += usize::from(names(&changed).len() < 2);
                let _ = (certificate_end(&changed), revocation_list_end(&changed.as_ref().into()));
            }
        }
        assert!(unreadable > 50, "{unreadable}");
    }
}
