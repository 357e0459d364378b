//! Our reading of PROXY headers against that of another implementation, on headers that it wrote, whole
//! and damaged.

use std::net::SocketAddr;

use proptest::prelude::*;
use proxy_header::{ParseConfig, ProxiedAddress, ProxyHeader as TheirHeader, Tlv};
use wellhead_access::{ProxyHeader, ProxyHeaderError};

fn addresses() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let v4 = any::<([u8; 4], u16)>().prop_map(SocketAddr::from);
    let v6 = any::<([u8; 16], u16)>().prop_map(SocketAddr::from);
    prop_oneof![(v4.clone(), v4), (v6.clone(), v6)]
}

fn written(
    addresses: Option<(SocketAddr, SocketAddr)>,
    authority: Option<String>,
    is_v1: bool,
) -> Vec<u8> {
    let address =
        addresses.map(|(source, destination)| ProxiedAddress::stream(source, destination));
    let authority = authority.filter(|_| !is_v1).map(|name| Tlv::Authority(name.into()));
    let header = TheirHeader::with_tlvs(address, authority);
    let mut bytes = Vec::new();
    match is_v1 {
        true => header.encode_v1(&mut bytes).expect("an address and no values"),
        false => header.encode_v2(&mut bytes).expect("short values"),
    }
    bytes
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

proptest! {
    #[test]
    fn what_it_writes_is_read(
        addresses in proptest::option::of(addresses()),
        authority in proptest::option::of("[a-z.]{1,200}"),
        is_v1: bool,
        behind: Vec<u8>,
    ) {
        let header = written(addresses, authority, is_v1);
        let read = ProxyHeader::parse(&[header.clone(), behind].concat()).unwrap();
        prop_assert_eq!(read.len, header.len());
        prop_assert_eq!(read.source, addresses.map(|(source, _)| canonical(source)));
        prop_assert_eq!(read.destination, addresses.map(|(_, destination)| canonical(destination)));
        for cut in 0..header.len() {
            prop_assert_eq!(ProxyHeader::parse(&header[..cut]), Err(ProxyHeaderError::Incomplete));
        }
    }

    #[test]
    fn what_is_read_of_damaged_ones_it_reads_too(
        addresses in proptest::option::of(addresses()),
        is_v1: bool,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        behind in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = [written(addresses, None, is_v1), behind].concat();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let ours = ProxyHeader::parse(&bytes);
        let theirs = TheirHeader::parse(&bytes, ParseConfig::default());
        if let Ok(ProxyHeader { source: Some(source), len, .. }) = ours {
            let (header, their_len) = theirs.expect("an address that one reads is read by the other");
            let address = header.proxied_address().expect("an address");
            prop_assert_eq!((source, len), (canonical(address.source), their_len));
        }
    }
}
