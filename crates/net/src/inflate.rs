//! Content encodings undone step by step, within a bound.
//!
//! Deflate packs up to 1032 to 1, so every step is small and its output bounded:
//! a bomb stops at the bound, not at the end of memory.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

/// Compressed bytes undone at a time: at deflate's best ratio of 1032, 4 MiB of output.
pub(crate) const INFLATE_STEP: usize = 4 << 10;
/// Most memory taken at once for what is still to come.
const OUT_STEP: usize = 1 << 20;

/// How an answer's body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Not at all.
    Identity,
    Gzip,
    Deflate,
    /// In a way that was not asked for.
    Foreign,
}

impl Encoding {
    /// By the value of `content-encoding`.
    pub(crate) fn of(value: Option<&[u8]>) -> Self {
        let Some(name) = value.map(<[u8]>::trim_ascii) else { return Self::Identity };
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        if name.is_empty() || is(b"identity") {
            Self::Identity
        } else if is(b"gzip") || is(b"x-gzip") {
            Self::Gzip
        } else if is(b"deflate") {
            Self::Deflate
        } else {
            Self::Foreign
        }
    }
}

pub(crate) fn too_large(max: usize) -> TransportError {
    let detail = format!("more than {max} bytes");
    TransportError::new(TransportErrorKind::TooLarge, Sent::Maybe, detail)
}

fn undecodable(detail: impl Into<String>) -> TransportError {
    TransportError::new(TransportErrorKind::Protocol, Sent::Maybe, detail)
}

/// An encoding being undone.
pub(crate) enum Inflate {
    Gzip(Box<MultiGzDecoder<Bounded>>),
    /// `deflate` is zlib by the book and raw deflate by some servers; the first two bytes tell.
    Deflate {
        held: Vec<u8>,
        decoder: Option<Box<Decompress>>,
        out: Vec<u8>,
        ended: bool,
    },
}

impl std::fmt::Debug for Inflate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflate").field("out_len", &self.out_len()).finish_non_exhaustive()
    }
}

impl Inflate {
    /// At most `max` bytes will come out; `None` when nothing is packed.
    pub(crate) fn new(encoding: Encoding, max: usize) -> Result<Option<Self>, TransportError> {
        Ok(match encoding {
            Encoding::Identity => None,
            Encoding::Gzip => {
                let sink = Bounded { out: Vec::new(), max, full: false };
                Some(Self::Gzip(Box::new(MultiGzDecoder::new(sink))))
            }
            Encoding::Deflate => {
                let (held, out) = (Vec::new(), Vec::new());
                Some(Self::Deflate { held, decoder: None, out, ended: false })
            }
            Encoding::Foreign => {
                let detail = "the answer has an unrequested content encoding";
                return Err(undecodable(detail));
            }
        })
    }

    /// What came out so far; counts anew from here.
    pub(crate) fn take(&mut self) -> Bytes {
        Bytes::from(match self {
            Self::Gzip(decoder) => std::mem::take(&mut decoder.get_mut().out),
            Self::Deflate { out, .. } => std::mem::take(out),
        })
    }

    pub(crate) fn out_len(&self) -> usize {
        match self {
            Self::Gzip(decoder) => decoder.get_ref().out.len(),
            Self::Deflate { out, .. } => out.len(),
        }
    }

    pub(crate) fn push(&mut self, input: &[u8], max: usize) -> Result<(), TransportError> {
        match self {
            Self::Gzip(decoder) => match decoder.write_all(input) {
                Ok(()) => Ok(()),
                Err(_) if decoder.get_ref().full => Err(too_large(max)),
                Err(_) => Err(undecodable("the answer is not valid gzip")),
            },
            Self::Deflate { held, decoder, out, ended } => {
                let Some(decoder) = decoder else {
                    held.extend_from_slice(input);
                    let [first, second, ..] = held[..] else { return Ok(()) };
                    let word = u16::from_be_bytes([first, second]);
                    let zlib = first & 0x0f == 8 && word.is_multiple_of(31);
                    let decoder = decoder.insert(Box::new(Decompress::new(zlib)));
                    let held = std::mem::take(held);
                    return inflate_some(decoder, &held, out, ended, max);
                };
                inflate_some(decoder, input, out, ended, max)
            }
        }
    }

    pub(crate) fn finish(self, max: usize) -> Result<Bytes, TransportError> {
        let cut = |what: &str| {
            TransportError::new(TransportErrorKind::Truncated, Sent::Maybe, what.to_owned())
        };
        match self {
            Self::Gzip(mut decoder) => {
                match decoder.try_finish() {
                    Ok(()) => Ok(Bytes::from(std::mem::take(&mut decoder.get_mut().out))),
                    // The last of the output is only handed over here.
                    Err(_) if decoder.get_ref().full => Err(too_large(max)),
                    Err(_) => Err(cut("the gzip data ends too early")),
                }
            }
            Self::Deflate { out, ended: true, .. } => Ok(Bytes::from(out)),
            Self::Deflate { .. } => Err(cut("the deflate data ends too early")),
        }
    }
}

fn inflate_some(
    decoder: &mut Decompress,
    mut input: &[u8],
    out: &mut Vec<u8>,
    ended: &mut bool,
    max: usize,
) -> Result<(), TransportError> {
    while !*ended {
        if out.capacity() == out.len() {
            out.reserve(out.len().clamp(INFLATE_STEP, OUT_STEP));
        }
        let before = (decoder.total_in(), out.len());
        let status = decoder
            .decompress_vec(input, out, FlushDecompress::None)
            .map_err(|_| undecodable("the answer is not valid deflate"))?;
        input = &input[(decoder.total_in() - before.0) as usize..];
        if out.len() > max {
            return Err(too_large(max));
        }
        *ended = status == Status::StreamEnd;
        let stands_still = (decoder.total_in(), out.len()) == before;
        if (input.is_empty() && out.len() < out.capacity()) || stands_still {
            break;
        }
    }
    Ok(())
}

/// Takes what a decoder puts out, up to a bound.
pub(crate) struct Bounded {
    out: Vec<u8>,
    max: usize,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.out.len() + data.len() > self.max {
            self.full = true;
            return Err(io::Error::other("too large"));
        }
        self.out.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
