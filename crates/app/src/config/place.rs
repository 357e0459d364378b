//! Where an address or URL leads: to ourselves, to a private place, to the internet.
//!
//! Judged from the text alone; no name is looked up.

use std::net::{IpAddr, SocketAddr};

use url::{Host, Url};

/// Whether both cannot be listened at.
pub(super) fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let any = a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || any)
}

/// Whether `url` leads to a listener of this machine at `listen`.
pub(super) fn reaches(url: &Url, listen: SocketAddr) -> bool {
    let local = match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(ip)) => is_here(IpAddr::V4(ip), listen.ip()),
        Some(Host::Ipv6(ip)) => is_here(IpAddr::V6(ip), listen.ip()),
        None => false,
    };
    local && listen.port() != 0 && url.port_or_known_default() == Some(listen.port())
}

/// Whether a connection to `ip` on this machine reaches a listener at `listen`.
fn is_here(ip: IpAddr, listen: IpAddr) -> bool {
    ip == listen || ip.is_unspecified() || (ip.is_loopback() && listen.is_unspecified())
}

/// Whether `url` leads to this machine, whatever its addresses are.
pub(crate) fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// A place that is not reached over the internet, as far as its name tells.
pub(super) fn is_private(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            !name.contains('.')
                || [".local", ".internal", ".svc", ".lan", ".localhost", ".test", ".invalid"]
                    .iter()
                    .any(|end| name.ends_with(end) || name.contains(&format!("{end}.")))
        }
        Some(Host::Ipv4(ip)) => {
            let carrier = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            ip.is_loopback() || ip.is_private() || ip.is_link_local() || carrier
        }
        Some(Host::Ipv6(ip)) => {
            ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
        }
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_meet() {
        for (a, b, meet) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
            assert_eq!(overlap(address(a), address(b)), meet, "{a} {b}");
        }
    }

    #[test]
    fn places_of_this_machine() {
        for (url, local) in [
            ("http://localhost:9", true),
            ("http://keys.localhost", true),
            ("http://127.9.9.9", true),
            ("http://[::1]", true),
            ("http://[::ffff:127.0.0.1]", true),
            ("http://[::ffff:8.8.8.8]", false),
            ("http://localhost.example.com", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(is_local(&Url::parse(url).expect("a URL")), local, "{url}");
        }
    }

    #[test]
    fn private_places() {
        for (url, private) in [
            ("http://geth:8545", true),
            ("http://geth.eth.svc.cluster.local:8545", true),
            ("http://10.1.2.3", true),
            ("http://100.64.0.1", true),
            ("http://[::1]:8545", true),
            ("http://8.8.8.8", false),
            ("http://eth.example.com", false),
        ] {
            assert_eq!(is_private(&Url::parse(url).expect("a URL")), private, "{url}");
        }
    }
}
