//! The framing of a chunked body, in both directions.

use crate::MalformedHttp;

/// Bytes of the line before a chunk: a size and extensions, which are hardly ever used.
const CHUNK_LINE_MAX: usize = 256;
/// Hexadecimal digits of a chunk's size: 64 bits.
const CHUNK_DIGITS_MAX: usize = 16;
/// Bytes of all trailers after the last chunk.
const TRAILER_BYTES_MAX: usize = 16 << 10;

/// Reads the framing of a chunked body; the data itself goes past it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunked {
    state: State,
    /// Bytes of the line, or of the trailers, so far.
    seen: usize,
    /// Spaces behind a size are refused.
    strict: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size {
        size: u64,
        digits: usize,
    },
    Extension {
        size: u64,
    },
    SizeEnd {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataReturn,
    DataEnd,
    /// At the start of a line after the last chunk.
    Trailer,
    TrailerLine,
    TrailerLineEnd,
    /// Inside the empty line that ends everything.
    LastEnd,
    Ended,
}

/// What comes next in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkStep {
    /// So many bytes of data; tell [`Chunked::passed`] when they went by.
    Data(u64),
    /// More framing, which has not arrived yet.
    More,
    /// Nothing: the body is complete.
    End,
}

impl Default for Chunked {
    fn default() -> Self {
        Self::new()
    }
}

impl Chunked {
    /// At the start of a body.
    pub fn new() -> Self {
        Self { state: State::Size { size: 0, digits: 0 }, seen: 0, strict: false }
    }

    /// At the start of a client's body. Nothing but an extension may follow a size: some read
    /// spaces there as a part of it. Servers that pad their sizes are read by [`Self::new`].
    pub fn of_request() -> Self {
        Self { strict: true, ..Self::new() }
    }

    /// Takes framing from the start of `bytes`; returns how much of them it was.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<(usize, ChunkStep), MalformedHttp> {
        for (at, byte) in bytes.iter().enumerate() {
            match self.state {
                State::Data { left } => return Ok((at, ChunkStep::Data(left))),
                State::Ended => return Ok((at, ChunkStep::End)),
                state => self.state = self.step(state, *byte)?,
            }
        }
        Ok((bytes.len(), self.next()))
    }

    /// `count` bytes of the announced data went by.
    pub fn passed(&mut self, count: u64) {
        if let State::Data { left } = self.state {
            let left = left.saturating_sub(count);
            self.state = if left == 0 { State::DataReturn } else { State::Data { left } };
        }
    }

    fn next(&self) -> ChunkStep {
        match self.state {
            State::Data { left } => ChunkStep::Data(left),
            State::Ended => ChunkStep::End,
            _ => ChunkStep::More,
        }
    }

    fn step(&mut self, state: State, byte: u8) -> Result<State, MalformedHttp> {
        const BAD_LINE: MalformedHttp = MalformedHttp("the line before a chunk is not valid");
        const BAD_TRAILER: MalformedHttp = MalformedHttp("the trailers are not valid");
        self.seen += 1;
        Ok(match state {
            State::Size { .. } | State::Extension { .. } if self.seen > CHUNK_LINE_MAX => {
                return Err(MalformedHttp("the line before a chunk is too long"));
            }
            State::Trailer | State::TrailerLine if self.seen > TRAILER_BYTES_MAX => {
                return Err(MalformedHttp("the trailers are too long"));
            }
            State::Size { size, digits } => match (char::from(byte).to_digit(16), byte) {
                (Some(_), _) if digits == CHUNK_DIGITS_MAX => {
                    return Err(MalformedHttp("the size of a chunk is out of range"));
                }
                (Some(digit), _) => {
                    State::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
                }
                (None, _) if digits == 0 => return Err(BAD_LINE),
                (None, b'\r') => State::SizeEnd { size },
                (None, b' ' | b'\t') if self.strict => return Err(BAD_LINE),
                (None, b';' | b' ' | b'\t') => State::Extension { size },
                (None, _) => return Err(BAD_LINE),
            },
            State::Extension { size } => match byte {
                b'\r' => State::SizeEnd { size },
                b'\t' | 0x20..=0x7e | 0x80.. => State::Extension { size },
                _ => return Err(BAD_LINE),
            },
            State::SizeEnd { size } => {
                self.seen = 0;
                match (byte, size) {
                    (b'\n', 0) => State::Trailer,
                    (b'\n', left) => State::Data { left },
                    _ => return Err(BAD_LINE),
                }
            }
            State::DataReturn if byte == b'\r' => State::DataEnd,
            State::DataEnd if byte == b'\n' => {
                self.seen = 0;
                State::Size { size: 0, digits: 0 }
            }
            State::DataReturn | State::DataEnd => {
                return Err(MalformedHttp("a chunk is longer than announced"));
            }
            State::Trailer if byte == b'\r' => State::LastEnd,
            State::Trailer | State::TrailerLine => match byte {
                b'\r' => State::TrailerLineEnd,
                b'\t' | 0x20..=0x7e | 0x80.. => State::TrailerLine,
                _ => return Err(BAD_TRAILER),
            },
            State::TrailerLineEnd if byte == b'\n' => State::Trailer,
            State::LastEnd if byte == b'\n' => State::Ended,
            State::TrailerLineEnd | State::LastEnd => return Err(BAD_TRAILER),
            // `advance` stops at these.
            State::Data { .. } | State::Ended => state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of a chunked body that arrives in pieces of `size`, and what is
    /// left behind its end; `None` in place of the end when more is needed.
    fn unchunked(text: &str, size: usize) -> Result<(String, Option<usize>), &'static str> {
        read_by(Chunked::new(), text, size)
    }

    fn read_by(
        mut chunked: Chunked,
        text: &str,
        size: usize,
    ) -> Result<(String, Option<usize>), &'static str> {
        let (mut data, mut at) = (Vec::new(), 0);
        for piece in text.as_bytes().chunks(size) {
            let mut rest = piece;
            loop {
                let (used, next) = chunked.advance(rest).map_err(|MalformedHttp(why)| why)?;
                (rest, at) = (&rest[used..], at + used);
                match next {
                    ChunkStep::Data(0) => panic!("data of no length"),
                    ChunkStep::Data(left) => {
                        let some = (left as usize).min(rest.len());
                        data.extend_from_slice(&rest[..some]);
                        (rest, at) = (&rest[some..], at + some);
                        chunked.passed(some as u64);
                        if rest.is_empty() && some as u64 != left {
                            break;
                        }
                    }
                    ChunkStep::End => {
                        let data = String::from_utf8(data).expect("text");
                        return Ok((data, Some(text.len() - at)));
                    }
                    ChunkStep::More => {
                        assert!(rest.is_empty());
                        break;
                    }
                }
            }
        }
        Ok((String::from_utf8(data).expect("text"), None))
    }

    fn check_chunks(text: &str, expected: Result<(&str, Option<usize>), &'static str>) {
        let expected = expected.map(|(data, left)| (data.to_owned(), left));
        for size in 1..=text.len() {
            assert_eq!(unchunked(text, size), expected, "{text:?} by {size}");
        }
    }

    #[test]
    fn chunks_are_joined_however_they_are_cut() {
        check_chunks("0\r\n\r\n", Ok(("", Some(0))));
        check_chunks("3\r\nabc\r\n0\r\n\r\nrest", Ok(("abc", Some(4))));
        check_chunks(
            "3\r\nabc\r\n00b\r\n0123456789a\r\n0\r\n\r\n",
            Ok(("abc0123456789a", Some(0))),
        );
        check_chunks("A;x=\"y\"\r\n0123456789\r\n000;z\r\n\r\n", Ok(("0123456789", Some(0))));
        check_chunks("1 \r\na\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n", Ok(("a", Some(0))));
        check_chunks("3\r\nab", Ok(("ab", None)));
        check_chunks("3\r\nabc\r\n", Ok(("abc", None)));
        check_chunks("3\r\nabc\r\n0\r\n", Ok(("abc", None)));
        check_chunks("3\r\nabc\r\n0\r\nx: y\r\n", Ok(("abc", None)));
    }

    #[test]
    fn spaces_behind_a_size_are_refused_of_clients_alone() {
        for text in ["1 \r\na\r\n0\r\n\r\n", "1\t;x\r\na\r\n0\r\n\r\n", "1\r\na\r\n0 \r\n\r\n"] {
            check_chunks(text, Ok(("a", Some(0))));
            let strict = read_by(Chunked::of_request(), text, 1);
            assert_eq!(strict, Err("the line before a chunk is not valid"), "{text:?}");
        }
        let text = "1;x = y\r\na\r\n0\r\n\r\n";
        assert_eq!(read_by(Chunked::of_request(), text, 1), Ok(("a".to_owned(), Some(0))));
    }

    #[test]
    fn chunks_that_could_be_read_in_two_ways_are_refused() {
        const LINE: Result<(&str, Option<usize>), &str> =
            Err("the line before a chunk is not valid");
        check_chunks("xyz\r\n", LINE);
        check_chunks("\r\n", LINE);
        check_chunks(";x\r\n", LINE);
        check_chunks("-1\r\n", LINE);
        check_chunks("0x1\r\n", LINE);
        check_chunks("1\na\n", LINE);
        check_chunks("1\r\ra", LINE);
        check_chunks("1;\u{1}\r\n", LINE);
        check_chunks("11111111111111111\r\n", Err("the size of a chunk is out of range"));
        check_chunks("1\r\nab\r\n", Err("a chunk is longer than announced"));
        check_chunks("1\r\na\rb", Err("a chunk is longer than announced"));
        check_chunks("0\r\n\rx", Err("the trailers are not valid"));
        check_chunks("0\r\nx: y\n\r\n", Err("the trailers are not valid"));
        let line = format!("1;{}\r\n", "x".repeat(CHUNK_LINE_MAX));
        check_chunks(&line, Err("the line before a chunk is too long"));
        let trailers = format!("0\r\n{}", "x: y\r\n".repeat(TRAILER_BYTES_MAX / 6 + 1));
        assert_eq!(unchunked(&trailers, 1000), Err("the trailers are too long"));
    }
}
