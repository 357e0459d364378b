//! The names under which a listener answers: those in `Host`, or `:authority` of HTTP/2.
//!
//! A web page can make its own name lead to an address of the machine that shows it (DNS
//! rebinding), and then reads what listens there as if it were its own server. The browser
//! still writes the name of the page into `Host`, by which such a request is told from others.
//! So a listener that is meant for this machine or for operators answers to names of the
//! loopback and to addresses, and to whatever else the settings list. A request without a
//! `Host` comes from no browser and is answered.

use std::net::{IpAddr, Ipv6Addr};

use crate::head::RequestHead;

/// The names that a listener answers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// All.
    Any,
    /// Addresses, `localhost` and the names below it, and these: in lower case, `*.` at the
    /// beginning of one stands for any names below it.
    Listed(Vec<String>),
}

impl Hosts {
    /// Names and addresses of this machine alone.
    pub const LOCAL: Self = Self::Listed(Vec::new());

    /// Whether a request with this head is answered. Of several names each has to be right.
    pub(crate) fn answers(&self, head: &RequestHead<'_>) -> bool {
        let listed = match self {
            Self::Any => return true,
            Self::Listed(listed) => listed,
        };
        let authority = head.target.authority().map(str::as_bytes);
        authority.into_iter().chain(head.headers.all("host")).all(|host| is_ours(host, listed))
    }
}

fn is_ours(authority: &[u8], listed: &[String]) -> bool {
    if is_usual(authority) {
        return true;
    }
    let Ok(authority) = std::str::from_utf8(authority) else { return false };
    let authority = authority.trim();
    if authority.is_empty() {
        return true;
    }
    let Some(host) = without_port(authority) else { return false };
    if host.parse::<IpAddr>().is_ok() {
        return true;
    }
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let below = |name: &str| host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    host == "localhost"
        || below("localhost")
        || listed.iter().any(|name| match name.strip_prefix("*.") {
            Some(parent) => below(parent),
            None => host == *name,
        })
}

/// Whether it is what nearly all requests to a listener of this machine say, as each request is
/// looked at.
fn is_usual(authority: &[u8]) -> bool {
    let usual: [&[u8]; 2] = [b"127.0.0.1", b"localhost"];
    let port = usual.iter().find_map(|host| authority.strip_prefix(*host));
    match port {
        None => false,
        Some([]) => true,
        Some([b':', port @ ..]) => port.iter().all(u8::is_ascii_digit),
        Some(_) => false,
    }
}

/// The host of `host`, `host:port` or `[address]:port`; `None` where it is none of these.
fn without_port(authority: &str) -> Option<&str> {
    let is_port = |text: &str| text.is_empty() || text.bytes().all(|b| b.is_ascii_digit());
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, after) = rest.split_once(']')?;
        let is_good = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        return (is_good && address.parse::<Ipv6Addr>().is_ok()).then_some(address);
    }
    match authority.split_once(':') {
        None => Some(authority),
        Some((host, port)) => is_port(port).then_some(host),
    }
}

/// Whether a request that may change something comes from a page of the listener itself, or
/// from no page.
pub(crate) fn is_same_origin(head: &RequestHead<'_>) -> bool {
    let own = head.target.authority().map(str::as_bytes).or_else(|| head.headers.get("host"));
    head.headers.all("origin").all(|origin| {
        let origin = ["http://", "https://"]
            .iter()
            .find_map(|scheme| origin.strip_prefix(scheme.as_bytes()));
        origin.is_some_and(|page| own.is_some_and(|own| page.eq_ignore_ascii_case(own)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::tests::with_head;
    use crate::headers::RequestHeaders;

    fn answers(hosts: &Hosts, head: &str, expected: bool) {
        with_head(head, |head| assert_eq!(hosts.answers(&head), expected, "{head:?}"));
    }

    /// The names and addresses of this machine, `api.example` and what is below `in.example`.
    #[track_caller]
    fn check(host: &str, expected: bool) {
        let listed = ["api.example", "*.in.example"].map(str::to_owned).into();
        answers(&Hosts::Listed(listed), &format!("GET / | host: {host}"), expected);
        answers(&Hosts::Any, &format!("GET / | host: {host}"), true);
    }

    #[test]
    fn addresses_and_names_of_the_loopback_are_answered() {
        for host in ["localhost", "localhost:4546", "LocalHost.", "app.localhost:1", "127.0.0.1"] {
            check(host, true);
        }
        for host in ["10.0.0.7:4546", "[::1]:4546", "[::1]", "[fe80::1]:80", ""] {
            check(host, true);
        }
    }

    #[test]
    fn other_names_are_refused() {
        for host in ["evil.example", "localhost.evil.example", "notlocalhost", "127.0.0.1.nip.io"] {
            check(host, false);
        }
        for host in ["localhost:80@evil", "[::1", "[evil]:80", "[::1]evil", "a:b:c", "127.1"] {
            check(host, false);
        }
    }

    #[test]
    fn listed_names_are_answered() {
        for host in
            ["api.example", "API.example:443", "api.example.", "a.in.example", "b.a.in.example"]
        {
            check(host, true);
        }
        for host in ["x.api.example", "in.example", "ain.example"] {
            check(host, false);
        }
    }

    #[test]
    fn every_name_of_a_request_counts() {
        answers(&Hosts::LOCAL, "GET /", true);
        answers(&Hosts::LOCAL, "GET / | host: localhost | host: evil.example", false);
        answers(&Hosts::LOCAL, "GET / | host: evil.example | host: localhost", false);
        let uri = |uri: &'static str, expected| {
            let uri = http::Uri::from_static(uri);
            let headers = http::HeaderMap::new();
            let head = RequestHead {
                method: "GET",
                target: crate::head::RequestTarget::Uri(&uri),
                headers: RequestHeaders::Map(&headers),
                may_upgrade: false,
            };
            assert_eq!(Hosts::LOCAL.answers(&head), expected, "{uri}");
        };
        uri("http://evil.example/", false);
        uri("http://localhost:4546/", true);
        uri("/", true);
    }

    #[test]
    fn a_page_of_another_origin_is_told_from_our_own() {
        let check = |lines: &str, expected| {
            let head = format!("POST / {lines}");
            with_head(&head, |head| assert_eq!(is_same_origin(&head), expected, "{lines}"));
        };
        check("| host: localhost:4546", true);
        check("| host: localhost:4546 | origin: http://localhost:4546", true);
        check("| host: localhost:4546 | origin: http://localhost:3000", false);
        check("| host: localhost:4546 | origin: null", false);
        check("| host: localhost:4546 | origin: http://localhost:4546 | origin: null", false);
        check("| origin: http://localhost:4546", false);
    }
}
