//! The PROXY protocol, versions 1 and 2: what a TCP proxy says of its client before the first byte of it.
//!
//! A parser of bytes: the listener decides whether the peer is believed (`ProxyTrust::trusts`) and how long
//! it waits for the header. Type-length-values of version 2 are skipped; so are the addresses of other
//! families than TCP over IPv4 and IPv6, for which the address of the socket stands.
//!
//! Source: <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>, sections 2.1 and 2.2.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest header of version 1, its line end included (section 2.1).
pub const PROXY_V1_BYTES_MAX: usize = 107;
/// Bytes that follow the fixed part of version 2: more than any proxy sends unless it passes client
/// certificates on. A longer header is refused.
pub const PROXY_V2_REST_BYTES_MAX: usize = 512;
/// Longest header of either version: what a listener has to have room for.
pub const PROXY_HEADER_BYTES_MAX: usize = V2_FIXED_BYTES + PROXY_V2_REST_BYTES_MAX;

const V1_SIGNATURE: &[u8] = b"PROXY ";
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The signature, version and command, family and protocol, length of the rest.
const V2_FIXED_BYTES: usize = 16;

/// A whole header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The client of the proxy, an IPv4 address never written as IPv6. `None` where the proxy speaks for
    /// itself (LOCAL), does not know (UNKNOWN), or names another kind of address: the address of the socket
    /// stands.
    pub source: Option<SocketAddr>,
    /// What the client connected to, wherever there is a `source`.
    pub destination: Option<SocketAddr>,
    /// Bytes of the header: the connection begins behind them.
    pub len: usize,
}

/// Why there is no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    /// What is there may become one. Never of [`PROXY_HEADER_BYTES_MAX`] bytes or more.
    #[error("the PROXY header is not complete")]
    Incomplete,
    /// It begins like something else.
    #[error("the connection does not begin with a PROXY header")]
    Missing,
    /// It begins like one, and is none.
    #[error("the PROXY header is malformed")]
    Malformed,
    /// It is longer than is allowed.
    #[error("the PROXY header is too long")]
    TooLong,
}

impl ProxyHeader {
    /// Reads a header at the beginning of a connection. Bytes that follow it are not looked at.
    ///
    /// What is said of bytes holds when more follow them, unless it is `Incomplete`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProxyHeaderError> {
        if begins_like(bytes, V2_SIGNATURE) {
            return parse_v2(bytes);
        }
        if begins_like(bytes, V1_SIGNATURE) {
            return parse_v1(bytes);
        }
        Err(ProxyHeaderError::Missing)
    }
}

/// Whether the bytes begin with the signature, or are its beginning.
fn begins_like(bytes: &[u8], signature: &[u8]) -> bool {
    let common = bytes.len().min(signature.len());
    bytes[..common] == signature[..common]
}

fn parse_v1(bytes: &[u8]) -> Result<ProxyHeader, ProxyHeaderError> {
    let line = &bytes[..bytes.len().min(PROXY_V1_BYTES_MAX)];
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        let is_full = line.len() == PROXY_V1_BYTES_MAX;
        return Err(if is_full { ProxyHeaderError::TooLong } else { ProxyHeaderError::Incomplete });
    };
    let line = line[..end].strip_suffix(b"\r").ok_or(ProxyHeaderError::Malformed)?;
    let words = line.strip_prefix(V1_SIGNATURE).ok_or(ProxyHeaderError::Malformed)?;
    let len = end + 1;
    // Whatever stands behind UNKNOWN is to be ignored.
    if words == b"UNKNOWN" || words.starts_with(b"UNKNOWN ") {
        return Ok(ProxyHeader { source: None, destination: None, len });
    }
    let words = std::str::from_utf8(words).map_err(|_| ProxyHeaderError::Malformed)?;
    let (source, destination) = v1_addresses(words).ok_or(ProxyHeaderError::Malformed)?;
    Ok(ProxyHeader { source: Some(source), destination: Some(destination), len })
}

/// `TCP4 192.0.2.1 192.0.2.2 56324 443`.
fn v1_addresses(words: &str) -> Option<(SocketAddr, SocketAddr)> {
    let mut words = words.split(' ');
    let [family, source, destination, source_port, destination_port] =
        std::array::from_fn(|_| words.next().unwrap_or_default());
    if words.next().is_some() {
        return None;
    }
    let address = |text: &str| match family {
        "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => None,
    };
    let source = socket(address(source)?, v1_port(source_port)?);
    Some((source, socket(address(destination)?, v1_port(destination_port)?)))
}

/// Digits alone, no zero in front.
fn v1_port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_zero = text.len() > 1 && text.starts_with('0');
    text.parse().ok().filter(|_| is_plain && !has_zero)
}

fn parse_v2(bytes: &[u8]) -> Result<ProxyHeader, ProxyHeaderError> {
    let fixed = bytes.get(V2_SIGNATURE.len()..);
    let &[command, family, high, low, ref rest @ ..] = fixed.unwrap_or_default() else {
        return Err(ProxyHeaderError::Incomplete);
    };
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(ProxyHeaderError::Malformed),
    };
    let rest_bytes = usize::from(u16::from_be_bytes([high, low]));
    if rest_bytes > PROXY_V2_REST_BYTES_MAX {
        return Err(ProxyHeaderError::TooLong);
    }
    let rest = rest.get(..rest_bytes);
    let header = |source, destination| {
        let len = V2_FIXED_BYTES + rest_bytes;
        rest.map(|_| ProxyHeader { source, destination, len }).ok_or(ProxyHeaderError::Incomplete)
    };
    // A health check of the proxy itself: the family is to be ignored.
    if is_local {
        return header(None, None);
    }
    let address_bytes = match family {
        0x11 => 12,
        0x21 => 36,
        // Unspecified, over UDP, or Unix sockets: nothing that a TCP connection could come from.
        0x00..=0x02 | 0x10 | 0x12 | 0x20 | 0x22 | 0x30..=0x32 => return header(None, None),
        _ => return Err(ProxyHeaderError::Malformed),
    };
    if rest_bytes < address_bytes {
        return Err(ProxyHeaderError::Malformed);
    }
    let addresses = rest.ok_or(ProxyHeaderError::Incomplete)?;
    let (source, destination) = match address_bytes {
        12 => v2_addresses(addresses, |bytes: [u8; 4]| IpAddr::from(bytes)),
        _ => v2_addresses(addresses, |bytes: [u8; 16]| IpAddr::from(bytes)),
    }
    .ok_or(ProxyHeaderError::Malformed)?;
    header(Some(source), Some(destination))
}

/// Two addresses of `N` bytes, then two ports.
fn v2_addresses<const N: usize>(
    bytes: &[u8],
    address: impl Fn([u8; N]) -> IpAddr,
) -> Option<(SocketAddr, SocketAddr)> {
    let (source, bytes) = bytes.split_first_chunk::<N>()?;
    let (destination, bytes) = bytes.split_first_chunk::<N>()?;
    let (source_port, bytes) = bytes.split_first_chunk::<2>()?;
    let (destination_port, _) = bytes.split_first_chunk::<2>()?;
    let source = socket(address(*source), u16::from_be_bytes(*source_port));
    Some((source, socket(address(*destination), u16::from_be_bytes(*destination_port))))
}

fn socket(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address.to_canonical(), port)
}

#[cfg(test)]
mod tests {
    use super::ProxyHeaderError::{Incomplete, Malformed, Missing, TooLong};
    use super::*;

    /// What is read, with a request behind it: `source destination`, or `-` for the socket's.
    #[track_caller]
    fn check(bytes: &[u8], want: Result<&str, ProxyHeaderError>) {
        let shown = bytes.escape_ascii();
        let got = ProxyHeader::parse(&[bytes, b"POST / HTTP/1.1\r\n"].concat());
        let text = got.map(|header| {
            assert_eq!(header.len, bytes.len(), "{shown}");
            match (header.source, header.destination) {
                (Some(source), Some(destination)) => format!("{source} {destination}"),
                (None, None) => "-".to_owned(),
                (Some(_), None) | (None, Some(_)) => panic!("one of two addresses: {shown}"),
            }
        });
        assert_eq!(text, want.map(str::to_owned), "{shown}");
        // Every beginning waits for more, or says already what the whole says.
        for cut in 0..bytes.len() {
            match (ProxyHeader::parse(&bytes[..cut]), got) {
                (Err(Incomplete), _) => {}
                (Err(early), Err(late)) => assert_eq!(early, late, "{shown} at {cut}"),
                (early, late) => panic!("{shown} at {cut}: {early:?}, then {late:?}"),
            }
        }
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&V2_SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    const V4: [u8; 12] = [192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 0x04, 0x01, 0xbb];

    fn v6(source: [u8; 16]) -> Vec<u8> {
        let destination = "2001:db8::2".parse::<Ipv6Addr>().unwrap().octets();
        [&source[..], &destination, &[0xdc, 0x04, 0x01, 0xbb]].concat()
    }

    #[test]
    fn version_1() {
        check(b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n", Ok("192.0.2.1:56324 192.0.2.2:443"));
        check(
            b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
            Ok("255.255.255.255:65535 255.255.255.255:65535"),
        );
        check(b"PROXY TCP6 2001:db8::1 2001:db8::2 1 0\r\n", Ok("[2001:db8::1]:1 [2001:db8::2]:0"));
        check(b"PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", Ok("192.0.2.1:1 [::1]:2"));
        let f = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        check(
            format!("PROXY TCP6 {f} {f} 65535 65535\r\n").as_bytes(),
            Ok(&format!("[{f}]:65535 [{f}]:65535")),
        );
        check(b"PROXY UNKNOWN\r\n", Ok("-"));
        check(b"PROXY UNKNOWN 192.0.2.1 whatever \xff\r\n", Ok("-"));
        check(format!("PROXY UNKNOWN {f} {f} 65535 65535\r\n").as_bytes(), Ok("-"));
    }

    #[test]
    fn version_1_malformed() {
        for line in [
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
            "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 -1 2\r\n",
            "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
            "PROXY UNKNOWNX\r\n",
            "PROXY TCP4 192.0.2.1\t192.0.2.2 1 2\r\n",
            "PROXY UNKNOWN\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\r\n",
            "PROXY TCP6 [::1] ::1 1 2\r\n",
            "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        ] {
            check(line.as_bytes(), Err(Malformed));
        }
    }

    #[test]
    fn version_2() {
        check(&v2(0x21, 0x11, &V4), Ok("192.0.2.1:56324 192.0.2.2:443"));
        check(
            &v2(0x21, 0x21, &v6("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets())),
            Ok("[2001:db8::1]:56324 [2001:db8::2]:443"),
        );
        check(
            &v2(0x21, 0x21, &v6("::ffff:192.0.2.1".parse::<Ipv6Addr>().unwrap().octets())),
            Ok("192.0.2.1:56324 [2001:db8::2]:443"),
        );
        // Values behind the addresses, whatever they are.
        check(
            &v2(0x21, 0x11, &[&V4[..], &[4, 0, 1, 0]].concat()),
            Ok("192.0.2.1:56324 192.0.2.2:443"),
        );
        check(
            &v2(0x21, 0x11, &[&V4[..], &[0xee; 500]].concat()),
            Ok("192.0.2.1:56324 192.0.2.2:443"),
        );
    }

    #[test]
    fn version_2_without_an_address_of_use() {
        check(&v2(0x20, 0x00, &[]), Ok("-"));
        check(&v2(0x20, 0x11, &V4), Ok("-"));
        check(&v2(0x20, 0xff, &[1, 2, 3]), Ok("-"));
        check(&v2(0x21, 0x00, &[]), Ok("-"));
        check(&v2(0x21, 0x00, &[3, 0, 0]), Ok("-"));
        check(&v2(0x21, 0x12, &V4), Ok("-"));
        check(&v2(0x21, 0x31, &[0; 216]), Ok("-"));
    }

    #[test]
    fn version_2_malformed() {
        check(&v2(0x22, 0x11, &V4), Err(Malformed));
        check(&v2(0x11, 0x11, &V4), Err(Malformed));
        check(&v2(0x31, 0x11, &V4), Err(Malformed));
        check(&v2(0x21, 0x13, &V4), Err(Malformed));
        check(&v2(0x21, 0x41, &V4), Err(Malformed));
        check(&v2(0x21, 0x11, &V4[..11]), Err(Malformed));
        check(&v2(0x21, 0x11, &[]), Err(Malformed));
        check(&v2(0x21, 0x21, &V4), Err(Malformed));
    }

    #[test]
    fn lengths_are_bounded() {
        check(&v2(0x21, 0x00, &[0; 512]), Ok("-"));
        check(&v2(0x21, 0x00, &[0; 513]), Err(TooLong));
        check(&v2(0x20, 0x00, &[0; 65_535]), Err(TooLong));
        let line = |bytes: usize| format!("PROXY UNKNOWN {}\r\n", "x".repeat(bytes - 16));
        check(line(107).as_bytes(), Ok("-"));
        check(line(108).as_bytes(), Err(TooLong));
        assert_eq!(ProxyHeader::parse(&[b"PROXY ", &[b'x'; 1000][..]].concat()), Err(TooLong));
    }

    #[test]
    fn what_begins_like_something_else() {
        for bytes in [
            &b"POST / HTTP/1.1\r\n"[..],
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"PROPFIND / HTTP/1.1\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            b" PROXY UNKNOWN\r\n",
            b"\r\nPOST / HTTP/1.1\r\n",
            b"\r\n\r\n\0\r\nQUIT\r",
            b"PROXY\tUNKNOWN\r\n",
        ] {
            check(bytes, Err(Missing));
        }
        for bytes in [&b""[..], b"P", b"PROXY", b"\r", b"\r\n\r\n\0"] {
            assert_eq!(ProxyHeader::parse(bytes), Err(Incomplete), "{}", bytes.escape_ascii());
        }
    }
}
