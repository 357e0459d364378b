//! Client certificates: authorities, revocation, and what the handler is told of them.

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason,
    RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use tokio::io::AsyncReadExt;
use wellhead_server::{
    ClientFiles, ClientName, HandshakeFailure, Renewed, Settings, Tls, TlsFile, TlsFiles,
};

use crate::site::Site;
use crate::tls::{Folder, Pair, fails, told};
use crate::wire::Wire;

/// An authority of client certificates.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// All certificates are valid from 2020 to the first day of one of these years.
pub(crate) const VALID: i32 = 2090;
const EXPIRED: i32 = 2021;

fn params(common_name: &str, until: i32) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    params
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = Self::params(name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// An authority between this one and clients.
    fn below(&self, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = Self::params(name);
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = params(name, VALID);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    /// A client certificate with this serial number, a URI and a common name.
    pub(crate) fn issue(&self, serial: u64, until: i32) -> Pair {
        let mut params = params("indexer", until);
        let uri = Ia5String::try_from("spiffe://prod.example/indexer").unwrap();
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// A list of these serial numbers, whose next issue is due in this year.
    fn revoking(&self, serials: &[u64], due: i32) -> String {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(due, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// The files of a listener whose clients have certificates.
pub(crate) struct Files {
    folder: Folder,
    pub(crate) own: Pair,
    required: bool,
    lists: usize,
}

impl Files {
    pub(crate) fn new(ca: &str, lists: &[&str], required: bool) -> Self {
        let own = Pair::new();
        let folder = Folder::new(&own);
        folder.write("ca", ca);
        for (name, list) in ["crl", "more"].iter().zip(lists) {
            folder.write(name, list);
        }
        Self { folder, own, required, lists: lists.len() }
    }

    pub(crate) fn files(&self) -> TlsFiles {
        let crl = ["crl", "more"].iter().take(self.lists);
        let clients = ClientFiles {
            ca: self.folder.path("ca"),
            required: self.required,
            crl: crl.map(|name| self.folder.path(name)).collect(),
        };
        TlsFiles { clients: Some(clients), ..self.folder.files() }
    }
}

/// One exchange of a client with this certificate: the names that the handler was told, or `None`
/// where the handshake failed for want of a valid certificate.
async fn exchange(site: &Site, own: &Pair, client: Option<&Pair>) -> Option<Vec<ClientName>> {
    let before = site.server.counts().tls_failed(HandshakeFailure::Uncertified);
    *site.handler.client.lock().unwrap() = None;
    // Of TLS 1.3 a client has done its part before its certificate is judged.
    if let Ok(stream) = own.connect_as(site, &[], client).await {
        let mut wire = Wire::over(stream);
        wire.post("/", "", b"{}").await;
        if let Some(reply) = wire.any_reply(false).await {
            assert_eq!(reply.status, 200);
            return Some(site.handler.client.lock().unwrap().take().unwrap().1);
        }
    }
    let failed = |counts: &wellhead_server::ServerCounts| {
        counts.tls_failed(HandshakeFailure::Uncertified) == before + 1
    };
    site.until("the failure is counted", failed).await;
    assert!(site.handler.client.lock().unwrap().is_none(), "no request came through");
    None
}

/// The client's certificate is accepted, or not.
async fn check(what: &str, files: &Files, client: Option<&Pair>, accepted: bool) {
    let tls = Tls::load(files.files()).unwrap();
    let site = Site::open_with(Settings::default(), Some(tls));
    let names = exchange(&site, &files.own, client).await;
    assert_eq!(names.is_some(), accepted, "{what}");
    let expected: &[ClientName] = match client {
        Some(_) => &[
            ClientName::Uri("spiffe://prod.example/indexer".into()),
            ClientName::Common("indexer".into()),
        ],
        None => &[],
    };
    assert_eq!(names.unwrap_or(expected.to_vec()), expected, "{what}");
}

#[tokio::test]
async fn certificates_of_the_authority_are_accepted() {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let (good, expired) = (ca.issue(7, VALID), ca.issue(8, EXPIRED));
    // Of another authority with an equal name.
    let (strange, twin) = (other.issue(7, VALID), Authority::new("ca").issue(7, VALID));
    for required in [true, false] {
        let files = Files::new(&ca.pem, &[], required);
        check("of the authority", &files, Some(&good), true).await;
        check("expired", &files, Some(&expired), false).await;
        check("of another authority", &files, Some(&strange), false).await;
        check("of an authority with this name", &files, Some(&twin), false).await;
        check("none", &files, None, !required).await;
        let both = Files::new(&format!("{}{}", ca.pem, other.pem), &[], required);
        check("of the second authority", &both, Some(&strange), true).await;
    }
    let below = ca.below("below");
    let leaf = below.issue(9, VALID);
    let chained =
        Pair { certificate: leaf.certificate.clone() + &below.pem, key: leaf.key.clone() };
    let files = Files::new(&ca.pem, &[], true);
    check("with its chain", &files, Some(&chained), true).await;
    check("without its chain", &files, Some(&leaf), false).await;
}

#[tokio::test]
async fn revoked_certificates_are_refused() {
    let ca = Authority::new("ca");
    let (good, revoked) = (ca.issue(7, VALID), ca.issue(8, VALID));
    let list = ca.revoking(&[8], VALID);
    for required in [true, false] {
        let files = Files::new(&ca.pem, &[&list], required);
        check("not on the list", &files, Some(&good), true).await;
        check("on the list", &files, Some(&revoked), false).await;
    }
    // Nothing is known of those that were revoked since the next list was due.
    let overdue = Files::new(&ca.pem, &[&ca.revoking(&[8], EXPIRED)], false);
    check("the list is overdue", &overdue, Some(&good), false).await;
    check("no certificate to be on the list", &overdue, None, true).await;
    let strange = Files::new(&ca.pem, &[&Authority::new("other").revoking(&[], VALID)], false);
    check("the list is of another authority", &strange, Some(&good), false).await;
    let twin = Files::new(&ca.pem, &[&Authority::new("ca").revoking(&[], VALID)], false);
    check("the list is signed by another key", &twin, Some(&good), false).await;
}

#[tokio::test]
async fn each_authority_of_a_chain_needs_a_list() {
    let ca = Authority::new("ca");
    let below = ca.below("below");
    let leaf = below.issue(9, VALID);
    let chained = Pair { certificate: leaf.certificate + &below.pem, key: leaf.key };
    let (of_ca, of_below) = (ca.revoking(&[], VALID), below.revoking(&[], VALID));
    let with = |lists: &[&str]| Files::new(&ca.pem, lists, true);
    check("both", &with(&[&of_ca, &of_below]), Some(&chained), true).await;
    check("both in one file", &with(&[&(of_ca.clone() + &of_below)]), Some(&chained), true).await;
    check("that of the root", &with(&[&of_ca]), Some(&chained), false).await;
    check("that of the issuer", &with(&[&of_below]), Some(&chained), false).await;
}

/// A session would go on by its ticket when its certificate is revoked.
#[tokio::test]
async fn a_change_of_the_lists_holds_from_the_next_handshake() {
    let (ca, next) = (Authority::new("ca"), Authority::new("next"));
    let (client, renewed) = (ca.issue(7, VALID), next.issue(7, VALID));
    let files = Files::new(&ca.pem, &[&ca.revoking(&[], VALID)], true);
    let tls = Tls::load(files.files()).unwrap();
    let site = Site::open_with(Settings::default(), Some(std::sync::Arc::clone(&tls)));
    let mut kept = Wire::over(files.own.connect_as(&site, &[], Some(&client)).await.unwrap());
    assert_eq!(kept.exchange("/", "", b"{}").await.status, 200);
    assert_eq!(tls.renew(), Renewed::Unchanged);

    files.folder.write("crl", &ca.revoking(&[7], VALID));
    assert_eq!(tls.renew(), Renewed::Taken);
    assert_eq!(exchange(&site, &files.own, Some(&client)).await, None);
    assert_eq!(kept.exchange("/", "", b"{}").await.status, 200, "open connections stay");

    files.folder.write("crl", "half a li");
    let Renewed::Refused(problems) = tls.renew() else { panic!("it was taken") };
    let no_list = "crl: holds no revocation list (`-----BEGIN X509 CRL-----`)";
    assert_eq!(told(&files.folder, &problems), [no_list]);
    assert_eq!(exchange(&site, &files.own, Some(&client)).await, None, "the list before stays");

    // The authority is renewed with a new key.
    files.folder.write("ca", &next.pem);
    files.folder.write("crl", &next.revoking(&[], VALID));
    assert_eq!(tls.renew(), Renewed::Taken);
    assert_eq!(exchange(&site, &files.own, Some(&client)).await, None);
    assert!(exchange(&site, &files.own, Some(&renewed)).await.is_some());
}

#[tokio::test]
async fn no_session_is_resumed() {
    use rustls::HandshakeKind;
    let ca = Authority::new("ca");
    let client = ca.issue(7, VALID);
    let files = Files::new(&ca.pem, &[], true);
    let site = Site::open_with(Settings::default(), Some(Tls::load(files.files()).unwrap()));
    let connector = files.own.client(&[], Some(&client));
    for _ in 0..3 {
        let stream = connector.connect(&site).await.unwrap();
        let mut wire = Wire::over(stream);
        assert_eq!(wire.exchange("/", "", b"{}").await.status, 200);
        let kind = wire.stream.get_ref().1.handshake_kind();
        assert_eq!(kind, Some(HandshakeKind::Full));
    }
}

#[tokio::test]
async fn a_client_without_a_certificate_gives_its_place_back() {
    let files = Files::new(&Authority::new("ca").pem, &[], true);
    let site = Site::open_with(Settings::default(), Some(Tls::load(files.files()).unwrap()));
    let mut stream = files.own.connect_as(&site, &[], None).await.unwrap();
    assert!(stream.read_to_end(&mut Vec::new()).await.is_err());
    fails(&site, HandshakeFailure::Uncertified).await;
}

#[test]
fn files_that_verify_no_client() {
    let ca = Authority::new("ca");
    let list = ca.revoking(&[1], VALID);
    let key = Pair::new().key;
    let cut = &list[..list.len() - 30];
    let empty = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    let odd = "-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n";
    let no_authority = "ca: holds a certificate (number 1) that is no authority: \
                        invalid peer certificate: BadEncoding";
    let cases: [(&str, &[&str], &[&str]); 8] = [
        (&ca.pem, &[&list], &[]),
        (&ca.pem, &[&list, &list], &[]),
        ("", &[&list], &["ca: holds no certificate (`-----BEGIN CERTIFICATE-----`)"]),
        (&key, &[], &["ca: holds a key and no certificate: are the files swapped?"]),
        (empty, &[], &[no_authority]),
        (
            "",
            &["", cut],
            &[
                "ca: holds no certificate (`-----BEGIN CERTIFICATE-----`)",
                "crl: holds no revocation list (`-----BEGIN X509 CRL-----`)",
                "more: is cut off: a section has no end",
            ],
        ),
        (
            &ca.pem,
            &[&list, odd],
            &["more: cannot be read: provided CRL could not be parsed: ParseError"],
        ),
        (&ca.pem, &[&ca.pem], &["crl: holds no revocation list (`-----BEGIN X509 CRL-----`)"]),
    ];
    for (authority, lists, expected) in cases {
        let files = Files::new(authority, lists, true);
        assert_eq!(told(&files.folder, &files.files().problems()), expected);
    }
}

#[test]
fn the_ends_of_files_are_told() {
    let ca = Authority::new("ca");
    let both = ca.revoking(&[], VALID) + &ca.revoking(&[], 2080);
    let files = Files::new(&ca.pem, &[&both], true);
    let tls = Tls::load(files.files()).unwrap();
    let ends = tls.ends().into_iter().map(|it| (it.file, it.end.as_secs()));
    let expected = [
        // What rcgen gives a certificate of its own: the year 4096.
        (TlsFile::Certificate, 67_090_118_400),
        // 2080-01-01, before the other.
        (TlsFile::RevocationList(0), 3_471_292_800),
    ];
    assert_eq!(ends.collect::<Vec<_>>(), expected);
}
