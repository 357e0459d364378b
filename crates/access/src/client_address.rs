//! The client's address behind proxies that are trusted.
//!
//! A proxy appends to a header the address that it was called from. Only the end of such a list was
//! written by a proxy of ours; what stands before it was sent by the client, and may say anything. So the
//! list is walked from its end, beginning with the peer of the connection, and the first address that is
//! no trusted proxy is the client's. What cannot be understood on the way (`unknown`, `_hidden`, nonsense)
//! ends the walk, and the last address that was understood counts.
//!
//! ```text
//! x-forwarded-for: 6.6.6.6, 203.0.113.9, 10.0.0.7      peer 10.0.0.1, trusted 10.0.0.0/8
//!                  said by  └ the client └ trusted ──────── trusted
//!                  the client
//! ```
//!
//! Several lines of one header are one list, in the order in which they came.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::networks::NetworkSet;

/// Addresses that are looked at in one head, the peer's apart. If more proxies than that are trusted, the
/// last one that was looked at counts as the client.
pub const PROXY_HOPS_MAX: usize = 32;
/// Lines of one header that are looked at: the last ones. With more, those before them count as unknown.
const LINES_MAX: usize = 16;
/// Longest address of a hop, in bytes: an IPv6 address in full with an IPv4 tail, brackets and a port.
const HOP_BYTES_MAX: usize = 64;

/// The header in which trusted proxies name their client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ProxyTrustHeader {
    /// `X-Forwarded-For`: addresses, each proxy appending one.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239): the member `for` of each element.
    Forwarded,
    /// A header with one address that the outermost proxy sets, such as `cf-connecting-ip`, in lower case.
    Single(Box<str>),
}

impl ProxyTrustHeader {
    /// The header of this name. Every name but those of the two lists is one with a single address.
    pub fn named(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "x-forwarded-for" => Self::XForwardedFor,
            "forwarded" => Self::Forwarded,
            name => Self::Single(name.into()),
        }
    }

    /// Its name, in lower case.
    pub fn name(&self) -> &str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
            Self::Single(name) => name,
        }
    }
}

/// Which proxies are believed, and which of their headers; by default no proxy is.
#[derive(Debug, Clone, Default)]
pub struct ProxyTrust {
    trusted: NetworkSet<()>,
    header: ProxyTrustHeader,
}

impl ProxyTrust {
    /// Believes this header where proxies of these networks wrote it.
    pub fn new(trusted: NetworkSet<()>, header: ProxyTrustHeader) -> Self {
        Self { trusted, header }
    }

    /// Whether the other end of a connection is a trusted proxy. Only then may anything that it says of
    /// its client be believed, also a PROXY protocol header.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        !self.trusted.is_empty() && self.trusted.has(peer)
    }

    /// Collects the header, for a caller that walks over the fields of a head in their order.
    pub(crate) fn lines<'t, 'a>(&'t self, peer: IpAddr) -> ForwardingLines<'t, 'a> {
        let peer = peer.to_canonical();
        ForwardingLines {
            trust: self,
            peer,
            is_trusted: self.trusts(peer),
            lines: [&[]; LINES_MAX],
            count: 0,
        }
    }
}

/// The lines of the header, as the fields of a head are walked over.
#[derive(Debug)]
pub(crate) struct ForwardingLines<'t, 'a> {
    trust: &'t ProxyTrust,
    peer: IpAddr,
    is_trusted: bool,
    /// A ring: the line `n` is at `n % LINES_MAX`.
    lines: [&'a [u8]; LINES_MAX],
    count: usize,
}

impl<'a> ForwardingLines<'_, 'a> {
    /// Looks at one field.
    #[inline]
    pub(crate) fn read(&mut self, name: &str, value: &'a [u8]) {
        if self.is_trusted && name.eq_ignore_ascii_case(self.trust.header.name()) {
            self.lines[self.count % LINES_MAX] = value;
            self.count += 1;
        }
    }

    /// The client's address, when all fields were looked at.
    pub(crate) fn client_address(&self) -> IpAddr {
        if !self.is_trusted || self.count == 0 {
            return self.peer;
        }
        match self.trust.header {
            ProxyTrustHeader::XForwardedFor => self.walk(|line| rsplit_comma(line), hop),
            ProxyTrustHeader::Forwarded => self.walk(|line| rsplit_element(line), forwarded_for),
            ProxyTrustHeader::Single(_) => match self.count {
                1 => hop(self.lines[0].trim_ascii()).unwrap_or(self.peer),
                // The proxy did not replace what the client sent: one of them is made up.
                _ => self.peer,
            },
        }
    }

    /// Walks from the end of the last line to the first hop that is not trusted.
    fn walk(
        &self,
        rsplit: fn(&'a [u8]) -> LastItem<'a>,
        read: fn(&'a [u8]) -> Option<IpAddr>,
    ) -> IpAddr {
        let (mut client, mut hops) = (self.peer, 0);
        let oldest = self.count.saturating_sub(LINES_MAX);
        for line in (oldest..self.count).rev() {
            let mut rest = Some(self.lines[line % LINES_MAX]);
            while let Some(text) = rest {
                let (before, item) = rsplit(text);
                rest = before;
                hops += 1;
                if hops > PROXY_HOPS_MAX {
                    return client;
                }
                let item = item.trim_ascii();
                // RFC 9110 lets lists have empty items, which mean nothing.
                if item.is_empty() {
                    continue;
                }
                let Some(address) = read(item) else { return client };
                client = address;
                if !self.trust.trusted.has(client) {
                    return client;
                }
            }
        }
        client
    }
}

/// What stands before the last comma of a list, if there is one, and behind it.
type LastItem<'a> = (Option<&'a [u8]>, &'a [u8]);

fn rsplit_comma(text: &[u8]) -> LastItem<'_> {
    match text.iter().rposition(|byte| *byte == b',') {
        Some(comma) => (Some(&text[..comma]), &text[comma + 1..]),
        None => (None, text),
    }
}

/// As [`rsplit_comma`], commas in quoted strings left out. A quote without its other half is in the item
/// that it ends, and makes it one that cannot be understood; what stands behind it is read all the same,
/// so that a client cannot hide what a proxy appended by opening a quote.
fn rsplit_element(text: &[u8]) -> LastItem<'_> {
    let mut end = text.len();
    while let Some(place) = text[..end].iter().rposition(|byte| matches!(byte, b',' | b'"')) {
        if text[place] == b',' {
            return (Some(&text[..place]), &text[place + 1..]);
        }
        end = opening_quote(&text[..place]).unwrap_or(place);
    }
    (None, text)
}

/// Where the last quote of `text` is that has no backslash before it.
fn opening_quote(text: &[u8]) -> Option<usize> {
    let mut end = text.len();
    loop {
        let quote = text[..end].iter().rposition(|byte| *byte == b'"')?;
        let slashes = text[..quote].iter().rev().take_while(|byte| **byte == b'\\').count();
        if slashes % 2 == 0 {
            return Some(quote);
        }
        end = quote;
    }
}

/// The address in the member `for` of one element of `Forwarded`.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let (mut found, mut rest) = (None, element);
    while !rest.is_empty() {
        let (pair, behind) = split_pair(rest)?;
        rest = behind;
        let pair = pair.trim_ascii();
        if pair.is_empty() {
            continue;
        }
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        if pair[..equals].eq_ignore_ascii_case(b"for")
            && found.replace(&pair[equals + 1..]).is_some()
        {
            return None;
        }
    }
    let value = found?;
    match value.strip_prefix(b"\"") {
        // No address has a character that needs a backslash.
        Some(quoted) => hop(quoted.strip_suffix(b"\"")?),
        None => hop(value),
    }
}

/// Up to the first `;` that is not quoted, and what stands behind it. `None` if a quote is not closed.
fn split_pair(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (place, byte) in text.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b';' if !is_quoted => return Some((&text[..place], &text[place + 1..])),
            _ => {}
        }
    }
    (!is_quoted).then_some((text, &[]))
}

/// An address as proxies write it: alone, with a port, an IPv6 one also in brackets. `None` for
/// `unknown`, `_hidden` and whatever else.
fn hop(text: &[u8]) -> Option<IpAddr> {
    if text.len() > HOP_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    let address = if let Some(inner) = text.strip_prefix('[') {
        let (inner, port) = inner.split_once(']')?;
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        IpAddr::V6(inner.parse::<Ipv6Addr>().ok().filter(|_| is_port)?)
    } else if let Ok(address) = text.parse::<IpAddr>() {
        address
    } else if let Ok(SocketAddr::V4(address)) = text.parse::<SocketAddr>() {
        IpAddr::V4(*address.ip())
    } else {
        let (address, port) = text.split_once(':')?;
        IpAddr::V4(address.parse::<Ipv4Addr>().ok().filter(|_| is_port(port))?)
    };
    Some(address.to_canonical())
}

/// Digits, or a hidden port of RFC 7239.
fn is_port(text: &str) -> bool {
    let is_number = !text.is_empty() && text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit());
    let hidden = text.strip_prefix('_').filter(|rest| !rest.is_empty());
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    is_number || hidden.is_some_and(|rest| rest.bytes().all(is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks::parse_network;
    use proptest::prelude::*;

    fn trust(header: &str) -> ProxyTrust {
        let networks = ["10.0.0.0/8", "fd00::/8"].map(|text| (parse_network(text).unwrap(), ()));
        ProxyTrust::new(NetworkSet::new(networks).unwrap(), ProxyTrustHeader::named(header))
    }

    fn client_address<'a>(
        trust: &ProxyTrust,
        peer: IpAddr,
        fields: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> IpAddr {
        let mut lines = trust.lines(peer);
        fields.into_iter().for_each(|(name, value)| lines.read(name, value));
        lines.client_address()
    }

    /// Lines of the head are divided by `|`; other fields stand around them.
    fn address(header: &str, peer: &str, lines: &str) -> IpAddr {
        let lines = lines.split('|').filter(|line| !line.is_empty());
        let name = header.to_ascii_uppercase();
        let fields = lines.map(|line| (name.as_str(), line.as_bytes()));
        let fields = fields.chain([("x-other", &b"6.6.6.6"[..])]);
        client_address(&trust(header), peer.parse().unwrap(), fields)
    }

    #[track_caller]
    fn check(header: &str, peer: &str, lines: &str, want: &str) {
        let got = address(header, peer, lines);
        assert_eq!(got.to_string(), want, "{header}: {lines} from {peer}");
    }

    #[track_caller]
    fn xff(lines: &str, want: &str) {
        check("x-forwarded-for", "10.0.0.1", lines, want);
    }

    #[track_caller]
    fn forwarded(lines: &str, want: &str) {
        check("forwarded", "10.0.0.1", lines, want);
    }

    #[test]
    fn from_a_peer_that_is_not_trusted_no_header_counts() {
        for header in ["x-forwarded-for", "cf-connecting-ip"] {
            check(header, "192.0.2.1", "203.0.113.9", "192.0.2.1");
            check(header, "::ffff:192.0.2.1", "203.0.113.9", "192.0.2.1");
            check(header, "2001:db8::1", "203.0.113.9", "2001:db8::1");
        }
        check("forwarded", "192.0.2.1", "for=203.0.113.9", "192.0.2.1");
        let peer = "10.0.0.1".parse().unwrap();
        let fields = [("x-forwarded-for", &b"203.0.113.9"[..])];
        assert_eq!(client_address(&ProxyTrust::default(), peer, fields), peer);
        assert_eq!(client_address(&trust("forwarded"), peer, fields), peer);
    }

    #[test]
    fn the_first_hop_from_the_right_that_is_not_trusted() {
        xff("", "10.0.0.1");
        xff("203.0.113.9", "203.0.113.9");
        xff("6.6.6.6, 203.0.113.9", "203.0.113.9");
        xff("6.6.6.6, 203.0.113.9, 10.0.0.7", "203.0.113.9");
        xff("6.6.6.6,203.0.113.9,10.0.0.7,10.0.0.8", "203.0.113.9");
        xff("10.0.0.9, 203.0.113.9, 10.0.0.7", "203.0.113.9");
        xff("10.0.0.9, 10.0.0.7", "10.0.0.9");
        xff("10.0.0.9", "10.0.0.9");
        xff("2001:db8::1, fd00::7", "2001:db8::1");
        check("x-forwarded-for", "::ffff:10.0.0.1", "203.0.113.9", "203.0.113.9");
        check("x-forwarded-for", "fd00::1", "203.0.113.9", "203.0.113.9");
        check("X-Forwarded-For", "10.0.0.1", "203.0.113.9", "203.0.113.9");
    }

    #[test]
    fn several_lines_are_one_list() {
        xff("6.6.6.6|203.0.113.9", "203.0.113.9");
        xff("6.6.6.6, 203.0.113.9|10.0.0.7", "203.0.113.9");
        xff("203.0.113.9|10.0.0.7|10.0.0.8", "203.0.113.9");
        xff("203.0.113.9| ", "203.0.113.9");
        forwarded("for=6.6.6.6|for=203.0.113.9|for=10.0.0.7", "203.0.113.9");
    }

    #[test]
    fn addresses_as_proxies_write_them() {
        xff("203.0.113.9:443", "203.0.113.9");
        xff("  203.0.113.9\t,\t10.0.0.7 ", "203.0.113.9");
        xff("[2001:db8::1]", "2001:db8::1");
        xff("[2001:db8::1]:443", "2001:db8::1");
        xff("2001:db8::1", "2001:db8::1");
        xff("::ffff:203.0.113.9", "203.0.113.9");
        xff("[::ffff:203.0.113.9]:1", "203.0.113.9");
        xff("203.0.113.9, ::ffff:10.0.0.7", "203.0.113.9");
        xff("203.0.113.9:_hidden", "203.0.113.9");
        xff("203.0.113.9,, ,10.0.0.7,", "203.0.113.9");
    }

    #[test]
    fn what_is_not_understood_ends_the_walk() {
        for odd in [
            "unknown",
            "_hidden",
            "UNKNOWN",
            "example.org",
            "203.0.113",
            "203.0.113.999",
            "203.0.113.9:",
            "203.0.113.9:x",
            "203.0.113.9:123456",
            "[2001:db8::1",
            "2001:db8::1]",
            "[2001:db8::1]x",
            "[2001:db8::1]:",
            "[203.0.113.9]",
            "\"203.0.113.9\"",
            "203.0.113.9 x",
            "-",
            "é",
            "fe80::1%eth0",
            "0203.0.113.9",
            "203.0.113.9;",
        ] {
            xff(odd, "10.0.0.1");
            xff(&format!("203.0.113.9, {odd}"), "10.0.0.1");
            xff(&format!("203.0.113.9, {odd}, 10.0.0.7"), "10.0.0.7");
            xff(&format!("{odd}, 203.0.113.9"), "203.0.113.9");
        }
        xff(&format!("{}1.1.1.1", "0".repeat(100)), "10.0.0.1");
    }

    #[test]
    fn elements_of_forwarded() {
        forwarded("for=203.0.113.9", "203.0.113.9");
        forwarded("For=203.0.113.9;proto=https;by=10.0.0.1", "203.0.113.9");
        forwarded("proto=https; for=203.0.113.9", "203.0.113.9");
        forwarded("for=\"203.0.113.9:443\"", "203.0.113.9");
        forwarded("for=\"[2001:db8::1]\"", "2001:db8::1");
        forwarded("for=\"[2001:db8::1]:443\";proto=https", "2001:db8::1");
        forwarded("for=6.6.6.6, for=203.0.113.9;host=\"a, b; c\", for=10.0.0.7", "203.0.113.9");
        forwarded("for=6.6.6.6,for=203.0.113.9;host=\"a\\\"b\",for=10.0.0.7", "203.0.113.9");
        forwarded("for=203.0.113.9;", "203.0.113.9");
        forwarded(";;for=203.0.113.9", "203.0.113.9");
        forwarded(", ,for=203.0.113.9,,", "203.0.113.9");
    }

    #[test]
    fn elements_of_forwarded_that_are_not_understood() {
        for odd in [
            "for=unknown",
            "for=\"_hidden\"",
            "proto=https",
            "for",
            "for=",
            "for=\"\"",
            "=203.0.113.9",
            "for=203.0.113.9;for=203.0.113.8",
            "for=\"203.0.113.9",
            "for=203.0.113.9\"",
            "x",
            "for = 203.0.113.9",
            "for=\"203.0\\.113.9\"",
            "203.0.113.9",
        ] {
            forwarded(odd, "10.0.0.1");
            forwarded(&format!("for=6.6.6.6,{odd},for=10.0.0.7"), "10.0.0.7");
        }
        // Hidden names are for the client's own proxies to know.
        forwarded("for=6.6.6.6, for=_secret, for=10.0.0.7", "10.0.0.7");
    }

    #[test]
    fn a_client_cannot_hide_what_a_proxy_appends() {
        forwarded("for=\"6.6.6.6, for=203.0.113.9", "203.0.113.9");
        forwarded("for=\"6.6.6.6, for=\"203.0.113.9\"", "203.0.113.9");
        forwarded("\\\", for=203.0.113.9", "203.0.113.9");
        forwarded("for=\"6.6.6.6\\, for=\"203.0.113.9\", for=10.0.0.7", "203.0.113.9");
        forwarded("for=\"|for=203.0.113.9", "203.0.113.9");
        xff("\", 203.0.113.9", "203.0.113.9");
    }

    #[test]
    fn headers_with_one_address() {
        for header in ["cf-connecting-ip", "x-real-ip", "true-client-ip", "fly-client-ip"] {
            check(header, "10.0.0.1", "203.0.113.9", "203.0.113.9");
            check(header, "10.0.0.1", " 2001:db8::1 ", "2001:db8::1");
            check(header, "10.0.0.1", "10.0.0.7", "10.0.0.7");
            check(header, "10.0.0.1", "203.0.113.9, 203.0.113.8", "10.0.0.1");
            check(header, "10.0.0.1", "203.0.113.9|203.0.113.8", "10.0.0.1");
            check(header, "10.0.0.1", "unknown", "10.0.0.1");
            check(header, "10.0.0.1", "", "10.0.0.1");
        }
    }

    #[test]
    fn the_walk_is_bounded() {
        let hops = |count: usize| vec!["10.0.0.7"; count].join(",");
        xff(&format!("203.0.113.9,{}", hops(31)), "203.0.113.9");
        xff(&format!("203.0.113.9,{}", hops(32)), "10.0.0.7");
        xff(&",".repeat(100), "10.0.0.1");
        let lines = |count: usize| vec!["10.0.0.7"; count].join("|");
        xff(&format!("203.0.113.9|{}", lines(15)), "203.0.113.9");
        xff(&format!("203.0.113.9|{}", lines(16)), "10.0.0.7");
        check("x-real-ip", "10.0.0.1", &lines(17), "10.0.0.1");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(lines: Vec<Vec<u8>>, header in "(x-forwarded-for|forwarded|x-real-ip)") {
            let fields = lines.iter().map(|line| (header.as_str(), line.as_slice()));
            let _ = client_address(&trust(&header), "10.0.0.1".parse().unwrap(), fields);
        }

        #[test]
        fn what_the_client_sends_changes_nothing(said in "[ -~]{0,60}", header in "(x-forwarded-for|forwarded)") {
            let hop = |address: &str| match header.as_str() {
                "forwarded" => format!("for={address}"),
                _ => address.to_owned(),
            };
            let value = format!("{said}, {}, {}", hop("203.0.113.9"), hop("10.0.0.7"));
            let fields = [(header.as_str(), value.as_bytes())];
            let got = client_address(&trust(&header), "10.0.0.1".parse().unwrap(), fields);
            prop_assert_eq!(got.to_string(), "203.0.113.9");
        }
    }
}
