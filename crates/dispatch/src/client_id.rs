//! Which clients count as one.

use std::net::{IpAddr, Ipv4Addr};

/// Clients that count as one, in what flowing answers hold, in the wait queue and in what each was shown:
/// a key or its tenant, an IPv4 address, or the /64 of an IPv6 one, all of which one client can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientId {
    /// One address.
    V4(Ipv4Addr),
    /// The first 64 bits.
    V6(u64),
    /// A key or a tenant, by the hash of its name.
    Named(u64),
}

impl ClientId {
    /// A hash of it, which is one over all replicas. Different clients may share one.
    pub fn number(self) -> u64 {
        // An odd factor spreads neighbours over all bits (Fibonacci hashing).
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        match self {
            Self::V4(address) => u64::from(address.to_bits()).wrapping_mul(SPREAD),
            Self::V6(network) => network.wrapping_mul(SPREAD),
            Self::Named(number) => number,
        }
    }
}

impl From<IpAddr> for ClientId {
    fn from(address: IpAddr) -> Self {
        // A socket for both families sees IPv4 clients as `::ffff:a.b.c.d`.
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6((u128::from(address) >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_are_one_client() {
        let of = |address: &str| ClientId::from(address.parse::<IpAddr>().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.2"), of("192.0.2.1"));
    }
}
