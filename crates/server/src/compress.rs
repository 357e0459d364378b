//! Compressing answers and inflating requests, in slices, so that a worker is
//! never away from its other connections for long.
//!
//! Which coding a client wants is decided in `encoding`.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use crate::count::ServerCounters;
use crate::encoding::Coding;
use crate::shared::ServerShared;
use crate::{AnswerBody, HttpRefusal};

/// Work between two looks at the other tasks: well under a millisecond.
const SLICE_BYTES: usize = 32 * 1024;

// The lowest levels: JSON of hex words shrinks to nearly the same with the
// higher ones, for several times the work.
const GZIP_LEVEL: u32 = 1;
const ZSTD_LEVEL: i32 = 1;

/// Compresses `body`; `None` when it has to go as it is.
pub(crate) async fn compress(
    shared: &ServerShared,
    body: &AnswerBody,
    coding: Coding,
) -> Option<Bytes> {
    let length = body.len();
    let squeezed = if length <= shared.settings.compression.inline_bytes_max {
        let mut squeezer = Squeezer::new(coding).ok()?;
        for piece in body.pieces() {
            for (index, slice) in piece.chunks(SLICE_BYTES).enumerate() {
                if index > 0 {
                    tokio::task::yield_now().await;
                }
                squeezer.write(slice).ok()?;
            }
        }
        squeezer.finish().ok()?
    } else {
        // A full queue is an answer: uncompressed is better than late.
        let Ok(_job) = shared.compression_jobs.try_acquire() else {
            ServerCounters::add(&shared.counters.compression_skipped_total);
            return None;
        };
        let body = body.clone();
        let job = move || -> io::Result<Vec<u8>> {
            let mut squeezer = Squeezer::new(coding)?;
            for piece in body.pieces() {
                squeezer.write(piece)?;
            }
            squeezer.finish()
        };
        tokio::task::spawn_blocking(job).await.ok()?.ok()?
    };
    if squeezed.len() >= length {
        return None;
    }
    ServerCounters::add(&shared.counters.compressed_total);
    Some(Bytes::from(squeezed))
}

enum Squeezer {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Squeezer {
    fn new(coding: Coding) -> io::Result<Self> {
        Ok(match coding {
            Coding::Gzip => {
                Self::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL)))
            }
            Coding::Zstd => Self::Zstd(zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?),
        })
    }

    fn write(&mut self, slice: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(slice),
            Self::Zstd(encoder) => encoder.write_all(slice),
        }
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

/// Undoes gzip, to at most `bytes_max`: a few kilobytes can unfold to gigabytes.
///
/// `hold` is told what there is so far, slice by slice: a thousand such bodies side by
/// side would otherwise be counted only when all of them were there.
pub(crate) async fn inflate(
    body: Bytes,
    bytes_max: usize,
    mut hold: impl FnMut(usize) -> Result<(), HttpRefusal>,
) -> Result<Bytes, HttpRefusal> {
    let mut decoder = MultiGzDecoder::new(&body[..]);
    let mut inflated = Vec::new();
    loop {
        let before = inflated.len();
        // One byte over the bound is enough to know.
        let slice = SLICE_BYTES.min(bytes_max + 1 - before);
        let read = (&mut decoder).take(slice as u64).read_to_end(&mut inflated);
        if read.map_err(|_| HttpRefusal::BodyBroken)? == 0 {
            return Ok(Bytes::from(inflated));
        }
        if inflated.len() > bytes_max {
            return Err(HttpRefusal::BodyTooLarge);
        }
        hold(inflated.len())?;
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    async fn check(sent: Vec<u8>, bytes_max: usize, expected: Result<&[u8], HttpRefusal>) {
        let inflated = inflate(Bytes::from(sent), bytes_max, |_| Ok(())).await;
        assert_eq!(inflated.as_deref(), expected.as_ref().map(|bytes| *bytes));
    }

    #[tokio::test]
    async fn inflating() {
        let large = vec![b'a'; 200_000];
        check(gzip(b"{}"), 100, Ok(b"{}")).await;
        check(gzip(b""), 0, Ok(b"")).await;
        check(gzip(&large), 200_000, Ok(&large)).await;
        check(gzip(&large), 199_999, Err(HttpRefusal::BodyTooLarge)).await;
        check([gzip(b"{"), gzip(b"}")].concat(), 2, Ok(b"{}")).await;
        check(b"{}".to_vec(), 100, Err(HttpRefusal::BodyBroken)).await;
        check(Vec::new(), 100, Err(HttpRefusal::BodyBroken)).await;
        check(gzip(&large)[..50].to_vec(), 1_000_000, Err(HttpRefusal::BodyBroken)).await;
        check([gzip(b"{}"), b"more".to_vec()].concat(), 100, Err(HttpRefusal::BodyBroken)).await;
    }

    #[tokio::test]
    async fn what_is_inflated_counts_while_it_grows() {
        let mut told = Vec::new();
        let hold = |bytes| {
            told.push(bytes);
            if bytes > 2 * SLICE_BYTES { Err(HttpRefusal::BodiesFull) } else { Ok(()) }
        };
        let bomb = Bytes::from(gzip(&vec![b'a'; 100 * SLICE_BYTES]));
        let inflated = inflate(bomb, usize::MAX - 1, hold).await;
        assert_eq!(inflated, Err(HttpRefusal::BodiesFull));
        assert_eq!(told, [SLICE_BYTES, 2 * SLICE_BYTES, 3 * SLICE_BYTES]);
    }

    fn restore(coding: Coding, squeezed: &[u8]) -> Vec<u8> {
        let mut restored = Vec::new();
        match coding {
            Coding::Gzip => {
                MultiGzDecoder::new(squeezed).read_to_end(&mut restored).unwrap();
            }
            Coding::Zstd => restored = zstd::stream::decode_all(squeezed).unwrap(),
        }
        restored
    }

    #[tokio::test]
    async fn both_codings_both_ways() {
        let shared = ServerShared::new(Settings::default());
        let small = Bytes::from(vec![b'a'; 100_000]);
        let large = Bytes::from(vec![b'b'; 300_000]);
        for coding in [Coding::Gzip, Coding::Zstd] {
            for body in [vec![small.clone(), Bytes::new(), small.clone()], vec![large.clone()]] {
                let squeezed = compress(&shared, &body.clone().into(), coding).await.unwrap();
                assert_eq!(restore(coding, &squeezed), body.concat(), "{coding:?}");
            }
        }
        assert_eq!(shared.counters.read().compressed_total, 4);
    }

    #[tokio::test]
    async fn what_does_not_shrink_goes_as_it_is() {
        let shared = ServerShared::new(Settings::default());
        let body = AnswerBody::from(Bytes::from_static(b"0x1"));
        assert_eq!(compress(&shared, &body, Coding::Gzip).await, None);
    }

    #[tokio::test]
    async fn large_ones_go_as_they_are_when_all_jobs_are_busy() {
        let shared = ServerShared::new(Settings::default());
        let jobs = shared.settings.compression.jobs_max;
        let _busy = shared.compression_jobs.acquire_many(jobs as u32).await.unwrap();
        let body = AnswerBody::from(Bytes::from(vec![b'b'; 300_000]));
        assert_eq!(compress(&shared, &body, Coding::Zstd).await, None);
        assert_eq!(shared.counters.read().compression_skipped_total, 1);
    }
}
