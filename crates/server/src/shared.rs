//! What the connections of all workers of one listener share: settings, counters, and what is
//! made of the settings once. Knows no connection.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::Settings;
use crate::cors::Cors;
use crate::count::ServerCounters;
use crate::head::RequestHead;
use crate::line::LineLimit;
use crate::proxied::ProxyFailure;
use crate::refusal::RefusalBodies;

/// A log line shows at most this many characters of a name from outside, all printable ASCII.
const NAME_CHARS_MAX: usize = 100;

fn shown(name: &[u8]) -> String {
    let printable = name.iter().filter(|byte| byte.is_ascii_graphic());
    printable.take(NAME_CHARS_MAX).map(|byte| char::from(*byte)).collect()
}

/// Settings, counters and log limits of one listener.
#[derive(Debug)]
pub(crate) struct ServerShared {
    pub(crate) settings: Settings,
    pub(crate) counters: ServerCounters,
    pub(crate) cors: Cors,
    pub(crate) refusals: RefusalBodies,
    pub(crate) compression_jobs: Semaphore,
    lines: LineLimit,
    origin_hints: LineLimit,
    host_hints: LineLimit,
    flood_hints: LineLimit,
    hoarder_hints: LineLimit,
    certificate_hints: LineLimit,
    proxy_hints: LineLimit,
    denial_hints: LineLimit,
    audit_lines: LineLimit,
    /// The drain time is over.
    is_cut: AtomicBool,
}

impl ServerShared {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            cors: Cors::new(&settings.cors_origins),
            refusals: RefusalBodies::new(&settings),
            compression_jobs: Semaphore::new(settings.compression.jobs_max),
            counters: ServerCounters::default(),
            lines: LineLimit::of_lines(),
            origin_hints: LineLimit::of_hints(),
            host_hints: LineLimit::of_hints(),
            flood_hints: LineLimit::of_hints(),
            hoarder_hints: LineLimit::of_hints(),
            certificate_hints: LineLimit::of_hints(),
            proxy_hints: LineLimit::of_hints(),
            denial_hints: LineLimit::of_hints(),
            audit_lines: LineLimit::of_lines(),
            is_cut: AtomicBool::new(false),
            settings,
        }
    }

    /// Notes that the drain time is over.
    pub(crate) fn note_cut(&self) {
        self.is_cut.store(true, Relaxed);
    }

    /// The status and the reason that stand for a request without an answer.
    pub(crate) fn unanswered(&self) -> (u16, &'static str) {
        if self.is_cut.load(Relaxed) { (503, "drain_cut") } else { (499, "client_closed") }
    }

    /// Leaves the line of a request that no handler tells of, or counts it as left out.
    pub(crate) fn tell(&self, peer: SocketAddr, status: u16, reason: &'static str) {
        if !self.settings.log_requests {
            return;
        }
        if let Some(left_out) = self.lines.take(Instant::now()) {
            tracing::info!(target: "wellhead::request", %peer, status, reason, left_out, "request");
        }
    }

    /// Says which web page was refused, as the page itself is told nothing.
    pub(crate) fn hint_at_origin(&self, origin: Option<&[u8]>) {
        if let Some(left_out) = self.origin_hints.take(Instant::now()) {
            let origin = shown(origin.unwrap_or_default());
            tracing::warn!(
                origin,
                left_out,
                "refused a call from a web page: add its origin to `cors.origins`"
            );
        }
    }

    /// Says under which name a request was refused, as few clients show what they are answered,
    /// and which setting lists names.
    pub(crate) fn hint_at_host(&self, head: &RequestHead<'_>, setting: &'static str) {
        if let Some(left_out) = self.host_hints.take(Instant::now()) {
            let authority = head.target.authority().map(str::as_bytes);
            let host = shown(head.headers.get("host").or(authority).unwrap_or_default());
            tracing::warn!(
                host,
                left_out,
                "refused a request for this host name: add the name to `{setting}`"
            );
        }
    }

    /// Says which client's connection was ended for a flood.
    pub(crate) fn hint_at_flood(&self, peer: SocketAddr) {
        if let Some(left_out) = self.flood_hints.take(Instant::now()) {
            tracing::warn!(
                %peer,
                left_out,
                "closed an HTTP/2 connection: its client resets too many streams"
            );
        }
    }

    /// Says why a client has no valid certificate, as the client is told no more than an alert.
    pub(crate) fn hint_at_certificate(&self, peer: SocketAddr, error: &io::Error) {
        if let Some(left_out) = self.certificate_hints.take(Instant::now()) {
            tracing::warn!(%peer, %error, left_out, "refused a client without a valid certificate");
        }
    }

    /// Says why a connection was closed that should have told its client's address. A peer that only
    /// looks whether the port is open is not worth a line.
    pub(crate) fn hint_at_proxy(&self, peer: SocketAddr, failure: ProxyFailure) {
        let hint = match failure {
            ProxyFailure::Left => return,
            ProxyFailure::Slow => "its PROXY protocol header did not arrive in time",
            ProxyFailure::Missing => {
                "it began without a PROXY protocol header: does the proxy send one?"
            }
            ProxyFailure::Malformed => "its PROXY protocol header is malformed",
            ProxyFailure::Untrusted => {
                "a PROXY protocol header is required, and this peer is not in `access.proxies.trust`"
            }
            ProxyFailure::Full => "too many connections had not sent their PROXY protocol header",
        };
        if let Some(left_out) = self.proxy_hints.take(Instant::now()) {
            tracing::warn!(%peer, left_out, "closed a connection: {hint}");
        }
    }

    /// Says that the admin listener refused a request.
    pub(crate) fn hint_at_denial(&self, peer: SocketAddr, why: &dyn fmt::Debug) {
        if let Some(left_out) = self.denial_hints.take(Instant::now()) {
            tracing::warn!(%peer, ?why, left_out, "refused a request to the admin listener");
        }
    }

    /// Takes the place of an audit line of something that was not done.
    pub(crate) fn take_audit_line(&self) -> Option<u64> {
        self.audit_lines.take(Instant::now())
    }

    /// Says which client's connection was ended for what it did not take.
    pub(crate) fn hint_at_hoarder(&self, peer: SocketAddr) {
        if let Some(left_out) = self.hoarder_hints.take(Instant::now()) {
            tracing::warn!(
                %peer,
                left_out,
                "closed a connection: its client does not read its answers"
            );
        }
    }
}
