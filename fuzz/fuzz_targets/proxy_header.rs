//! The PROXY header at the beginning of a connection: the same verdict however its bytes arrive, within the
//! bounds, and the addresses that a naive reader sees.

#![no_main]

use std::net::{IpAddr, SocketAddr};

use libfuzzer_sys::fuzz_target;
use wellhead_access::{
    PROXY_HEADER_BYTES_MAX, PROXY_V1_BYTES_MAX, ProxyHeader, ProxyHeaderError,
};

fuzz_target!(|bytes: &[u8]| {
    let whole = ProxyHeader::parse(bytes);
    for cut in 0..bytes.len().min(PROXY_HEADER_BYTES_MAX) {
        match ProxyHeader::parse(&bytes[..cut]) {
            // A beginning may only be waiting for what decides.
            Err(ProxyHeaderError::Incomplete) => {}
            early => assert_eq!(early, whole, "at {cut}"),
        }
    }
    match whole {
        Ok(header) => check(bytes, &header),
        Err(ProxyHeaderError::Incomplete) => assert!(bytes.len() < PROXY_HEADER_BYTES_MAX),
        Err(_) => assert!(!bytes.is_empty()),
    }
});

fn check(bytes: &[u8], header: &ProxyHeader) {
    assert!(header.len <= bytes.len() && header.len <= PROXY_HEADER_BYTES_MAX);
    assert_eq!(header.source.is_some(), header.destination.is_some());
    for address in [header.source, header.destination].into_iter().flatten() {
        assert_eq!(address.ip(), address.ip().to_canonical());
    }
    let naive = match bytes.strip_prefix(b"PROXY ") {
        Some(_) => {
            assert!(header.len <= PROXY_V1_BYTES_MAX && bytes[..header.len].ends_with(b"\r\n"));
            naive_v1(&bytes[..header.len])
        }
        None => naive_v2(&bytes[..header.len]),
    };
    assert_eq!(header.source, naive);
}

fn naive_v1(line: &[u8]) -> Option<SocketAddr> {
    let line = String::from_utf8_lossy(line);
    let words: Vec<_> = line.split_whitespace().collect();
    if words[1] == "UNKNOWN" {
        return None;
    }
    assert_eq!(words.len(), 6);
    let address: IpAddr = words[2].parse().expect("an address");
    assert_eq!(words[1] == "TCP4", address.is_ipv4());
    Some(SocketAddr::new(address.to_canonical(), words[4].parse().expect("a port")))
}

fn naive_v2(bytes: &[u8]) -> Option<SocketAddr> {
    assert_eq!(usize::from(bytes[14]) * 256 + usize::from(bytes[15]) + 16, bytes.len());
    let port = |at: usize| u16::from(bytes[at]) * 256 + u16::from(bytes[at + 1]);
    match (bytes[12] & 0xf, bytes[13]) {
        (1, 0x11) => {
            let address = <[u8; 4]>::try_from(&bytes[16..20]).expect("4 bytes");
            Some(SocketAddr::new(IpAddr::from(address), port(24)))
        }
        (1, 0x21) => {
            let address = <[u8; 16]>::try_from(&bytes[16..32]).expect("16 bytes");
            Some(SocketAddr::new(IpAddr::from(address).to_canonical(), port(48)))
        }
        _ => None,
    }
}
