//! What is read of certificates and revocation lists beside their verification: the names of a
//! client, the issuer, and when a certificate or a file ends to be valid.
//!
//! No verifier: rustls has verified a client's certificate before its names are read, and what is
//! wrong with a file is found when rustls takes it. A field that cannot be read is left out.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};

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
        let fields = CertificateFields::read(der)?;
        let named = |kind: &[u8]| {
            let mut names = Vec::new();
            names_of(fields.issuer, kind, &mut names);
            names.first().map(|name: &ClientName| name.text().into())
        };
        let issuer = named(COMMON_NAME).or_else(|| named(ORGANIZATION));
        Some(Self { issuer, not_after: fields.not_after })
    }
}

/// The names in a certificate: alternative names in their order, then those of the subject.
pub(crate) fn names(certificate: &CertificateDer<'_>) -> Box<[ClientName]> {
    let mut names = Vec::new();
    if let Some(fields) = CertificateFields::read(certificate) {
        alternative_names(fields.extensions, &mut names);
        names_of(fields.subject, COMMON_NAME, &mut names);
    }
    names.into_boxed_slice()
}

/// The last moment at which a certificate is valid, since 1970.
pub(crate) fn certificate_end(certificate: &CertificateDer<'_>) -> Option<Duration> {
    CertificateFields::read(certificate)?.not_after
}

/// The first moment at which a certificate is valid, since 1970.
pub(crate) fn certificate_start(certificate: &CertificateDer<'_>) -> Option<Duration> {
    CertificateFields::read(certificate)?.not_before
}

/// When the next issue of a revocation list is due, since 1970.
pub(crate) fn revocation_list_end(list: &CertificateRevocationListDer<'_>) -> Option<Duration> {
    let mut fields = DerReader(DerReader(DerReader(list).element(SEQUENCE)?).element(SEQUENCE)?);
    let _version = fields.element(INTEGER);
    let (_algorithm, _issuer) = (fields.element(SEQUENCE)?, fields.element(SEQUENCE)?);
    let _this_update = fields.next()?;
    moment(fields.next()?)
}

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const UTF8_TEXT: u8 = 0x0c;
const PRINTABLE_TEXT: u8 = 0x13;
const IA5_TEXT: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// Fields of a certificate that are told from others by their tag (RFC 5280, section 4.1).
const VERSION: u8 = 0xa0;
const ISSUER_ID: u8 = 0x81;
const SUBJECT_ID: u8 = 0x82;
const EXTENSIONS: u8 = 0xa3;

/// Kinds of alternative names (section 4.2.1.6).
const DNS_NAME: u8 = 0x82;
const URI_NAME: u8 = 0x86;

/// 2.5.29.17, 2.5.4.3 and 2.5.4.10.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// What is read of a certificate.
struct CertificateFields<'a> {
    not_before: Option<Duration>,
    not_after: Option<Duration>,
    issuer: &'a [u8],
    subject: &'a [u8],
    extensions: &'a [u8],
}

impl<'a> CertificateFields<'a> {
    fn read(certificate: &'a [u8]) -> Option<Self> {
        let mut fields =
            DerReader(DerReader(DerReader(certificate).element(SEQUENCE)?).element(SEQUENCE)?);
        let _version = fields.element(VERSION);
        let _serial = fields.element(INTEGER)?;
        let (_algorithm, issuer) = (fields.element(SEQUENCE)?, fields.element(SEQUENCE)?);
        let mut validity = DerReader(fields.element(SEQUENCE)?);
        let not_before = moment(validity.next()?);
        let not_after = moment(validity.next()?);
        let subject = fields.element(SEQUENCE)?;
        let _key = fields.element(SEQUENCE)?;
        let (_issuer_id, _subject_id) = (fields.element(ISSUER_ID), fields.element(SUBJECT_ID));
        let extensions = fields.element(EXTENSIONS).and_then(|it| DerReader(it).element(SEQUENCE));
        let extensions = extensions.unwrap_or_default();
        Some(Self { not_before, not_after, issuer, subject, extensions })
    }
}

fn alternative_names(extensions: &[u8], names: &mut Vec<ClientName>) {
    let found = DerReader(extensions).filter_map(|(_, extension)| {
        let mut extension = DerReader(extension);
        let id = extension.element(OBJECT_ID)?;
        let _critical = extension.element(BOOLEAN);
        let value = extension.element(OCTETS)?;
        (id == ALTERNATIVE_NAMES).then(|| DerReader(value).element(SEQUENCE))?
    });
    for (kind, name) in found.flat_map(DerReader) {
        let named: fn(Box<str>) -> ClientName = match kind {
            URI_NAME => ClientName::Uri,
            DNS_NAME => ClientName::Dns,
            _ => continue,
        };
        push(names, named, name);
    }
}

/// The attributes of this kind in the name of a subject or an issuer.
fn names_of(name: &[u8], kind: &[u8], names: &mut Vec<ClientName>) {
    let sets = DerReader(name).filter(|(tag, _)| *tag == SET);
    for (_, attribute) in sets.flat_map(|(_, set)| DerReader(set)) {
        let mut attribute = DerReader(attribute);
        if attribute.element(OBJECT_ID) != Some(kind) {
            continue;
        }
        if let Some((UTF8_TEXT | PRINTABLE_TEXT | IA5_TEXT, name)) = attribute.next() {
            push(names, ClientName::Common, name);
        }
    }
}

fn push(names: &mut Vec<ClientName>, named: fn(Box<str>) -> ClientName, name: &[u8]) {
    let is_good = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    if let Ok(text) = std::str::from_utf8(name)
        && is_good
        && names.len() < NAMES_MAX
    {
        names.push(named(text.into()));
    }
}

/// A moment since 1970; one before that is 1970 (RFC 5280, section 4.1.2.5).
fn moment((tag, text): (u8, &[u8])) -> Option<Duration> {
    let digits = text.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| digits.iter().fold(0, |sum, it| sum * 10 + i64::from(it - b'0'));
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let (year, rest) = digits.split_at(2);
            let year = number(year);
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        (GENERALIZED_TIME, 14) => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let pairs: Vec<i64> = rest.chunks(2).map(number).collect();
    let [month @ 1..=12, day @ 1..=31, hour @ 0..=23, minute @ 0..=59, second @ 0..=60] = pairs[..]
    else {
        return None;
    };
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Days from 1970 to a date of the Gregorian calendar; years that begin in March have the leap day
/// at their end.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    before + (month * 153 + 2) / 5 + day - 1 - DAYS_BEFORE_1970
}

/// From the first of March of the year 0.
const DAYS_BEFORE_1970: i64 = 719_468;

/// Elements of DER that follow each other: their tags and contents. Ends at what cannot be read.
struct DerReader<'a>(&'a [u8]);

impl<'a> DerReader<'a> {
    /// The contents of the next element if it has this tag; else it stays the next one.
    fn element(&mut self, tag: u8) -> Option<&'a [u8]> {
        let before = self.0;
        match self.next() {
            Some((found, contents)) if found == tag => Some(contents),
            _ => {
                self.0 = before;
                None
            }
        }
    }
}

impl<'a> Iterator for DerReader<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [tag, first, rest @ ..] = std::mem::take(&mut self.0) else { return None };
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, contents))
    }
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
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "000229235959Z", Some(951_868_799)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(0)),
            (GENERALIZED_TIME, "20261125070554Z", Some(1_795_590_354)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (GENERALIZED_TIME, "20261325070554Z", None),
            (UTC_TIME, "20261125070554Z", None),
            (UTC_TIME, "2611250705Z", None),
            (UTC_TIME, "261125070554", None),
            (UTC_TIME, "26112507055aZ", None),
            (INTEGER, "261125070554Z", None),
        ] {
            let found = moment((tag, text.as_bytes())).map(|it| it.as_secs());
            assert_eq!(found, seconds, "{text}");
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
