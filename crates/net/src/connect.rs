//! From an address to a connection that speaks HTTP: dial, agree on the
//! protocol, shake hands.
//!
//! Decides which protocol a connection speaks; how many connections there are
//! is decided in `pool`.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

use crate::detect::{Detected, LearntProtocol, ProtocolEvidence, detect};
use crate::dial::{DialStep, Dialer, Stream};
use crate::endpoint::{HttpVersion, Prepared};
use crate::h1::H1Connection;
use crate::h2::{Fate, H2Connection, H2Observer, Opening};
use crate::journal::{ConnectionLog, SetUp};
use crate::protocol::Protocol;
use crate::settings::ClientSettings;
use crate::stats::ConnectionStats;

/// Opens connections to one upstream on behalf of its pool.
#[derive(Debug)]
pub(crate) struct Connector {
    dialer: Dialer,
    version: HttpVersion,
    learnt: Arc<LearntProtocol>,
    stats: Arc<ConnectionStats>,
    settings: ClientSettings,
    jitter: Mutex<Jitter>,
}

/// A connection just opened.
#[derive(Debug)]
pub(crate) enum Connected {
    H1(Box<H1Connection>),
    H2(Arc<H2Connection>),
}

impl Connector {
    pub(crate) fn new(
        dialer: Dialer,
        prepared: &Prepared,
        learnt: Arc<LearntProtocol>,
        stats: Arc<ConnectionStats>,
        settings: ClientSettings,
        seed: u64,
    ) -> Self {
        let jitter = Mutex::new(Jitter(seed));
        Self { dialer, version: prepared.version, learnt, stats, settings, jitter }
    }

    /// The protocol that the next connection will probably speak.
    pub(crate) fn expected(&self, now: Instant) -> Option<Protocol> {
        match self.version {
            HttpVersion::H1 => Some(Protocol::H1),
            HttpVersion::H2 => Some(Protocol::H2),
            HttpVersion::Auto => self.learnt.believed(now),
        }
    }

    /// Opens one connection within the connect timeout.
    ///
    /// `admit` counts an HTTP/2 connection as open; its task holds what that gives until the
    /// connection has ended. An HTTP/1.1 connection has no task: the caller counts it.
    pub(crate) async fn connect<O: H2Observer>(
        &self,
        admit: impl FnOnce(Fate) -> O,
    ) -> Result<Connected, TransportError> {
        let mut step = DialStep::LookUp;
        let deadline = Instant::now() + self.settings.connect_timeout;
        let opened = timeout_at(deadline, self.open(admit, deadline, &mut step));
        let result = match opened.await {
            Ok(result) => result,
            Err(_) => Err(step.timed_out()),
        };
        if let Err(error) = &result {
            self.stats.note_connect_failed(error.kind);
            self.stats.caps.was_down(Instant::now());
            // The next connection may reach another server.
            self.learnt.forget();
        }
        result
    }

    async fn open<O: H2Observer>(
        &self,
        admit: impl FnOnce(Fate) -> O,
        deadline: Instant,
        step: &mut DialStep,
    ) -> Result<Connected, TransportError> {
        let (stream, set_up) = self.dialer.dial(deadline, step).await?;
        *step = DialStep::Http;
        if self.dialer.is_secure() {
            return self.open_by_alpn(admit, stream, set_up);
        }
        let now = Instant::now();
        if self.expected(now) == Some(Protocol::H1) {
            let evidence = ProtocolEvidence::Agreed;
            // What was learnt by asking keeps its own expiry.
            if self.version == HttpVersion::H1 {
                self.learnt.learn(Protocol::H1, evidence, now);
            }
            return Ok(self.open_h1(stream, set_up));
        }
        match detect(stream, self.settings.detect_timeout).await {
            Detected::H2 { stream, read } => {
                self.learnt.learn(Protocol::H2, ProtocolEvidence::Agreed, Instant::now());
                self.open_h2(admit, stream, Some(read), set_up)
            }
            Detected::H1(_) if self.version == HttpVersion::H2 => Err(speaks_no_h2()),
            Detected::H1(evidence) => {
                self.learnt.learn(Protocol::H1, evidence, Instant::now());
                let (stream, set_up) = self.dialer.dial(deadline, step).await?;
                Ok(self.open_h1(stream, set_up))
            }
        }
    }

    fn open_by_alpn<O: H2Observer>(
        &self,
        admit: impl FnOnce(Fate) -> O,
        stream: Stream,
        set_up: SetUp,
    ) -> Result<Connected, TransportError> {
        let now = Instant::now();
        if stream.chose_h2() {
            self.learnt.learn(Protocol::H2, ProtocolEvidence::Agreed, now);
            return self.open_h2(admit, stream, None, set_up);
        }
        if self.version == HttpVersion::H2 {
            return Err(speaks_no_h2());
        }
        self.learnt.learn(Protocol::H1, ProtocolEvidence::Agreed, now);
        Ok(self.open_h1(stream, set_up))
    }

    fn open_h1(&self, stream: Stream, set_up: SetUp) -> Connected {
        let now = Instant::now();
        let page = self.page(Protocol::H1, &stream, set_up);
        let connection = H1Connection::new(stream, now, self.retire_at(now)).noted_on(page);
        Connected::H1(Box::new(connection))
    }

    fn open_h2<O: H2Observer>(
        &self,
        admit: impl FnOnce(Fate) -> O,
        stream: Stream,
        read: Option<Bytes>,
        set_up: SetUp,
    ) -> Result<Connected, TransportError> {
        let page = self.page(Protocol::H2, &stream, set_up);
        let fate = Fate::new();
        let member = admit(fate.clone());
        let retire_at = self.retire_at(Instant::now());
        let (settings, stats) = (&self.settings, &self.stats);
        let opening = Opening { stream, read, page };
        let opened = H2Connection::open(opening, fate, member, settings, stats, retire_at)?;
        Ok(Connected::H2(Arc::new(opened)))
    }

    /// A page of the journal, where there is one.
    fn page(
        &self,
        protocol: Protocol,
        stream: &Stream,
        set_up: SetUp,
    ) -> Option<Box<ConnectionLog>> {
        let journal = self.stats.journal()?;
        Some(ConnectionLog::open(journal, protocol, stream.alpn(), set_up))
    }

    /// Up to a tenth earlier than the full age, so that connections opened together
    /// are not replaced together.
    fn retire_at(&self, now: Instant) -> Instant {
        let age = self.settings.age_max;
        let tenths = self.jitter.lock().next_fraction();
        now + age - age.mul_f64(tenths / 10.0)
    }
}

fn speaks_no_h2() -> TransportError {
    let detail = "the peer does not speak HTTP/2";
    TransportError::new(TransportErrorKind::Protocol, Sent::No, detail)
}

/// SplitMix64: enough for jitter, and a seed makes it repeatable.
#[derive(Debug)]
pub(crate) struct Jitter(pub(crate) u64);

impl Jitter {
    /// At least 0, below 1.
    pub(crate) fn next_fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_fills_its_range_and_repeats_with_its_seed() {
        let draw = |seed| {
            let mut jitter = Jitter(seed);
            (0..1000).map(|_| jitter.next_fraction()).collect::<Vec<_>>()
        };
        let drawn = draw(7);
        assert_eq!(drawn, draw(7));
        assert_ne!(drawn, draw(8));
        assert!(drawn.iter().all(|f| (0.0..1.0).contains(f)));
        let mean = drawn.iter().sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
    }
}
