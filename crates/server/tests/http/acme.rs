//! A certificate from an ACME server: what a listener does before it comes, and with one that is kept.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use wellhead_server::{
    AcmeFailure, AcmeSettings, ClientFiles, FileEnd, HandshakeFailure, Renewed, Settings, Tls,
    TlsFile,
};

use crate::site::Site;
use crate::tls::{Folder, Pair, fails};

const DIRECTORY: &str = "https://acme.example/dir";

/// An hour of 2030, and what is left of it when a certificate should be renewed.
const START: u64 = 1_893_456_000;
const THIRTY_DAYS: u64 = 30 * 24 * 3600;

fn settings(cache: PathBuf, directory: &str) -> AcmeSettings {
    AcmeSettings {
        domains: vec!["localhost".to_owned()],
        contact: Vec::new(),
        cache,
        directory: directory.to_owned(),
        ca: None,
    }
}

/// Valid from the first to the last day of January 2030.
fn pair() -> Pair {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2030, 1, 1);
    params.not_after = date_time_ymd(2030, 1, 31);
    let key = KeyPair::generate().unwrap();
    let made = params.self_signed(&key).unwrap();
    Pair { certificate: made.pem(), key: key.serialize_pem() }
}

/// A cache that keeps `pair`.
fn kept(pair: &Pair) -> Folder {
    let folder = Folder::new(pair);
    let head = format!("wellhead: certificate of {DIRECTORY} for localhost");
    folder.write("certificate.pem", &format!("{head}\n{}\n{}", pair.key, pair.certificate));
    folder
}

#[tokio::test]
async fn handshakes_fail_until_there_is_a_certificate() {
    let folder = Folder::new(&Pair::new());
    let tls = Tls::with_acme(settings(folder.path("cache"), DIRECTORY), None).unwrap();
    let site = Site::open_with(Settings::default(), Some(Arc::clone(&tls)));
    assert!(Pair::new().connect_as(&site, &[], None).await.is_err());
    fails(&site, HandshakeFailure::Disagreed).await;
    assert_eq!(tls.ends(), []);
    let orders = tls.acme().unwrap();
    assert_eq!((orders.due(), orders.end()), (Duration::ZERO, None));
}

#[tokio::test]
async fn a_certificate_that_is_kept_is_used_at_once() {
    let pair = Pair::new();
    let folder = kept(&pair);
    let tls = Tls::with_acme(settings(folder.path("."), DIRECTORY), None).unwrap();
    let site = Site::open_with(Settings::default(), Some(tls));
    pair.connect_as(&site, &[], None).await.unwrap();
}

#[test]
fn an_order_is_due_after_two_thirds_of_the_validity() {
    let folder = kept(&pair());
    let tls = Tls::with_acme(settings(folder.path("."), DIRECTORY), None).unwrap();
    let end = Duration::from_secs(START + THIRTY_DAYS);
    assert_eq!(tls.ends(), [FileEnd { file: TlsFile::Certificate, end }]);
    let orders = tls.acme().unwrap();
    assert_eq!(orders.end(), Some(end));
    assert_eq!(orders.due(), Duration::from_secs(START + THIRTY_DAYS * 2 / 3));
}

#[test]
fn a_certificate_of_another_order_or_a_damaged_one_is_not_used() {
    let folder = kept(&Pair::new());
    let other = settings(folder.path("."), "https://other.example/dir");
    assert_eq!(Tls::with_acme(other, None).unwrap().ends(), []);
    let head = format!("wellhead: certificate of {DIRECTORY} for localhost");
    folder.write("certificate.pem", &format!("{head}\n{}", Pair::new().key));
    let damaged = settings(folder.path("."), DIRECTORY);
    assert_eq!(Tls::with_acme(damaged, None).unwrap().ends(), []);
}

#[tokio::test]
async fn files_of_client_certificates_are_reloaded_beside_it() {
    let (own, client) = (Pair::new(), Pair::new());
    let folder = kept(&own);
    folder.write("ca", &Pair::new().certificate);
    let clients = ClientFiles { ca: folder.path("ca"), required: true, crl: Vec::new() };
    let tls = Tls::with_acme(settings(folder.path("."), DIRECTORY), Some(clients)).unwrap();
    let ends = tls.ends();
    assert_eq!(tls.renew(), Renewed::Unchanged);
    folder.write("ca", &client.certificate);
    assert_eq!(tls.renew(), Renewed::Taken);
    assert_eq!(tls.ends(), ends);
    let site = Site::open_with(Settings::default(), Some(Arc::clone(&tls)));
    own.connect_as(&site, &[], Some(&client)).await.unwrap();
    folder.write("ca", "no certificate");
    assert!(matches!(tls.renew(), Renewed::Refused(_)));
}

#[test]
fn what_cannot_be_used_is_told_at_start() {
    let folder = Folder::new(&Pair::new());
    let mut bad = settings(folder.path("key"), DIRECTORY);
    bad.ca = Some(folder.path("none"));
    let found = |settings: &AcmeSettings| {
        let problems = settings.problems();
        problems.into_iter().map(|it| (it.file, it.why)).collect::<Vec<_>>()
    };
    let expected = [
        (TlsFile::AcmeCache, "is not a directory".to_owned()),
        (TlsFile::AcmeAuthority, "does not exist".to_owned()),
    ];
    assert_eq!(found(&bad), expected);
    assert!(Tls::with_acme(bad.clone(), None).is_err());
    bad.ca = None;
    assert!(Tls::with_acme(bad, None).is_err());
}

#[tokio::test]
async fn an_acme_server_that_is_away_is_unavailable() {
    let folder = Folder::new(&Pair::new());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let directory = format!("https://127.0.0.1:{port}/dir");
    let tls = Tls::with_acme(settings(folder.path("cache"), &directory), None).unwrap();
    let ordered = tls.acme().unwrap().order().await;
    assert!(matches!(ordered, Err(AcmeFailure::Unavailable(_))), "{ordered:?}");
    let account = std::fs::read_to_string(folder.path("cache/account.pem")).unwrap();
    let _again = tls.acme().unwrap().order().await;
    assert_eq!(std::fs::read_to_string(folder.path("cache/account.pem")).unwrap(), account);
}
