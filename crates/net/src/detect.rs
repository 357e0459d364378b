//! Does a plain-text peer speak HTTP/2? And what was learnt about it.
//!
//! There is no ALPN without TLS, so the first connection opens with the HTTP/2
//! preface: a server of HTTP/2 must answer with a SETTINGS frame, one of
//! HTTP/1.1 reads it as a strange request and answers 400 or closes. The
//! connection is then used, or replaced by an HTTP/1.1 one; no exchange is sent
//! before the answer is known, so none can fail because of the question.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

use crate::dial::Stream;
use crate::protocol::Protocol;

/// The client preface of RFC 9113, section 3.4.
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame header: enough to tell SETTINGS from anything else.
const FRAME_HEAD: usize = 9;
/// After this, HTTP/1.1 is asked again: the server may have been replaced or reconfigured.
const H1_BELIEVED: Duration = Duration::from_secs(3600);
/// How long HTTP/1.1 is believed when only silence spoke for it: the server may have been slow.
const H1_GUESSED: Duration = Duration::from_secs(300);

/// The protocol that a peer turned out to speak, shared by all workers.
#[derive(Debug, Default)]
pub struct LearntProtocol {
    state: Mutex<Option<Belief>>,
}

#[derive(Debug, Clone, Copy)]
struct Belief {
    protocol: Protocol,
    /// When to ask again.
    until: Option<Instant>,
}

impl LearntProtocol {
    /// The protocol of the last connection that was opened, unless the peer was
    /// unreachable since.
    pub fn protocol(&self) -> Option<Protocol> {
        self.state.lock().map(|belief| belief.protocol)
    }

    /// What to rely on when opening the next connection.
    pub(crate) fn believed(&self, now: Instant) -> Option<Protocol> {
        let belief = (*self.state.lock())?;
        belief.until.is_none_or(|until| now < until).then_some(belief.protocol)
    }

    pub(crate) fn learn(&self, protocol: Protocol, evidence: ProtocolEvidence, now: Instant) {
        let until = match evidence {
            ProtocolEvidence::Agreed => None,
            ProtocolEvidence::Answered => Some(now + H1_BELIEVED),
            ProtocolEvidence::Silent => Some(now + H1_GUESSED),
        };
        *self.state.lock() = Some(Belief { protocol, until });
    }

    /// The peer could not be reached: another server may be there next time.
    pub(crate) fn forget(&self) {
        *self.state.lock() = None;
    }
}

/// What a belief rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtocolEvidence {
    /// Negotiated, configured or proven by a SETTINGS frame.
    Agreed,
    /// The peer answered the preface with something else.
    Answered,
    /// The peer did not answer the preface at all.
    Silent,
}

/// The outcome of a detection.
#[derive(Debug)]
pub(crate) enum Detected {
    /// HTTP/2; the preface is already written, and `read` arrived after it.
    H2 { stream: Stream, read: Bytes },
    /// HTTP/1.1, on a new connection.
    H1(ProtocolEvidence),
}

/// Opens `stream` with the HTTP/2 preface and looks at the first frame.
pub(crate) async fn detect(mut stream: Stream, bound: Duration) -> Detected {
    let mut read = BytesMut::with_capacity(1024);
    match timeout(bound, ask(&mut stream, &mut read)).await {
        Ok(Ok(true)) => Detected::H2 { stream, read: read.freeze() },
        Ok(Ok(false) | Err(_)) => Detected::H1(ProtocolEvidence::Answered),
        Err(_) => Detected::H1(ProtocolEvidence::Silent),
    }
}

async fn ask(stream: &mut Stream, read: &mut BytesMut) -> std::io::Result<bool> {
    // No SETTINGS of ours yet: the library sends its own, and would take the
    // acknowledgement of a second one for a breach of protocol.
    stream.write_all(PREFACE).await?;
    stream.flush().await?;
    while read.len() < FRAME_HEAD {
        if stream.read_buf(read).await? == 0 || read[0] == b'H' {
            return Ok(false);
        }
    }
    Ok(is_settings(read))
}

/// Whether `head` is the header of a SETTINGS frame that is not an acknowledgement.
fn is_settings(head: &[u8]) -> bool {
    matches!(head, [0, _, _, 4, 0, 0, 0, 0, 0, ..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpStream};

    /// Plays a peer that reads nothing but writes `answer`, then closes or stays.
    async fn check(answer: &'static [u8], stays: bool) -> (Detected, Duration) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (connected, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let mut peer = accepted.expect("accepted").0;
        let stream = Stream::Plain(connected.expect("connected"));
        peer.write_all(answer).await.expect("written");
        let kept = if stays {
            Some(peer)
        } else {
            // Reads what was asked first: closing over unread bytes would be a reset.
            peer.shutdown().await.expect("shut down");
            Some(peer)
        };
        let asked = Instant::now();
        let detected = detect(stream, Duration::from_millis(500)).await;
        drop(kept);
        (detected, asked.elapsed())
    }

    const BOUND: Duration = Duration::from_millis(500);

    #[tokio::test]
    async fn a_settings_frame_means_h2() {
        let (detected, _) = check(b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64", true).await;
        let Detected::H2 { read, .. } = detected else { panic!("{detected:?}") };
        assert_eq!(read.len(), 15);
    }

    #[tokio::test]
    async fn anything_else_means_h1_at_once() {
        for (answer, stays) in [
            (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], true),
            (b"H", true),
            (b"", false),
            (b"\0\0\x06", false),
            (b"\0\0\x08\x06\0\0\0\0\0........", true),
            (b"\0\0\0\x04\x01\0\0\0\0", true),
        ] {
            let (detected, took) = check(answer, stays).await;
            let h1 = matches!(detected, Detected::H1(ProtocolEvidence::Answered));
            assert!(h1, "{detected:?} for {answer:?}");
            assert!(took < BOUND);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_means_h1_after_the_bound() {
        let (detected, took) = check(b"", true).await;
        assert!(matches!(detected, Detected::H1(ProtocolEvidence::Silent)), "{detected:?}");
        assert!(took >= BOUND, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn beliefs_fade_as_their_evidence_deserves() {
        let learnt = LearntProtocol::default();
        let now = Instant::now();
        assert_eq!(learnt.believed(now), None);
        for (evidence, lasts) in [
            (ProtocolEvidence::Silent, Some(H1_GUESSED)),
            (ProtocolEvidence::Answered, Some(H1_BELIEVED)),
            (ProtocolEvidence::Agreed, None),
        ] {
            learnt.learn(Protocol::H1, evidence, now);
            assert_eq!(learnt.believed(now), Some(Protocol::H1));
            let late = now + lasts.unwrap_or(H1_BELIEVED * 100);
            assert_eq!(learnt.believed(late), lasts.is_none().then_some(Protocol::H1));
            assert_eq!(learnt.protocol(), Some(Protocol::H1), "still shown");
        }
        learnt.forget();
        assert_eq!((learnt.protocol(), learnt.believed(now)), (None, None));
    }
}
