//! The line of the log that each request leaves at its end, also one whose client goes away.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use wellhead_access::mask_keys;
use wellhead_dispatch::{Allowance, Progress, WorkerUpstreams, now};
use wellhead_eth::{MethodRow, MethodTable};
use wellhead_jsonrpc::{Call, Packet};
use wellhead_route::Roster;
use wellhead_transport::TraceId;
use wellhead_upstream::UpstreamSet;

use crate::answer::Answer;
use crate::line_sampler::LineSampler;
use crate::request::context::{Ctx, Settings, Target};
use crate::state::chain::ServedChain;
use crate::trace::span::{RequestFacts, is_failure};
use crate::trace::{RequestTrace, Tracer};

/// The status that stands for "the client went away before there was an answer".
const CLIENT_CLOSED: u16 = 499;

/// A client's own word for a method is cut, so that it cannot flood the log.
const METHOD_CHARS_MAX: usize = 64;
/// This many methods of a batch are named, and as many of its upstreams; the rest is counted.
const NAMED_MAX: usize = 8;

/// What the closing line says of the calls.
pub(crate) struct Line {
    pub(crate) method: Cow<'static, str>,
    pub(crate) calls: usize,
    pub(crate) failed: usize,
    /// From its arrival to its answer.
    pub(crate) took: Duration,
    /// What was in it, if it was a batch.
    pub(crate) batch: Option<Box<InBatch>>,
}

impl Line {
    /// Of a request that was no call.
    pub(crate) fn rejected(received_at: Instant) -> Self {
        let took = now().saturating_duration_since(received_at);
        Self { method: "-".into(), calls: 0, failed: 1, took, batch: None }
    }
}

/// The methods of a batch and the upstreams that answered.
#[derive(Debug)]
pub(crate) struct InBatch {
    pub(crate) methods: Methods,
    pub(crate) upstreams: UpstreamSet,
}

/// How often each method is in a batch.
#[derive(Debug, Default)]
pub(crate) struct Methods {
    named: [(&'static str, usize); NAMED_MAX],
    len: usize,
    /// Calls of further methods.
    others: usize,
}

impl Methods {
    /// Most batches ask for the same many times, so that the last one is looked at first.
    pub(crate) fn count(&mut self, name: &'static str) {
        match self.named().iter().rposition(|(known, _)| std::ptr::eq(*known, name)) {
            Some(place) => self.named[place].1 += 1,
            None if self.len < NAMED_MAX => {
                self.named[self.len] = (name, 1);
                self.len += 1;
            }
            None => self.others += 1,
        }
    }

    fn named(&self) -> &[(&'static str, usize)] {
        &self.named[..self.len]
    }

    /// `eth_call*3,eth_chainId,+2`.
    fn words(&self) -> String {
        let mut words = String::new();
        for (name, count) in self.named() {
            let comma = if words.is_empty() { "" } else { "," };
            // Writing to a String cannot fail.
            let _ = match count {
                1 => write!(words, "{comma}{name}"),
                count => write!(words, "{comma}{name}*{count}"),
            };
        }
        if self.others > 0 {
            let _ = write!(words, ",+{}", self.others);
        }
        words
    }
}

/// `geth-a,reth-b,+2`; `-` for none.
fn names(upstreams: UpstreamSet, roster: &Roster) -> String {
    let mut set = roster.upstreams().iter().filter(|it| upstreams.contains(it.slot()));
    let mut words = String::new();
    for upstream in set.by_ref().take(NAMED_MAX) {
        let comma = if words.is_empty() { "" } else { "," };
        let _ = write!(words, "{comma}{}", upstream.identity().id);
    }
    match (set.count(), words.is_empty()) {
        (0, true) => "-".to_owned(),
        (0, false) => words,
        (more, _) => format!("{words},+{more}"),
    }
}

/// What the lines of a proxy's requests have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLog<'a> {
    pub(crate) lines: &'a LineSampler,
    /// Decides which of them leave a trace.
    pub(crate) tracer: Option<&'a Tracer>,
    /// Requests that end without an answer are cut, at the end of a drain.
    pub(crate) is_cut: &'a AtomicBool,
}

/// Leaves the line of one request: by [`Closing::end`], or, when the request is dropped before
/// that, of what was being tried.
#[derive(Debug)]
pub(crate) struct Closing<'a> {
    pub(crate) ctx: Ctx,
    /// The chain as the client called it.
    named: Option<&'a str>,
    bytes_in: usize,
    chain: Option<&'a Arc<ServedChain>>,
    /// What it leaves for its trace; only where it leads to a chain.
    trace: Option<RequestTrace<'a>>,
    is_websocket: bool,
    /// What the body holds, once it is read.
    method: Option<Cow<'static, str>>,
    pub(crate) progress: Progress,
    /// Whether a line is left at all.
    is_told: bool,
    is_done: bool,
    log: RequestLog<'a>,
}

impl<'a> Closing<'a> {
    pub(crate) fn new(
        ctx: Ctx,
        target: Target<'a>,
        body: &Bytes,
        Settings { log_requests: is_told, upstream_calls, .. }: Settings,
        log: RequestLog<'a>,
        is_websocket: bool,
    ) -> Self {
        let progress =
            Progress::new(Allowance::new(upstream_calls)).from_client(Some(ctx.tenant()));
        Self {
            ctx,
            named: target.chain,
            bytes_in: body.len(),
            chain: None,
            trace: None,
            is_websocket,
            method: None,
            progress,
            is_told,
            is_done: false,
            log,
        }
    }

    /// Notes which chain the path led to, and begins the trace.
    pub(crate) fn leads_to(&mut self, chain: &'a Arc<ServedChain>, worker: &WorkerUpstreams) {
        self.chain = Some(chain);
        let Some(tracer) = self.log.tracer else { return };
        let parent = self.ctx.trace_parent.take();
        self.trace = Some(worker.with_rng(|rng| tracer.begin(parent, rng)));
    }

    /// What it leaves for its trace.
    pub(crate) fn trace(&self) -> Option<&RequestTrace<'a>> {
        self.trace.as_ref()
    }

    /// Ends the trace of a request that was answered, or `cut` for a reason. Returns its id if it is kept.
    fn end_trace(
        &mut self,
        line: &Line,
        status: u16,
        cut: Option<&'static str>,
    ) -> Option<TraceId> {
        let cause = self.trace.as_mut()?.cause_at_end(is_failure(status), line.took)?;
        let (trace, chain) = (self.trace.take()?, self.chain?);
        let facts = RequestFacts {
            began: self.ctx.received_at,
            ended: self.ctx.received_at + line.took,
            chain: &chain.name.name,
            method: &line.method,
            client: self.ctx.address(),
            tenant: self.ctx.tenant_name(),
            key_id: self.ctx.key_id(),
            is_websocket: self.is_websocket,
            status,
            calls: line.calls,
            failed: line.failed,
            bytes_in: self.bytes_in,
            cut,
        };
        let name = |slot| chain.roster.upstream(slot).identity().id.shared();
        trace.tell(cause, &facts, &chain.counts().chain.exemplars, name)
    }

    /// Notes what the body holds, for the line; nothing where none is left.
    pub(crate) fn holds(&mut self, packet: &Packet) {
        if !self.is_told {
            return;
        }
        self.method = Some(match packet {
            Packet::Single(Ok(call)) => method_of(MethodTable::standard().row(call.method()), call),
            Packet::Single(Err(_)) => "-".into(),
            Packet::Batch(_) => "batch".into(),
        });
    }

    /// The chain, or what the path names in its place, which may be a key.
    fn chain(&self) -> Cow<'_, str> {
        match self.chain {
            Some(chain) => Cow::Borrowed(&*chain.name.name),
            None => mask_keys(self.named.unwrap_or("-")),
        }
    }

    /// Whether a line is left, which takes its place among those of the second. A line that the filter of
    /// the log would leave out takes none.
    fn takes_line(&self, has_failed: bool, took: Duration) -> bool {
        self.is_told
            && tracing::enabled!(target: "wellhead::request", tracing::Level::INFO)
            && self.log.lines.take(has_failed, self.ctx.received_at + took)
    }

    /// The request was answered.
    pub(crate) fn end(mut self, answer: &Answer, line: &Line) {
        self.is_done = true;
        let trace = self.end_trace(line, answer.status, None);
        if !self.takes_line(line.failed > 0 || answer.status >= 400, line.took) {
            return;
        }
        let batch = line.batch.as_ref().zip(self.chain);
        let upstreams = batch.map(|(batch, chain)| names(batch.upstreams, &chain.roster));
        tracing::info!(
            target: "wellhead::request",
            peer = %self.ctx.peer,
            tenant = self.ctx.tenant_name(),
            key = self.ctx.key_id(),
            chain = &*self.chain(),
            method = line.method.as_ref(),
            methods = batch.map(|(batch, _)| batch.methods.words()),
            calls = line.calls,
            failed = line.failed,
            status = answer.status,
            upstream = upstreams.as_deref().or(answer.upstream.as_deref()).unwrap_or("-"),
            attempts = answer.attempts,
            bytes_in = self.bytes_in,
            bytes_out = answer.body.iter().map(Bytes::len).sum::<usize>(),
            flowing = answer.rest.is_some(),
            ms = ms(line.took),
            trace = trace.map(tracing::field::display),
            "request"
        );
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        // What panics is answered with 500 by the listener, and told by it.
        if self.is_done || std::thread::panicking() {
            return;
        }
        let (status, reason) = match self.log.is_cut.load(Relaxed) {
            true => (503, "drain_cut"),
            false => (CLIENT_CLOSED, "client_closed"),
        };
        let took = now().saturating_duration_since(self.ctx.received_at);
        let method = self.method.take().unwrap_or("-".into());
        let line = Line { method, calls: 0, failed: 0, took, batch: None };
        let trace = self.end_trace(&line, status, Some(reason));
        if !self.takes_line(true, took) {
            return;
        }
        let id = |chain: &Arc<ServedChain>| {
            let slot = self.progress.last()?;
            Some(chain.roster.upstream(slot).identity().id.shared())
        };
        let upstream = self.chain.and_then(id);
        tracing::info!(
            target: "wellhead::request",
            peer = %self.ctx.peer,
            tenant = self.ctx.tenant_name(),
            key = self.ctx.key_id(),
            chain = &*self.chain(),
            method = line.method.as_ref(),
            status,
            reason,
            upstream = upstream.as_deref().unwrap_or("-"),
            attempts = self.progress.begun(),
            bytes_in = self.bytes_in,
            ms = ms(took),
            trace = trace.map(tracing::field::display),
            "request"
        );
    }
}

/// What a call is named in the log: by the table, as a client's own words are without number, and may be a
/// key in the wrong place.
pub(crate) fn method_of(row: &MethodRow, call: &Call) -> Cow<'static, str> {
    match row.is_unknown() {
        true => {
            let named = mask_keys(call.method());
            named.chars().take(METHOD_CHARS_MAX).collect::<String>().into()
        }
        false => row.name.into(),
    }
}

/// In milliseconds, with three decimals.
fn ms(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_have_three_decimals() {
        for (nanos, expected) in
            [(103_700_934, "103.701"), (0, "0"), (1, "0"), (500, "0.001"), (2_000_000, "2")]
        {
            assert_eq!(ms(Duration::from_nanos(nanos)).to_string(), expected);
        }
    }

    #[test]
    fn methods_of_a_batch_are_bounded() {
        let rows = MethodTable::standard().rows();
        let mut methods = Methods::default();
        assert_eq!(methods.words(), "");
        (0..3).for_each(|_| methods.count(rows[1].name));
        methods.count(rows[2].name);
        assert_eq!(methods.words(), format!("{}*3,{}", rows[1].name, rows[2].name));
        rows[1..100].iter().for_each(|row| methods.count(row.name));
        let words = methods.words();
        assert!(
            words.starts_with(&format!("{}*4,{}*2,{},", rows[1].name, rows[2].name, rows[3].name))
        );
        assert!(words.ends_with(",+91"), "{words}");
    }
}
