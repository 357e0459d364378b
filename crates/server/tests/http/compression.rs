//! Bodies in gzip and zstd, both ways.

use std::io::{Read, Write};

use crate::site::{Site, big};
use wellhead_server::{Compression, HttpRefusal, Settings};

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn gunzip(data: &[u8]) -> Vec<u8> {
    let mut inflated = Vec::new();
    flate2::read::GzDecoder::new(data).read_to_end(&mut inflated).unwrap();
    inflated
}

async fn check(accept: &str, coding: Option<&str>) {
    // Once in slices by the worker, once on a thread of its own.
    for inline_bytes_max in [usize::MAX, 0] {
        let compression = Compression { inline_bytes_max, ..Compression::default() };
        let site = Site::open(Settings { compression, ..Settings::default() });
        let mut wire = site.connect().await;
        let reply = wire.exchange("/big", accept, b"{}").await;
        assert_eq!(reply.header("content-encoding"), coding, "{accept}");
        assert_eq!(reply.header("vary"), Some("accept-encoding"));
        let body = match coding {
            Some("gzip") => gunzip(&reply.body),
            Some("zstd") => zstd::stream::decode_all(&reply.body[..]).unwrap(),
            _ => reply.body,
        };
        assert!(body == big().concat(), "{accept}");
    }
}

#[tokio::test]
async fn answers_are_compressed_as_the_client_accepts() {
    check("", None).await;
    check("accept-encoding: gzip\r\n", Some("gzip")).await;
    check("accept-encoding: gzip, zstd\r\n", Some("zstd")).await;
    check("accept-encoding: gzip\r\naccept-encoding: zstd;q=0.5\r\n", Some("gzip")).await;
    check("accept-encoding: zstd;q=0, gzip;q=0\r\n", None).await;
    check("accept-encoding: *\r\n", Some("zstd")).await;
    check("accept-encoding: br\r\n", None).await;
}

#[tokio::test]
async fn small_answers_and_unwilling_servers_do_not_compress() {
    let site = Site::open(Settings::default());
    let mut wire = site.connect().await;
    let reply = wire.exchange("/", "accept-encoding: gzip\r\n", &[b' '; 4095]).await;
    assert_eq!((reply.header("content-encoding"), reply.header("vary")), (None, None));
    let compression = Compression { enabled: false, ..Compression::default() };
    let site = Site::open(Settings { compression, ..Settings::default() });
    let mut wire = site.connect().await;
    let reply = wire.exchange("/big", "accept-encoding: gzip\r\n", b"{}").await;
    assert_eq!((reply.header("content-encoding"), reply.header("vary")), (None, None));
}

#[tokio::test]
async fn requests_may_be_gzip() {
    let site = Site::open(Settings { body_bytes_max: 100_000, ..Settings::default() });
    let mut wire = site.connect().await;
    let coded = "content-encoding: gzip\r\n";
    let reply = wire.exchange("/", coded, &gzip(b"{\"id\":1}")).await;
    assert_eq!(reply.body, b"{\"id\":1}");
    let large = vec![b' '; 100_000];
    assert!(wire.exchange("/", coded, &gzip(&large)).await.body == large);
    site.until("the bytes are given back", |counts| counts.bodies_bytes == 0).await;
}

#[tokio::test]
async fn a_bomb_is_too_large_and_a_dud_is_broken() {
    let site = Site::open(Settings { body_bytes_max: 100_000, ..Settings::default() });
    let coded = "content-encoding: gzip\r\n";
    let bomb = gzip(&vec![0; 20_000_000]);
    assert!(bomb.len() < 100_000);
    let mut wire = site.connect().await;
    wire.exchange("/", coded, &bomb).await.is_refusal(413, -32600);
    let mut wire = site.connect().await;
    wire.exchange("/", coded, b"{}").await.is_refusal(400, -32700);
    assert_eq!(site.server.counts().refused(HttpRefusal::BodyBroken), 1);
}
