//! The limits that a keeper serves, and the words in which the script is asked for each.

use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, Value};
use wellhead_limit::lease::{
    GATE_LIFE, GateAsk, LeaseAsk, LeaseGrant, LeasedBucket, LeasedCap, LeasedGate, LeasedLimit,
    LeasedWindow, PageAsk, WindowAsk, WindowGrant,
};

/// A limit, and what is asked for it.
#[derive(Debug)]
pub(super) enum LimitAsk {
    Bucket(Arc<LeasedBucket>, LeaseAsk),
    Cap(Arc<LeasedCap>, PageAsk),
    Gate(Arc<LeasedGate>, GateAsk),
    Window(Arc<LeasedWindow>, WindowAsk),
}

impl LimitAsk {
    /// What to ask for `limit`, if anything.
    pub(super) fn of(limit: &LeasedLimit, now: Duration, unix: Duration) -> Option<Self> {
        Some(match limit {
            LeasedLimit::Bucket(limit) => Self::Bucket(Arc::clone(limit), limit.ask(now)?),
            LeasedLimit::Cap(limit) => Self::Cap(Arc::clone(limit), limit.ask(now, unix)?),
            LeasedLimit::Gate(limit) => Self::Gate(Arc::clone(limit), limit.ask(now)?),
            LeasedLimit::Window(limit) => Self::Window(Arc::clone(limit), limit.ask(now)?),
        })
    }

    /// Hands the answer of the script over to the limit. `Some` says whether anything was granted or
    /// nothing wanted; `None`: it is no answer.
    pub(super) fn answer(&self, answer: &Value, now: Duration) -> Option<bool> {
        match self {
            Self::Bucket(limit, ask) => {
                let [granted, wait] = numbers(answer)?;
                let (granted, wait) = (unsigned(granted)?, Duration::from_micros(unsigned(wait)?));
                limit.grant(LeaseGrant { granted, wait }, now);
                Some(granted > 0 || ask.want == 0)
            }
            Self::Cap(limit, page) => {
                let [granted, day, month] = numbers(answer)?;
                let granted = unsigned(granted)?;
                let left = |left: i64| u64::try_from(left).unwrap_or(u64::MAX);
                limit.grant(*page, granted, (left(day), left(month)), now);
                Some(granted > 0 || page.ask.want == 0)
            }
            Self::Gate(limit, ask) => {
                let [places] = numbers(answer)?;
                let places = u32::try_from(places).ok()?;
                limit.grant(*ask, places, now);
                Some(places > 0 || ask.want == 0)
            }
            Self::Window(limit, WindowAsk { ask, .. }) => {
                let numbers: [i64; 4] = numbers(answer)?;
                let mut numbers = numbers.into_iter().map(unsigned);
                let mut next = || numbers.next().flatten();
                let (granted, left, ends_in, began) = (next()?, next()?, next()?, next()?);
                let ends_in = Duration::from_micros(ends_in);
                limit.grant(WindowGrant { granted, left, ends_in, began }, now);
                Some(granted > 0 || ask.want == 0)
            }
        }
    }

    /// Adds the call of the script for this ask.
    pub(super) fn write(&self, to: &mut ScriptCall<'_>, name: &str) {
        let ScriptCall { pipeline, sha, cluster, replica, replicas, latest } = to;
        let call = pipeline.cmd("EVALSHA").arg(*sha);
        // The braces keep all keys of a limit in one slot of a cluster.
        let key = format!("wh:{{{cluster}:{name}}}");
        match self {
            Self::Bucket(limit, ask) => {
                let terms = limit.terms();
                call.arg(1).arg(key).arg("rate").arg(*latest).arg(terms.rate).arg(terms.depth);
                call.arg(ask.want).arg(ask.need).arg(ask.back);
            }
            Self::Cap(limit, PageAsk { ask, day, month }) => {
                let terms = limit.terms();
                let cap = |cap: Option<u64>| cap.map_or(-1, |cap| cap.min(EXACT) as i64);
                call.arg(2).arg(format!("{key}:d{day}")).arg(format!("{key}:m{month}"));
                call.arg("cap")
                    .arg(*latest)
                    .arg(cap(terms.day))
                    .arg(cap(terms.month))
                    .arg(*replicas);
                call.arg(ask.want.min(EXACT)).arg(ask.need.min(EXACT)).arg(ask.back);
            }
            Self::Gate(_, ask) => {
                call.arg(1).arg(format!("{key}:g")).arg("gate").arg(*latest).arg(*replica);
                call.arg(ask.places).arg(ask.want).arg(ask.inside);
                call.arg(GATE_LIFE.as_micros() as u64);
            }
            Self::Window(limit, WindowAsk { ask, began }) => {
                let terms = limit.terms();
                call.arg(1).arg(format!("{key}:w")).arg("window").arg(*latest);
                call.arg(terms.credits.min(EXACT)).arg(terms.length).arg(*replicas).arg(began);
                call.arg(ask.want.min(EXACT)).arg(ask.need.min(EXACT)).arg(ask.back);
            }
        }
    }
}

/// The largest number up to which the script counts exactly.
const EXACT: u64 = 1 << 53;

/// What the calls of one round have in common.
pub(super) struct ScriptCall<'a> {
    pub(super) pipeline: &'a mut Pipeline,
    pub(super) sha: &'a str,
    pub(super) cluster: &'a str,
    pub(super) replica: &'a str,
    pub(super) replicas: u32,
    /// The latest moment for asks by the store's clock, in microseconds; 0: any.
    pub(super) latest: u64,
}

impl ScriptCall<'_> {
    /// Adds that this replica is here.
    pub(super) fn write_here(&mut self, keep: Duration) {
        self.pipeline
            .cmd("EVALSHA")
            .arg(self.sha)
            .arg(1)
            .arg(format!("wh:{{{}}}:replicas", self.cluster))
            .arg("here")
            // It does no harm later.
            .arg(0)
            .arg(self.replica)
            .arg(keep.as_micros() as u64);
    }
}

/// How many replicas there are, and the microseconds of the store's clock, as the script answered.
pub(super) fn replicas(answer: &Value) -> Option<(u32, u64)> {
    let [count, micros] = numbers(answer)?;
    Some((u32::try_from(count).ok()?, unsigned(micros)?))
}

/// Whether the script answered that the ask came too late.
pub(super) fn is_void(answer: &Value) -> bool {
    matches!(answer, Value::Array(items) if items.is_empty())
}

/// Numbers that the script wrote as text.
fn numbers<const N: usize>(answer: &Value) -> Option<[i64; N]> {
    let Value::Array(items) = answer else { return None };
    let numbers: Option<Vec<i64>> = items.iter().map(number).collect();
    numbers?.try_into().ok()
}

fn number(item: &Value) -> Option<i64> {
    match item {
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

fn unsigned(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}
