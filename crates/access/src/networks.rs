//! Networks with what is said of each: the longest prefix that has an address counts.
//!
//! Sorted by family, prefix length, longest first, and address. A look-up is one binary search for each
//! length that occurs, so a list of thousands of networks costs a few comparisons more than one of two.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

/// Networks of one set at most. A further one is a problem of the settings.
pub const NETWORKS_MAX: usize = 10_000;

/// The bits of an IPv6 address behind those that name a network, all of whose addresses one client can have.
const SUBJECT_BITS: u32 = 64;
/// `::ffff:0:0/96`: where IPv4 addresses are among those of IPv6.
const MAPPED_BITS: u8 = 96;

/// What counts as one client: an IPv4 address, or the first address of the /64 of an IPv6 one. As the
/// wait queue and the bound on connections of one address count.
pub fn subject_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> SUBJECT_BITS << SUBJECT_BITS))
        }
    }
}

/// Reads a network or an address, which is a network of one. IPv4 networks that are written as IPv6
/// (`::ffff:10.0.0.0/104`) become IPv4.
pub fn parse_network(text: &str) -> Result<IpNet, NetworkTextError> {
    let network = match text.parse::<IpNet>() {
        Ok(network) => network,
        Err(_) => IpNet::from(text.parse::<IpAddr>().map_err(|_| NetworkTextError::NotANetwork)?),
    };
    if network != network.trunc() {
        return Err(NetworkTextError::HostBits { network: network.trunc() });
    }
    let (IpAddr::V6(address), length) = (network.addr(), network.prefix_len()) else {
        return Ok(network);
    };
    match (address.to_ipv4_mapped(), length.checked_sub(MAPPED_BITS)) {
        (Some(address), Some(length)) => {
            Ok(IpNet::new(IpAddr::V4(address), length).expect("128 - 96 is at most 32"))
        }
        (Some(_) | None, _) => Ok(network),
    }
}

/// Why a text is no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetworkTextError {
    /// Neither a network nor an address.
    #[error("neither an address nor a network such as `10.0.0.0/8` or `2001:db8::/32`")]
    NotANetwork,
    /// Bits behind the prefix are set, so that one of the two is not what was meant.
    #[error(
        "there is more in the address than its prefix: for the whole network write `{network}`"
    )]
    HostBits {
        /// The network around it.
        network: IpNet,
    },
}

/// Networks, each with a value.
#[derive(Debug, Clone)]
pub struct NetworkSet<T> {
    /// IPv4 first, then the longest prefix, then by address.
    networks: Vec<(IpNet, T)>,
    lengths: Vec<PrefixLength>,
}

/// A prefix length that occurs, in the order of the networks.
#[derive(Debug, Clone, Copy)]
struct PrefixLength {
    is_ipv4: bool,
    length: u8,
    /// Where its networks end.
    end: usize,
}

impl<T> Default for NetworkSet<T> {
    fn default() -> Self {
        Self { networks: Vec::new(), lengths: Vec::new() }
    }
}

impl<T> NetworkSet<T> {
    /// A set of these. All problems are collected: a network that is there twice, and too many of them.
    pub fn new(
        networks: impl IntoIterator<Item = (IpNet, T)>,
    ) -> Result<Self, Vec<NetworkSetError>> {
        let networks = networks.into_iter().map(|(network, value)| (network.trunc(), value));
        let mut networks: Vec<_> = networks.collect();
        let mut problems = Vec::new();
        if networks.len() > NETWORKS_MAX {
            problems.push(NetworkSetError::TooMany { networks: networks.len() });
            networks.truncate(NETWORKS_MAX);
        }
        networks.sort_by_key(|(it, _)| (it.addr().is_ipv6(), u8::MAX - it.prefix_len(), it.addr()));
        let twice = networks.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        problems.extend(twice.map(|pair| NetworkSetError::Twice { network: pair[0].0 }));
        if !problems.is_empty() {
            return Err(problems);
        }
        let kind = |network: &IpNet| (network.addr().is_ipv4(), network.prefix_len());
        let mut end = 0;
        let lengths =
            networks.chunk_by(|(one, _), (next, _)| kind(one) == kind(next)).map(|alike| {
                let (is_ipv4, length) = kind(&alike[0].0);
                end += alike.len();
                PrefixLength { is_ipv4, length, end }
            });
        let lengths = lengths.collect();
        Ok(Self { networks, lengths })
    }

    /// What is said of the smallest network that has the address. `None` if no network has it.
    pub fn get(&self, address: IpAddr) -> Option<&T> {
        let address = address.to_canonical();
        let mut start = 0;
        for PrefixLength { is_ipv4, length, end } in &self.lengths {
            let networks = &self.networks[start..*end];
            start = *end;
            if *is_ipv4 != address.is_ipv4() {
                continue;
            }
            let around = IpNet::new(address, *length).expect("a network of its family has it");
            if let Ok(place) = networks.binary_search_by_key(&around.trunc(), |(it, _)| *it) {
                return Some(&networks[place].1);
            }
        }
        None
    }

    /// Whether a network of the set has the address.
    pub fn has(&self, address: IpAddr) -> bool {
        self.get(address).is_some()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }
}

/// What is wrong with a set of networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetworkSetError {
    /// More than [`NETWORKS_MAX`].
    #[error("{networks} networks, of which at most {NETWORKS_MAX} can be named")]
    TooMany {
        /// How many there are.
        networks: usize,
    },
    /// One network is named twice, and could mean two things.
    #[error("the network `{network}` is there twice")]
    Twice {
        /// Which.
        network: IpNet,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(networks: &str) -> NetworkSet<String> {
        let networks = networks.split_whitespace();
        let parse = |text: &str| (parse_network(text).unwrap(), text.to_owned());
        NetworkSet::new(networks.map(parse)).unwrap()
    }

    #[track_caller]
    fn check(networks: &str, address: &str, want: &str) {
        let set = set(networks);
        let found = set.get(address.parse().unwrap()).map_or("", String::as_str);
        assert_eq!(found, want, "{address} in {networks}");
    }

    #[test]
    fn the_longest_prefix_counts() {
        let networks = "0.0.0.0/0 10.0.0.0/8 10.1.0.0/16 10.1.2.0/24 10.1.2.3 192.0.2.0/24";
        check(networks, "10.1.2.3", "10.1.2.3");
        check(networks, "10.1.2.4", "10.1.2.0/24");
        check(networks, "10.1.3.1", "10.1.0.0/16");
        check(networks, "10.2.0.1", "10.0.0.0/8");
        check(networks, "192.0.2.255", "192.0.2.0/24");
        check(networks, "192.0.3.0", "0.0.0.0/0");
        check("10.0.0.0/8", "11.0.0.0", "");
        check("", "10.0.0.1", "");
    }

    #[test]
    fn families_do_not_mix() {
        check("::/0", "10.0.0.1", "");
        check("0.0.0.0/0", "2001:db8::1", "");
        check("2001:db8::/32 2001:db8:1::/48", "2001:db8:1::1", "2001:db8:1::/48");
        check("2001:db8::/32 2001:db8:1::/48", "2001:db8:2::1", "2001:db8::/32");
        check("::/0 ::1", "::1", "::1");
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        check("10.0.0.0/8 ::/0", "::ffff:10.0.0.1", "10.0.0.0/8");
        check("::ffff:10.0.0.0/104", "10.0.0.1", "::ffff:10.0.0.0/104");
        check("::ffff:10.0.0.1", "10.0.0.1", "::ffff:10.0.0.1");
        assert_eq!(parse_network("::ffff:10.0.0.0/104"), parse_network("10.0.0.0/8"));
    }

    #[test]
    fn what_is_no_network_says_why() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "example.org", "10.0.0.0/-1", " ::1"]
        {
            assert_eq!(parse_network(text), Err(NetworkTextError::NotANetwork), "{text}");
        }
        let problem = parse_network("10.1.2.3/8").unwrap_err().to_string();
        assert!(problem.ends_with("write `10.0.0.0/8`"), "{problem}");
    }

    #[test]
    fn all_problems_of_a_set_are_told() {
        let parse = |text: &str| (parse_network(text).unwrap(), ());
        let twice = ["10.0.0.0/8", "::1", "10.0.0.0/8", "::1/128", "10.0.0.0/9"].map(parse);
        let problems = NetworkSet::new(twice).unwrap_err();
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            ["the network `10.0.0.0/8` is there twice", "the network `::1/128` is there twice"]
        );
        let many = |count: u32| (0..count).map(|it| (IpNet::from(IpAddr::V4(it.into())), ()));
        assert_eq!(NetworkSet::new(many(10_000)).unwrap().networks.len(), 10_000);
        let problems = NetworkSet::new(many(10_002)).unwrap_err();
        assert_eq!(problems, [NetworkSetError::TooMany { networks: 10_002 }]);
    }

    #[test]
    fn a_subject_is_an_address_or_a_slash_64() {
        let of = |address: &str| subject_of(address.parse().unwrap()).to_string();
        assert_eq!(of("192.0.2.1"), "192.0.2.1");
        assert_eq!(of("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }

    proptest! {
        #[test]
        fn agrees_with_the_obvious_way(
            networks in proptest::collection::btree_set((0_u32..16, 24_u8..=32), 0..40),
            address in 0_u32..16,
        ) {
            // Addresses that differ in their last byte, so that networks are nested.
            let network = |(bits, length): (u32, u8)| IpNet::new(IpAddr::V4(bits.into()), length).unwrap().trunc();
            let networks: std::collections::BTreeSet<_> = networks.into_iter().map(network).collect();
            let address = IpAddr::V4(address.into());
            let having = networks.iter().filter(|network| network.contains(&address));
            let want = having.max_by_key(|network| network.prefix_len());
            let set = NetworkSet::new(networks.iter().map(|network| (*network, *network))).unwrap();
            prop_assert_eq!(set.get(address), want);
        }
    }
}
