//! What proxies say of their clients, in `X-Forwarded-For`, in `Forwarded` and in headers with one address: nothing
//! panics, a client cannot change what a trusted proxy appends, and a naive reader finds the same address.
//!
//! The first byte says which header, the rest are its lines.

#![no_main]

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV4};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use wellhead_access::{NetworkSet, PROXY_HOPS_MAX, ProxyTrust, ProxyTrustHeader, parse_network};

/// A proxy that is believed, one that is not, and a client.
const PROXY: &str = "10.0.0.7";
const STRANGER: &str = "192.0.2.1";
const CLIENT: &str = "203.0.113.9";

/// Lines up to which the naive reader and ours look at all of them.
const LINES: usize = 16;

static TRUSTED: LazyLock<NetworkSet<()>> = LazyLock::new(|| {
    let networks = ["10.0.0.0/8", "fd00::/8"].map(|text| (parse_network(text).expect("one"), ()));
    NetworkSet::new(networks).expect("two networks")
});

static TRUSTS: LazyLock<[ProxyTrust; 3]> = LazyLock::new(|| {
    ["x-forwarded-for", "forwarded", "x-real-ip"]
        .map(|name| ProxyTrust::new(TRUSTED.clone(), ProxyTrustHeader::named(name)))
});

fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    let lines: Vec<&[u8]> = rest.split(|byte| *byte == b'\n').collect();
    match which % 3 {
        0 => check_list(&TRUSTS[0], "x-forwarded-for", &lines, naive_hop),
        1 => check_list(&TRUSTS[1], "forwarded", &lines, naive_element),
        _ => {
            let found = address(&TRUSTS[2], "x-real-ip", PROXY, &lines);
            let expected = match lines[..] {
                [line] => naive_hop(&text(line)).unwrap_or(ip(PROXY)),
                _ => ip(PROXY),
            };
            assert_eq!(found, expected);
        }
    }
});

fn check_list(trust: &ProxyTrust, name: &str, lines: &[&[u8]], naive: fn(&str) -> Option<IpAddr>) {
    let found = address(trust, name, PROXY, lines);
    assert_eq!(found, found.to_canonical());
    assert_eq!(address(trust, name, STRANGER, lines), ip(STRANGER), "it is not believed");
    let appended = match name {
        "forwarded" => format!(", for={CLIENT}, for={PROXY}"),
        _ => format!(", {CLIENT}, {PROXY}"),
    };
    let mut longer = lines.to_vec();
    let last = [longer.pop().unwrap_or_default(), appended.as_bytes()].concat();
    longer.push(&last);
    assert_eq!(address(trust, name, PROXY, &longer), ip(CLIENT), "what a proxy appends counts");
    // Quoted strings are what makes it hard; the naive reader knows none.
    let all = lines.join(&b","[..]);
    let is_short =
        lines.len() <= LINES && all.split(|byte| *byte == b',').count() <= PROXY_HOPS_MAX;
    if is_short && !(name == "forwarded" && all.contains(&b'"')) {
        assert_eq!(found, naive_walk(&all, naive));
    }
}

fn naive_walk(all: &[u8], naive: fn(&str) -> Option<IpAddr>) -> IpAddr {
    let mut client = ip(PROXY);
    for item in all.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
        if item.is_empty() {
            continue;
        }
        let Some(address) = naive(&text(item)) else { break };
        client = address;
        if !TRUSTED.has(client) {
            break;
        }
    }
    client
}

fn naive_hop(item: &str) -> Option<IpAddr> {
    let address = item
        .parse()
        .ok()
        .or_else(|| Some(IpAddr::V4(*item.parse::<SocketAddrV4>().ok()?.ip())))
        .or_else(|| {
            let (inside, port) = item.strip_prefix('[')?.split_once(']')?;
            let address = inside.parse::<Ipv6Addr>().ok()?;
            (port.is_empty() || is_naive_port(port.strip_prefix(':')?)).then_some(address.into())
        })
        .or_else(|| {
            let (address, port) = item.split_once(':')?;
            is_naive_port(port).then(|| address.parse().ok().map(IpAddr::V4)).flatten()
        })?;
    // Longer than any address with its port.
    (item.len() <= 64).then(|| address.to_canonical())
}

fn is_naive_port(port: &str) -> bool {
    let digits = port.chars().filter(char::is_ascii_digit).count();
    let is_hidden = |name: &str| {
        name.chars().all(|it| it.is_ascii_alphanumeric() || "._-".contains(it)) && !name.is_empty()
    };
    (digits == port.len() && (1..=5).contains(&digits))
        || port.strip_prefix('_').is_some_and(is_hidden)
}

/// An element without quotes.
fn naive_element(item: &str) -> Option<IpAddr> {
    let pairs = item.split(';').map(|pair| pair.trim_ascii()).filter(|pair| !pair.is_empty());
    let pairs: Option<Vec<_>> = pairs.map(|pair| pair.split_once('=')).collect();
    let mut of_client = pairs?.into_iter().filter(|(name, _)| name.eq_ignore_ascii_case("for"));
    match (of_client.next(), of_client.next()) {
        (Some((_, value)), None) => naive_hop(value),
        _ => None,
    }
}

fn address(trust: &ProxyTrust, name: &str, peer: &str, lines: &[&[u8]]) -> IpAddr {
    trust.client_address(ip(peer), lines.iter().map(|line| (name, *line)))
}

fn text(item: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(item.trim_ascii())
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}
