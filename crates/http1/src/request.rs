//! The head of a request, and where its body ends.
//!
//! A head that a proxy in front of wellhead may read differently is refused: the bytes behind
//! it could otherwise be a request that the proxy never saw. So lines end with CRLF, a length is
//! written in one way, and HTTP/1.1 names one host (RFC 9112, sections 2.2, 3.2 and 6.3).

use std::fmt;
use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Request, Status};

use crate::MalformedHttp;
use crate::field::{is, length, once, words};

/// Header lines of one head.
const HEADERS_MAX: usize = 100;

/// Room for the headers of one head, kept by the caller so that a [`ParsedRequest`] can point into it.
pub struct Room<'b>([MaybeUninit<Header<'b>>; HEADERS_MAX]);

impl Room<'_> {
    /// Room that nothing was written to.
    pub fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; HEADERS_MAX])
    }
}

impl Default for Room<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Room<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

/// Why there is no head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadHead {
    /// It is not HTTP/1, or could be understood in two ways.
    Malformed(MalformedHttp),
    /// It is longer than allowed, or has more lines.
    TooLong,
}

/// One complete head.
#[derive(Debug, Clone, Copy)]
pub struct ParsedRequest<'h, 'b> {
    /// Bytes up to and with the empty line.
    pub len: usize,
    /// As it came: methods are case-sensitive.
    pub method: &'b str,
    /// The request target as it came.
    pub target: &'b str,
    /// HTTP/1.1, not 1.0.
    pub newest: bool,
    /// Whether the client wants to go on with the connection afterwards.
    pub keeps_open: bool,
    /// Where the body ends.
    pub framing: RequestFraming,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// All headers, as they came.
    pub headers: &'h [Header<'b>],
}

/// Where the body of a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFraming {
    /// After so many bytes; zero when nothing was said.
    Length(u64),
    /// After the last chunk.
    Chunked,
}

/// Reads the head at the start of `bytes`, of at most `bytes_max`; `None` when more is needed.
pub fn head<'h, 'b>(
    bytes: &'b [u8],
    bytes_max: usize,
    room: &'h mut Room<'b>,
) -> Result<Option<ParsedRequest<'h, 'b>>, BadHead> {
    let mut request = Request::new(&mut []);
    let config = ParserConfig::default();
    let parsed = config.parse_request_with_uninit_headers(&mut request, bytes, &mut room.0);
    let len = match parsed {
        Ok(Status::Complete(len)) if len <= bytes_max => len,
        Ok(Status::Partial) if bytes.len() <= bytes_max => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(BadHead::TooLong),
        Err(error) => return Err(BadHead::Malformed(MalformedHttp(words(error)))),
    };
    if has_bare_newline(&bytes[..len]) {
        return Err(BadHead::Malformed(MalformedHttp("a line of the head ends without CR")));
    }
    let headers: &'h [Header<'b>] = request.headers;
    let newest = request.version == Some(1);
    let mut read = ParsedRequest {
        len,
        method: request.method.unwrap_or_default(),
        target: request.path.unwrap_or_default(),
        newest,
        keeps_open: newest,
        framing: RequestFraming::Length(0),
        expects_continue: false,
        headers,
    };
    frame(&mut read).map_err(BadHead::Malformed)?;
    Ok(Some(read))
}

/// Whether a line ends with LF alone. Without an early end, so that many bytes are compared at
/// once: less than half the instructions of a search for each newline.
fn has_bare_newline(head: &[u8]) -> bool {
    let pairs = head.iter().zip(head.get(1..).unwrap_or_default());
    let bare = pairs.fold(0, |bare, (before, byte)| {
        bare | (u8::from(*byte == b'\n') & u8::from(*before != b'\r'))
    });
    bare != 0 || head.first() == Some(&b'\n')
}

/// A `Host`: a name or an address and perhaps a port, or nothing.
fn is_host(value: &[u8]) -> bool {
    value.trim_ascii().iter().all(|byte| IN_HOST[usize::from(*byte)])
}

/// The bytes of which a `Host` is made (RFC 3986, section 3.2.2, and the colon before a port). A
/// table, as each request has one.
const IN_HOST: [bool; 256] = {
    let mut is_in = [false; 256];
    let marks = b"-._~%!$&'()*+,;=:[]";
    let mut at = 0;
    while at < marks.len() {
        is_in[marks[at] as usize] = true;
        at += 1;
    }
    let mut byte = 0_u8;
    while byte < 128 {
        is_in[byte as usize] |= byte.is_ascii_alphanumeric();
        byte += 1;
    }
    is_in
};

/// Finds out where the body ends and what becomes of the connection.
fn frame(read: &mut ParsedRequest<'_, '_>) -> Result<(), MalformedHttp> {
    let (mut announced, mut chunked, mut says_close) = (None, false, false);
    let mut host = None;
    for header in read.headers {
        let (name, value) = (header.name, header.value);
        match name.len() {
            4 if is(name, "host") => {
                once(&mut host, (), MalformedHttp("more than one host"))?;
                if !is_host(value) {
                    return Err(MalformedHttp("the host is not valid"));
                }
            }
            6 if is(name, "expect") => {
                read.expects_continue = value.trim_ascii().eq_ignore_ascii_case(b"100-continue");
            }
            10 if is(name, "connection") => {
                for word in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                    says_close |= word.eq_ignore_ascii_case(b"close");
                    read.keeps_open |= word.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if is(name, "content-length") => {
                let twice = MalformedHttp("more than one content-length");
                once(&mut announced, length(value)?, twice)?;
                let digits = value.trim_ascii();
                if digits.len() > 1 && digits.starts_with(b"0") {
                    return Err(MalformedHttp("the content-length begins with a zero"));
                }
            }
            17 if is(name, "transfer-encoding") => {
                if chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                    return Err(MalformedHttp("a transfer-encoding other than chunked"));
                }
                chunked = true;
            }
            _ => {}
        }
    }
    if host.is_none() && read.newest {
        return Err(MalformedHttp("no host"));
    }
    read.keeps_open &= !says_close;
    // An HTTP/1.0 client does not wait, so it is not told.
    read.expects_continue &= read.newest;
    read.framing = match (chunked, announced) {
        (true, Some(_)) => return Err(MalformedHttp("both a length and chunks")),
        (true, None) if !read.newest => return Err(MalformedHttp("chunks in HTTP/1.0")),
        (true, None) => RequestFraming::Chunked,
        (false, announced) => RequestFraming::Length(announced.unwrap_or(0)),
    };
    Ok(())
}

/// The value of the first header called `name`, in lower case.
pub fn field<'b>(headers: &[Header<'b>], name: &str) -> Option<&'b [u8]> {
    fields(headers, name).next()
}

/// The values of all headers called `name`, in lower case.
pub fn fields<'h, 'b>(
    headers: &'h [Header<'b>],
    name: &'h str,
) -> impl Iterator<Item = &'b [u8]> + use<'h, 'b> {
    headers.iter().filter(|header| is(header.name, name)).map(|header| header.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 1024;

    type Read = (&'static str, &'static str, RequestFraming, bool, bool);

    /// As [`read_as_is`], with a host behind the first line.
    fn read(lines: &str) -> Result<(String, String, RequestFraming, bool, bool), BadHead> {
        let (first, rest) = lines.split_once('|').unwrap_or((lines, ""));
        let rest = if rest.is_empty() { String::new() } else { format!("|{rest}") };
        read_as_is(&format!("{first}|host: a{rest}"))
    }

    fn read_as_is(lines: &str) -> Result<(String, String, RequestFraming, bool, bool), BadHead> {
        let text = format!("{}\r\n\r\nrest", lines.replace('|', "\r\n"));
        let bytes = text.as_bytes();
        let mut room = Room::new();
        let head = head(bytes, BYTES_MAX, &mut room)?.expect("it is complete");
        assert_eq!(&bytes[head.len..], b"rest");
        for cut in 0..head.len {
            let mut room = Room::new();
            let early = super::head(&bytes[..cut], BYTES_MAX, &mut room);
            assert!(matches!(early, Ok(None)), "{lines} at {cut}: {early:?}");
        }
        let ParsedRequest { method, target, framing, keeps_open, expects_continue, .. } = head;
        Ok((method.to_owned(), target.to_owned(), framing, keeps_open, expects_continue))
    }

    #[test]
    fn heads_say_where_the_body_ends() {
        use RequestFraming::{Chunked, Length};
        let cases: [(&str, Read); 10] = [
            ("POST / HTTP/1.1|content-length: 7", ("POST", "/", Length(7), true, false)),
            ("GET /a?b HTTP/1.1|x: y", ("GET", "/a?b", Length(0), true, false)),
            ("POST / HTTP/1.1|Content-Length:7  ", ("POST", "/", Length(7), true, false)),
            ("POST / HTTP/1.1|transfer-encoding: Chunked", ("POST", "/", Chunked, true, false)),
            ("POST / HTTP/1.1|connection: x, Close", ("POST", "/", Length(0), false, false)),
            (
                "POST / HTTP/1.1|connection: close, keep-alive",
                ("POST", "/", Length(0), false, false),
            ),
            ("POST / HTTP/1.0|content-length: 1", ("POST", "/", Length(1), false, false)),
            ("POST / HTTP/1.0|connection: Keep-Alive", ("POST", "/", Length(0), true, false)),
            ("POST / HTTP/1.1|expect: 100-Continue", ("POST", "/", Length(0), true, true)),
            ("POST / HTTP/1.0|expect: 100-continue", ("POST", "/", Length(0), false, false)),
        ];
        for (lines, (method, target, framing, keeps_open, expects)) in cases {
            let expected = (method.to_owned(), target.to_owned(), framing, keeps_open, expects);
            assert_eq!(read(lines), Ok(expected), "{lines}");
        }
    }

    #[test]
    fn heads_that_could_be_read_in_two_ways_are_refused() {
        for (lines, why) in [
            ("hello", "the head is not valid"),
            ("POST / HTTP/3.0", "the peer does not speak HTTP/1"),
            ("POST / HTTP/1.1|content-length: 1|content-length: 1", "more than one content-length"),
            ("POST / HTTP/1.1|content-length: 0, 5", "the content-length is not a number"),
            ("POST / HTTP/1.1|content-length: 00", "the content-length begins with a zero"),
            ("POST / HTTP/1.1|content-length: 07", "the content-length begins with a zero"),
            ("POST / HTTP/1.1|content-length: +1", "the content-length is not a number"),
            ("POST / HTTP/1.1|content-length: 0x1", "the content-length is not a number"),
            ("POST / HTTP/1.1|content-length:", "the content-length is empty"),
            (
                "POST / HTTP/1.1|content-length: 18446744073709551616",
                "the content-length is out of range",
            ),
            (
                "POST / HTTP/1.1|content-length: 1|transfer-encoding: chunked",
                "both a length and chunks",
            ),
            (
                "POST / HTTP/1.1|transfer-encoding: chunked|content-length: 1",
                "both a length and chunks",
            ),
            ("POST / HTTP/1.0|transfer-encoding: chunked", "chunks in HTTP/1.0"),
            (
                "POST / HTTP/1.1|transfer-encoding: gzip, chunked",
                "a transfer-encoding other than chunked",
            ),
            (
                "POST / HTTP/1.1|transfer-encoding: chunked|transfer-encoding: chunked",
                "a transfer-encoding other than chunked",
            ),
            ("POST / HTTP/1.1|content-length : 1", "a header's name is not valid"),
            ("POST / HTTP/1.1|a: b| folded: 1", "a header's name is not valid"),
            ("POST / HTTP/1.1|a: \0", "a header's value is not valid"),
        ] {
            assert_eq!(read(lines), Err(BadHead::Malformed(MalformedHttp(why))), "{lines}");
        }
    }

    #[test]
    fn one_host_is_named() {
        let check = |lines: &str, expected: Result<(), &'static str>| {
            let expected = expected.map_err(|why| BadHead::Malformed(MalformedHttp(why)));
            assert_eq!(read_as_is(lines).map(|_| ()), expected, "{lines}");
        };
        check("POST / HTTP/1.1|x: y", Err("no host"));
        check("POST / HTTP/1.1|host: a", Ok(()));
        check("POST / HTTP/1.1|HOST: [::1]:80", Ok(()));
        check("POST / HTTP/1.1|host: my_node.local:8545", Ok(()));
        check("POST / HTTP/1.1|host:", Ok(()));
        check("POST / HTTP/1.1|host: a|host: a", Err("more than one host"));
        check("POST / HTTP/1.1|host: a|x: y|Host: b", Err("more than one host"));
        check("POST / HTTP/1.1|host: a b", Err("the host is not valid"));
        check("POST / HTTP/1.1|host: a/b", Err("the host is not valid"));
        check("POST / HTTP/1.1|host: a@b", Err("the host is not valid"));
        check("POST / HTTP/1.1|host: ä", Err("the host is not valid"));
        // Clients of old do not name any.
        check("POST / HTTP/1.0", Ok(()));
        check("POST / HTTP/1.0|host: a|host: b", Err("more than one host"));
    }

    #[test]
    fn lines_end_with_both_bytes() {
        let whole = "POST / HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\n";
        let of = |text: &str| head(text.as_bytes(), BYTES_MAX, &mut Room::new()).map(|_| ());
        assert_eq!(of(whole), Ok(()));
        assert_eq!(of(&format!("\r\n{whole}")), Ok(()), "an empty line before it is forgotten");
        let bare = Err(BadHead::Malformed(MalformedHttp("a line of the head ends without CR")));
        assert_eq!(of(&format!("\n{whole}")), bare);
        assert_eq!(of(&whole.replace('\r', "")), bare);
        for (at, _) in whole.match_indices('\r') {
            let text = [&whole[..at], &whole[at + 1..]].concat();
            assert_eq!(of(&text), bare, "{text:?}");
        }
    }

    #[test]
    fn heads_are_bounded() {
        let many = |count: usize| read(&format!("POST / HTTP/1.1{}", "|a: b".repeat(count - 1)));
        assert!(many(HEADERS_MAX).is_ok());
        assert_eq!(many(HEADERS_MAX + 1), Err(BadHead::TooLong));
        let of = |bytes: &[u8]| head(bytes, 64, &mut Room::new()).map(|head| head.is_some());
        let start = b"POST / HTTP/1.0\r\na: ";
        let exact = [start, &[b'x'; 64 - 20 - 4][..], b"\r\n\r\n"].concat();
        assert_eq!((exact.len(), of(&exact)), (64, Ok(true)));
        assert_eq!(of(&[&exact[..], b"body"].concat()), Ok(true));
        let longer = [start, &[b'x'; 64 - 20 - 3][..], b"\r\n\r\n"].concat();
        assert_eq!(of(&longer), Err(BadHead::TooLong));
        assert_eq!(of(&[start, &[b'x'; 64][..]].concat()), Err(BadHead::TooLong));
    }

    #[test]
    fn headers_are_found_by_name() {
        let text = b"POST / HTTP/1.0\r\nA: 1\r\nb: 2\r\na: 3\r\n\r\n";
        let mut room = Room::new();
        let head = head(text, BYTES_MAX, &mut room).expect("valid").expect("complete");
        assert_eq!(field(head.headers, "a"), Some(&b"1"[..]));
        assert_eq!(fields(head.headers, "a").collect::<Vec<_>>(), [b"1", b"3"]);
        assert_eq!(field(head.headers, "c"), None);
    }
}
