//! The place of a request in a distributed trace, as W3C Trace Context writes it: the header `traceparent`.
//!
//! `tracestate` and `baggage` are neither read nor sent: wellhead adds nothing to the one, and the other may hold
//! what a provider must not learn.

use std::fmt;

/// The length of a `traceparent` of version 00.
const HEADER_BYTES: usize = 55;
const SAMPLED: u8 = 1;

/// What names a trace or a span; never all zero. Shown in hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HexId<const N: usize>([u8; N]);

/// The 16 bytes that all spans of one trace share.
pub type TraceId = HexId<16>;

/// The 8 bytes that name one span within its trace.
pub type SpanId = HexId<8>;

impl<const N: usize> HexId<N> {
    /// As it goes over the wire.
    pub fn bytes(self) -> [u8; N] {
        self.0
    }
}

impl TraceId {
    /// From random numbers. Zero, which is no id, becomes another one.
    pub fn of(numbers: [u64; 2]) -> Self {
        let number = (u128::from(numbers[0]) << 64 | u128::from(numbers[1])).max(1);
        Self(number.to_be_bytes())
    }
}

impl SpanId {
    /// From a random number. Zero, which is no id, becomes another one.
    pub fn of(number: u64) -> Self {
        Self(number.max(1).to_be_bytes())
    }

    /// The span below this one that `number` stands for: always the same one, so that a span that is reported
    /// when a request has ended has the id that its upstream was told. Different numbers have different ids.
    #[must_use]
    pub fn child(self, number: u64) -> Self {
        // The finaliser of SplitMix64, which is a bijection: children of one span never collide.
        let mut mixed = u64::from_be_bytes(self.0) ^ number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self::of(mixed ^ (mixed >> 31))
    }
}

/// A trace, and the span in it that what follows belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span.
    pub span_id: SpanId,
    /// Its sender says that it may have recorded the span.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Reads a `traceparent`; `None` for anything that is none, as the standard asks for. Of a later version
    /// the parts that version 00 has are read.
    pub fn parse(header: &[u8]) -> Option<Self> {
        let (known, further) = header.split_at_checked(HEADER_BYTES)?;
        let version = hex::<1>(&known[..2])?[0];
        let is_whole = match version {
            0 => further.is_empty(),
            0xff => false,
            _ => further.first().is_none_or(|next| *next == b'-'),
        };
        let has_dashes = [2, 35, 52].iter().all(|at| known[*at] == b'-');
        let (trace_id, span_id) = (hex::<16>(&known[3..35])?, hex::<8>(&known[36..52])?);
        let flags = hex::<1>(&known[53..55])?[0];
        let is_there = trace_id != [0; 16] && span_id != [0; 8];
        (is_whole && has_dashes && is_there).then_some(Self {
            trace_id: HexId(trace_id),
            span_id: HexId(span_id),
            is_sampled: flags & SAMPLED != 0,
        })
    }

    /// The span below this one that `number` stands for; see [`SpanId::child`].
    #[must_use]
    pub fn child(self, number: u64) -> Self {
        Self { span_id: self.span_id.child(number), ..self }
    }

    /// As the value of a `traceparent`.
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [b'-'; HEADER_BYTES];
        put_hex(&mut header[..2], &[0]);
        put_hex(&mut header[3..35], &self.trace_id.0);
        put_hex(&mut header[36..52], &self.span_id.0);
        put_hex(&mut header[53..], &[u8::from(self.is_sampled)]);
        header
    }
}

/// Lower case alone, as the standard asks for.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn put_hex(out: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

impl<const N: usize> fmt::Display for HexId<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> fmt::Debug for HexId<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[track_caller]
    fn check(header: &str, expected: Option<bool>) {
        let parsed = TraceContext::parse(header.as_bytes());
        assert_eq!(parsed.map(|context| context.is_sampled), expected, "{header}");
        if let Some(context) = parsed {
            assert_eq!(
                (context.trace_id.to_string(), context.span_id.to_string()),
                (TRACE.to_owned(), SPAN.to_owned())
            );
        }
    }

    #[test]
    fn a_traceparent_is_read_as_the_standard_says() {
        check(&format!("00-{TRACE}-{SPAN}-01"), Some(true));
        check(&format!("00-{TRACE}-{SPAN}-00"), Some(false));
        check(&format!("00-{TRACE}-{SPAN}-03"), Some(true));
        check(&format!("00-{TRACE}-{SPAN}-02"), Some(false));
        check(&format!("cc-{TRACE}-{SPAN}-01-what-comes"), Some(true));
        check(&format!("cc-{TRACE}-{SPAN}-01"), Some(true));
        check(&format!("cc-{TRACE}-{SPAN}-01.x"), None);
        check(&format!("00-{TRACE}-{SPAN}-01-x"), None);
        check(&format!("ff-{TRACE}-{SPAN}-01"), None);
        check(&format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None);
        check(&format!("00-{TRACE}-{}-01", "0".repeat(16)), None);
        check(&format!("00-{}-{SPAN}-01", "0".repeat(32)), None);
        check(&format!("00-{TRACE}_{SPAN}-01"), None);
        check(&format!("00-{TRACE}-{SPAN}-1"), None);
        check(&format!("0g-{TRACE}-{SPAN}-01"), None);
        check("", None);
    }

    #[test]
    fn it_is_written_as_it_is_read() {
        for flags in ["00", "01"] {
            let header = format!("00-{TRACE}-{SPAN}-{flags}");
            let context = TraceContext::parse(header.as_bytes()).expect("sound");
            assert_eq!(context.header().as_slice(), header.as_bytes());
        }
    }

    #[test]
    fn children_differ_and_are_always_the_same() {
        let of = |number| SpanId::of(7).child(number);
        let children: std::collections::HashSet<_> = (0..10_000).map(|it| of(it).bytes()).collect();
        assert_eq!(children.len(), 10_000);
        assert_eq!(of(5), of(5));
        assert_ne!(of(5), SpanId::of(8).child(5));
    }

    #[test]
    fn no_id_is_zero() {
        assert_ne!(SpanId::of(0).bytes(), [0; 8]);
        assert_ne!(TraceId::of([0, 0]).bytes(), [0; 16]);
    }
}
