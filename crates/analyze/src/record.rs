//! What happened, one line each: `records.jsonl`, and `run.json` beside it.
//!
//! JSON lines, because pandas, `DuckDB` and Observable read them as they are, and because a
//! run that is cut leaves all of its lines but the last. No line holds a URL, a header or a
//! body: a target is known by its id and its host. What the lines mean is none of this
//! module's business: see `verdict`.

mod spending;
pub(crate) mod trial;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Read as _, Seek as _, SeekFrom, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

pub(crate) use spending::costs;
pub use spending::spent;
pub use trial::{PlayedCell, Trial, trials};

/// The format that [`RunRecord::format`] names. 2 has units in the names of times and shares, and
/// the ids of run and target and the wall clock in each line.
pub const FORMAT: u32 = 2;

/// The JSON Schema (draft 2020-12) of a line of `records.jsonl`.
pub const RECORDS_SCHEMA: &str = include_str!("../data/records.schema.json");

/// The JSON Schema of `run.json`.
pub const RUN_SCHEMA: &str = include_str!("../data/run.schema.json");

/// The first format that is still read: its names have no units.
pub const FORMAT_MIN: u32 = 1;

/// A longer line is no record: the longest has a few hundred bytes, and a text from outside
/// that is bounded where it is taken in.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// No time, length or count is larger, so that sums of them fit: what a float tells exactly, and
/// in microseconds 285 years.
pub const NUMBER_MAX: u64 = 1 << 53;

/// Likewise of credits and shares.
const FIGURE_MAX: f64 = 1e15;

/// One line of `records.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// One call.
    Call(CallRecord),
    /// What a connection did.
    Wire(WireRecord),
    /// One cell of an experiment, written when it has ended.
    Cell(Cell),
    /// What became of many calls, where they are not written one by one.
    Rollup(Rollup),
}

impl Record {
    /// The call, if it is one.
    pub fn call(&self) -> Option<&CallRecord> {
        if let Self::Call(call) = self { Some(call) } else { None }
    }

    /// What a connection did, if it tells that.
    pub fn wire(&self) -> Option<&WireRecord> {
        if let Self::Wire(wire) = self { Some(wire) } else { None }
    }

    /// The cell, if it ends one.
    pub fn cell(&self) -> Option<&Cell> {
        if let Self::Cell(cell) = self { Some(cell) } else { None }
    }

    /// The rollup, if it is one.
    pub fn rollup(&self) -> Option<&Rollup> {
        if let Self::Rollup(rollup) = self { Some(rollup) } else { None }
    }
}

/// One call. Times are microseconds: `*_at` since the start of the run, the others lengths.
/// What did not happen is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// The name of the experiment, such as `rate`.
    pub experiment: String,
    /// [`Cell::cell`] of the cell that it belongs to.
    pub cell: u32,
    /// Index in [`RunRecord::targets`].
    pub target: u32,
    /// Number within the cell, in the order of intended starts.
    pub n: u64,
    /// The method.
    pub method: String,
    /// When it should have begun by its schedule; where there is none, the same as `begun_at`.
    #[serde(rename = "intended_at_us", alias = "intended_at")]
    pub intended_at: u64,
    /// When it was handed to the transport.
    #[serde(rename = "begun_at_us", alias = "begun_at")]
    pub begun_at: u64,
    /// Waiting for a connection or a stream, and for the protocol to be agreed on.
    #[serde(rename = "queue_us", alias = "queue", skip_serializing_if = "Option::is_none")]
    pub queue: Option<u64>,
    /// Looking up the name; only with the first call on a connection that waited for it, as are
    /// the next two.
    #[serde(rename = "dns_us", alias = "dns", skip_serializing_if = "Option::is_none")]
    pub dns: Option<u64>,
    /// Connecting.
    #[serde(rename = "tcp_us", alias = "tcp", skip_serializing_if = "Option::is_none")]
    pub tcp: Option<u64>,
    /// Shaking hands.
    #[serde(rename = "tls_us", alias = "tls", skip_serializing_if = "Option::is_none")]
    pub tls: Option<u64>,
    /// Until the socket had all of the request.
    #[serde(rename = "write_us", alias = "write", skip_serializing_if = "Option::is_none")]
    pub write: Option<u64>,
    /// From written to the first byte of the answer.
    #[serde(
        rename = "first_byte_us",
        alias = "first_byte",
        skip_serializing_if = "Option::is_none"
    )]
    pub first_byte: Option<u64>,
    /// From there to the last.
    #[serde(rename = "transfer_us", alias = "transfer", skip_serializing_if = "Option::is_none")]
    pub transfer: Option<u64>,
    /// When the answer was whole, or the call had failed.
    #[serde(rename = "ended_at_us", alias = "ended_at")]
    pub ended_at: u64,
    /// Which connection carried it; a number of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<u64>,
    /// Which stream of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    /// `http/1.1`, `h2` or `ws`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Bytes of the request's body.
    pub bytes_out: u64,
    /// Bytes of the answer's body.
    pub bytes_in: u64,
    /// The HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The code of the JSON-RPC error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
    /// The class of the proxy's own verdict, by its word: `answer`, `null`, `throttled`, ...
    pub class: String,
    /// The rule that decided it.
    pub rule: String,
    /// The pause that was asked for, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What the answer's headers tell of limits, by name: `retry-after`, `x-ratelimit-remaining`,
    /// ... Short, and nothing that could be a key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
    /// How the transport failed, by its word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the catalogue says that it costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credits: Option<f64>,
}

/// What a connection did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireRecord {
    /// The name of the experiment.
    pub experiment: String,
    /// The cell.
    pub cell: u32,
    /// Index in [`RunRecord::targets`].
    pub target: u32,
    /// When, microseconds since the start of the run.
    #[serde(rename = "at_us", alias = "at")]
    pub at: u64,
    /// The connection, as in [`CallRecord::connection`].
    pub connection: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: WireEvent,
}

/// What can happen to a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WireEvent {
    /// It is open.
    Opened {
        /// `http/1.1` or `h2`.
        protocol: String,
        /// What ALPN agreed on; absent without TLS.
        #[serde(skip_serializing_if = "Option::is_none")]
        alpn: Option<String>,
        /// How long it took, microseconds: looking up the name.
        #[serde(rename = "dns_us", alias = "dns", skip_serializing_if = "Option::is_none")]
        dns: Option<u64>,
        /// Connecting.
        #[serde(rename = "tcp_us", alias = "tcp", skip_serializing_if = "Option::is_none")]
        tcp: Option<u64>,
        /// Shaking hands.
        #[serde(rename = "tls_us", alias = "tls", skip_serializing_if = "Option::is_none")]
        tls: Option<u64>,
    },
    /// The other side's settings came.
    Settings {
        /// Streams that it takes at once; absent when it did not say.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_streams: Option<u32>,
        /// The others, by the names of RFC 9113 in small letters, or by their number.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        others: BTreeMap<String, u32>,
    },
    /// The other side goes away. One that does so gently says it twice, first with the largest
    /// number that there is.
    Goaway {
        /// The error code.
        code: u32,
        /// The last stream that it may have acted on.
        last_stream: u32,
        /// What it says; chosen by the other side, bounded, and without what could be a key.
        debug: String,
    },
    /// A stream was reset.
    Reset {
        /// The stream.
        stream: u32,
        /// The error code; 7 is `REFUSED_STREAM`.
        code: u32,
    },
    /// It is closed.
    Closed {
        /// Why, in a word.
        reason: String,
        /// Calls that it carried.
        calls: u64,
        /// Of these, those without a whole answer.
        in_flight: u32,
    },
}

impl WireEvent {
    /// Its kind, as in the records.
    pub fn word(&self) -> &'static str {
        self.into()
    }
}

/// Why nothing is concluded from what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellDoubt {
    /// The generator fell behind or had no processor left.
    Behind,
    /// Calls waited here for each other, because all of the analyser's connections were all busy.
    Full,
    /// A call was not made, or what became of it is not known.
    Lost,
}

impl CellDoubt {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Behind => "the generator fell behind",
            Self::Full => "the analyser's connections were all busy",
            Self::Lost => "calls were not made, or their outcome is unknown",
        }
    }

    /// Whether only the times of calls are doubted: what was refused was refused, however late we saw it.
    pub(crate) fn is_of_times(self) -> bool {
        match self {
            Self::Behind => true,
            Self::Full | Self::Lost => false,
        }
    }
}

/// One cell of an experiment: the factor that varies has one value in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The name of the experiment.
    pub experiment: String,
    /// The version of its plan.
    pub version: u32,
    /// The number of the cell, unique within experiment and target.
    pub cell: u32,
    /// Which repeat of the same factors, from 0.
    pub repeat: u32,
    /// Which time it was played again because its times were doubted; 0 for the cell itself.
    #[serde(default, skip_serializing_if = "is_first")]
    pub again: u32,
    /// How often the run had been gone on with when it was played.
    #[serde(default, skip_serializing_if = "is_first")]
    pub part: u32,
    /// Index in [`RunRecord::targets`].
    pub target: u32,
    /// What is varied and held, such as `{"protocol":"h2","connections":"1"}`.
    pub factors: BTreeMap<String, String>,
    /// Microseconds since the start of the run.
    #[serde(rename = "begun_at_us", alias = "begun_at")]
    pub begun_at: u64,
    /// Likewise.
    #[serde(rename = "ended_at_us", alias = "ended_at")]
    pub ended_at: u64,
    /// Calls that were made.
    pub calls: u64,
    /// What it cost the generator.
    #[serde(flatten)]
    pub load: GeneratorLoad,
}

impl Cell {
    /// Its factors in words, such as `rate 10, work mix`.
    pub(crate) fn setting(&self) -> String {
        let factors = self.factors.iter().map(|(name, value)| format!("{name} {value}"));
        factors.collect::<Vec<_>>().join(", ")
    }
}

/// Factors of a cell, by their names.
pub(crate) fn factors<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn is_first(number: &u32) -> bool {
    *number == 0
}

/// What became of the calls of a cell that ended within a while. Times are microseconds: `*_at`
/// since the start of the run, the others lengths, of calls that were served, from their intended
/// start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rollup {
    /// The name of the experiment.
    pub experiment: String,
    /// The cell.
    pub cell: u32,
    /// Index in [`RunRecord::targets`].
    pub target: u32,
    /// When it begins.
    #[serde(rename = "begun_at_us", alias = "begun_at")]
    pub begun_at: u64,
    /// When it ends.
    #[serde(rename = "ended_at_us", alias = "ended_at")]
    pub ended_at: u64,
    /// Calls that ended.
    pub calls: u64,
    /// Of these, those that were served.
    pub served: u64,
    /// Those that were not, by the class of the verdict.
    pub unserved: BTreeMap<String, u64>,
    /// What connections did meanwhile: how often, by the kind of event.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub wire: BTreeMap<String, u64>,
    /// Half took no longer.
    #[serde(rename = "p50_us", alias = "p50", skip_serializing_if = "Option::is_none")]
    pub p50: Option<u64>,
    /// 95 % took no longer.
    #[serde(rename = "p95_us", alias = "p95", skip_serializing_if = "Option::is_none")]
    pub p95: Option<u64>,
    /// 99 % took no longer.
    #[serde(rename = "p99_us", alias = "p99", skip_serializing_if = "Option::is_none")]
    pub p99: Option<u64>,
    /// The longest.
    #[serde(rename = "max_us", alias = "max", skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// Credits by the catalogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credits: Option<f64>,
    /// What it cost the generator.
    #[serde(flatten)]
    pub load: GeneratorLoad,
}

/// What calls cost the machine that made them, and whether that shows in their times.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorLoad {
    /// Actual minus intended start, 99th percentile, microseconds.
    #[serde(rename = "late_p99_us", alias = "late_p99")]
    pub late_p99: u64,
    /// How late the generator's loop saw ticks that fell due, likewise; 0 where it measures no time.
    #[serde(rename = "lag_p99_us", alias = "lag_p99", default)]
    pub lag_p99: u64,
    /// The share of one core that the generator used; finite.
    #[serde(rename = "cpu_share", alias = "cpu")]
    pub cpu: f64,
    /// The share of the time that it was ready and had to wait for a core; finite.
    #[serde(rename = "waited_share", alias = "waited", default)]
    pub waited: f64,
    /// What was measured may be our own: conclude nothing.
    pub saturated: bool,
    /// Why, where that is so; not told by runs of before there were several reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<CellDoubt>,
}

impl GeneratorLoad {
    /// Why nothing is concluded from the times; `None` where something may be.
    pub fn doubted(&self) -> Option<CellDoubt> {
        self.saturated.then(|| self.doubt.unwrap_or(CellDoubt::Behind))
    }
}

/// One run, `run.json`. It names no path, no query and no key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// What no other run is called; empty where format 1 had none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The version of wellhead that played it.
    pub wellhead: String,
    /// What all chance in it came from.
    pub seed: u64,
    /// When it began, seconds since 1970.
    pub started_unix: u64,
    /// The endpoints that were measured.
    pub targets: Vec<MeasuredTarget>,
    /// Names of the experiments, in the order in which they are told.
    pub experiments: Vec<String>,
    /// Where it ran.
    pub machine: Machine,
    /// What was asked for, word by word, with the host alone of each URL: what going on with the
    /// run needs to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<String>,
    /// Calls that were sent, those that greet and warm up included; while a cell is played, with
    /// all that it may send.
    #[serde(default)]
    pub spent: u64,
}

/// One endpoint that was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredTarget {
    /// Its name in this run.
    pub id: String,
    /// The host, and the port where it is not the usual one: never a path or query, which may
    /// hold a key.
    pub host: String,
    /// The provider's id in the catalogue, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The chain that it told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain_id: Option<u64>,
    /// What its calls cost, where the provider is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<CreditPrice>,
}

/// What credits are at a provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CreditPrice {
    /// What the provider calls a credit.
    pub unit: String,
    /// The plan, as the catalogue names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Credits in a month of that plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credits_per_month: Option<u64>,
    /// What a million credits cost, US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_per_million: Option<f64>,
}

/// Where a run was played.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The operating system.
    pub os: String,
    /// Its cores.
    pub cores: u32,
    /// What the operator wants to be remembered, such as the region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Why records cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read the records: {0}")]
    Io(#[from] io::Error),
    /// A line that is not the last one is no record.
    #[error("line {line} is no record: {why}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
}

/// What no run has written, and a sum would stumble over.
fn flaw(record: &Record) -> Option<&'static str> {
    let (numbers, figures, (begun_at, ended_at), (calls, parts)) = match record {
        Record::Call(it) => {
            let phases = [it.queue, it.dns, it.tcp, it.tls, it.write, it.first_byte, it.transfer];
            let told = [it.connection, it.retry_after_ms].into_iter().chain(phases).flatten();
            let fixed = [it.n, it.intended_at, it.bytes_out, it.bytes_in];
            let numbers: Vec<u64> = fixed.into_iter().chain(told).collect();
            (numbers, vec![it.credits.unwrap_or(0.0)], (it.begun_at, it.ended_at), (0, 0))
        }
        Record::Wire(it) => {
            let calls = if let WireEvent::Closed { calls, .. } = it.event { calls } else { 0 };
            (vec![it.connection, calls], Vec::new(), (it.at, it.at), (0, 0))
        }
        Record::Cell(it) => (
            vec![it.calls, it.load.late_p99],
            vec![it.load.cpu],
            (it.begun_at, it.ended_at),
            (0, 0),
        ),
        Record::Rollup(it) => {
            let times = [it.p50, it.p95, it.p99, it.max].into_iter().flatten();
            let numbers = times.chain([it.load.late_p99]).collect();
            let parts = it.unserved.values().fold(it.served, |sum, it| sum.saturating_add(*it));
            let figures = vec![it.load.cpu, it.credits.unwrap_or(0.0)];
            (numbers, figures, (it.begun_at, it.ended_at), (it.calls, parts))
        }
    };
    let large = numbers.iter().chain([&ended_at, &calls]).any(|number| *number > NUMBER_MAX);
    if large || figures.iter().any(|figure| !(0.0..=FIGURE_MAX).contains(figure)) {
        Some("a number in it is absurd")
    } else if ended_at < begun_at {
        Some("it ends before it begins")
    } else if parts > calls {
        Some("it has fewer calls than became of them")
    } else {
        None
    }
}

/// All records of `from`, and the number of the last line where it is torn.
///
/// A last line that does not end is what a cut leaves behind: it is skipped. Any other line that is no record is an
/// error. Empty lines are skipped.
///
/// # Errors
///
/// Where a line that is not the last one is no record, or the reading fails.
pub fn read_all(mut from: impl BufRead) -> Result<(Vec<Record>, Option<u64>), ReadError> {
    let mut records = Vec::new();
    for line in 1.. {
        let mut bytes = Vec::new();
        if (&mut from).take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        let whole = bytes.last() == Some(&b'\n');
        let text = bytes.trim_ascii();
        let failed = |why: String| ReadError::Line { line, why };
        if text.is_empty() {
            continue;
        }
        if !whole && bytes.len() as u64 == LINE_BYTES_MAX {
            return Err(failed(format!("it is longer than {LINE_BYTES_MAX} bytes")));
        }
        match serde_json::from_slice(text) {
            Ok(record) => match flaw(&record) {
                None => records.push(record),
                Some(why) => return Err(failed(why.to_owned())),
            },
            Err(_) if !whole => return Ok((records, Some(line))),
            Err(why) => return Err(failed(why.to_string())),
        }
    }
    Ok((records, None))
}

/// Writes records, one line each, in one write each: after a cut at most the last line is torn.
/// It does not sync: a machine that loses power may lose more.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    line: Vec<u8>,
    stamp: Option<RecordStamp>,
}

/// What each line says beside its record, for what reads a line alone: the ids of run and target,
/// and when it began by the wall clock.
#[derive(Debug, Clone)]
pub struct RecordStamp {
    /// `"run":"...","target_id":"...","unix_us":` of each target.
    heads: Vec<String>,
    /// Microseconds since 1970 at which the times of the records begin.
    origin_unix_us: u64,
}

impl RecordStamp {
    /// For the records of `run`, whose times count from `origin_unix_us`.
    pub fn new(run: &RunRecord, origin_unix_us: u64) -> Self {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let head = |target: &MeasuredTarget| {
            let (run, target) = (quoted(&run.id), quoted(&target.id));
            format!("\"run\":{run},\"target_id\":{target},\"unix_us\":")
        };
        Self { heads: run.targets.iter().map(head).collect(), origin_unix_us }
    }

    /// Behind the brace that opens a line.
    fn put(&self, line: &mut Vec<u8>, record: &Record) -> io::Result<()> {
        let (target, at) = match record {
            Record::Call(call) => (call.target, call.begun_at),
            Record::Wire(wire) => (wire.target, wire.at),
            Record::Cell(cell) => (cell.target, cell.begun_at),
            Record::Rollup(rollup) => (rollup.target, rollup.begun_at),
        };
        if let Some(head) = self.heads.get(target as usize) {
            write!(line, "{head}{},", self.origin_unix_us.saturating_add(at))?;
        }
        Ok(())
    }
}

impl<W: Write> Writer<W> {
    /// Writes to the end of `to`.
    pub fn new(to: W) -> Self {
        Self { to, line: Vec::new(), stamp: None }
    }

    /// Adds one line.
    ///
    /// # Errors
    ///
    /// Where the writing fails; the line may then be torn.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        self.line.clear();
        if let Some(stamp) = &self.stamp {
            self.line.push(b'{');
            stamp.put(&mut self.line, record)?;
            let behind_brace = self.line.len();
            serde_json::to_writer(&mut self.line, record)?;
            self.line.remove(behind_brace);
        } else {
            serde_json::to_writer(&mut self.line, record)?;
        }
        self.line.push(b'\n');
        self.to.write_all(&self.line)
    }

    /// Says in each further line what [`RecordStamp`] has.
    pub fn stamp(&mut self, stamp: RecordStamp) {
        self.stamp = Some(stamp);
    }

    /// Hands on what `to` still holds.
    ///
    /// # Errors
    ///
    /// As `to` says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The file at `path`, or a new one, to be gone on with. A torn last line is cut off, so that the
/// next record does not grow onto it.
///
/// # Errors
///
/// Where the file cannot be opened, read or cut.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let length = file.metadata()?.len();
    let whole = end_of_last_line(&mut file, length)?;
    file.set_len(whole)?;
    file.seek(SeekFrom::End(0))?;
    Ok(file)
}

/// Where the last line that is whole ends, searched backwards.
fn end_of_last_line(file: &mut File, length: u64) -> io::Result<u64> {
    const PIECE: u64 = 4_096;
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(PIECE);
        let mut piece = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        (&mut *file).take(end - start).read_to_end(&mut piece)?;
        if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
