//! Runs at providers whose truth is known: no sockets, no clock, a seed.
//!
//! Each provider is a few figures. The calls of a cell are made as a provider of those figures
//! would answer them, with noise. Also used by the example that writes a report to look at.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use wellhead_analyze::measure::knock::{Knocker, Knocking};
use wellhead_analyze::record::{
    CallRecord, Cell, FORMAT, GeneratorLoad, Machine, MeasuredTarget, Record, Rollup, RunRecord,
    WireEvent, WireRecord,
};
use wellhead_analyze::report::Side;

/// What a provider does.
#[derive(Debug, Clone)]
pub(crate) struct Dials {
    pub(crate) id: &'static str,
    pub(crate) host: &'static str,
    pub(crate) provider: Option<&'static str>,
    /// Milliseconds of a call when nothing is in the way.
    pub(crate) base_ms: f64,
    /// A bucket, its size and refill a second.
    pub(crate) bucket: Option<(f64, f64)>,
    /// Refusals in the body instead of 429.
    pub(crate) in_body: bool,
    /// Calls a second that are let through in silence.
    pub(crate) shaped: Option<f64>,
    /// For each connection instead of all.
    pub(crate) shaped_per_connection: bool,
    /// Streams from which on the connection ends.
    pub(crate) fatal_above: Option<u64>,
    /// Streams above which one is refused.
    pub(crate) refused_above: Option<u64>,
    /// Streams that the settings announce.
    pub(crate) announced: Option<u32>,
    /// Requests after which a connection ends.
    pub(crate) recycle: Option<u64>,
    /// Seconds after which an idle connection ends.
    pub(crate) idle_s: Option<u64>,
    /// HTTP/2 takes so much of what HTTP/1.1 takes.
    pub(crate) h2_share: f64,
    /// Milliseconds of lag.
    pub(crate) lag_ms: f64,
    /// One of this many answers is another.
    pub(crate) lies: Option<u64>,
    /// Blocks that a search may go over.
    pub(crate) range_max: u64,
}

/// 429 above 125 calls a second.
pub(crate) fn metered() -> Dials {
    Dials {
        id: "metered",
        host: "metered.quiknode.pro",
        provider: Some("quicknode"),
        base_ms: 40.0,
        bucket: Some((125.0, 125.0)),
        recycle: Some(10_000),
        range_max: 10_000,
        ..elastic()
    }
}

/// Shaped in silence at 252 calls a second, and 100 streams end the connection.
pub(crate) fn shaped() -> Dials {
    Dials {
        id: "shaped",
        host: "shaped.core.chainstack.com",
        provider: Some("chainstack"),
        base_ms: 80.0,
        shaped: Some(252.0),
        fatal_above: Some(99),
        recycle: Some(1_000),
        idle_s: Some(60),
        lag_ms: 400.0,
        lies: Some(40),
        range_max: 2_000,
        ..elastic()
    }
}

/// No limit to be found.
pub(crate) fn elastic() -> Dials {
    Dials {
        id: "elastic",
        host: "elastic.example",
        provider: None,
        base_ms: 60.0,
        bucket: None,
        in_body: false,
        shaped: None,
        shaped_per_connection: false,
        fatal_above: None,
        refused_above: None,
        announced: Some(128),
        recycle: None,
        idle_s: None,
        h2_share: 0.4,
        lag_ms: 0.0,
        lies: None,
        range_max: 100_000,
    }
}

/// A run in the making.
pub(crate) struct World {
    pub(crate) run: RunRecord,
    pub(crate) records: Vec<Record>,
    pub(crate) dials: Vec<Dials>,
    rng: SmallRng,
    /// Microseconds.
    now: u64,
    cells: u32,
    connections: u64,
}

const ALL: [&str; 11] = [
    "protocol",
    "streams",
    "connection",
    "rate",
    "window",
    "throttle",
    "cost",
    "load",
    "soak",
    "fresh",
    "reach",
];

impl World {
    pub(crate) fn new(seed: u64, dials: Vec<Dials>) -> Self {
        let target = |dials: &Dials| MeasuredTarget {
            id: dials.id.to_owned(),
            host: dials.host.to_owned(),
            provider: dials.provider.map(str::to_owned),
            chain_id: Some(1),
            price: None,
        };
        let mut experiments: Vec<String> = ALL.map(str::to_owned).to_vec();
        experiments.push("agree".to_owned());
        let run = RunRecord {
            format: FORMAT,
            wellhead: "0.1.0".to_owned(),
            seed,
            started_unix: 1_795_000_000,
            targets: dials.iter().map(target).collect(),
            experiments,
            machine: Machine { os: "linux".to_owned(), cores: 2, note: Some("Jakarta".to_owned()) },
            ..RunRecord::default()
        };
        Self {
            run,
            records: Vec::new(),
            dials,
            rng: SmallRng::seed_from_u64(seed),
            now: 1_000_000,
            cells: 0,
            connections: 0,
        }
    }

    /// Every experiment at every target.
    pub(crate) fn play_all(&mut self) {
        for target in 0..self.dials.len() {
            for experiment in ALL {
                self.play(experiment, target);
            }
        }
        self.agree(200);
    }

    pub(crate) fn play(&mut self, experiment: &str, target: usize) {
        match experiment {
            "protocol" => self.protocol(target),
            "streams" => self.streams(target),
            "connection" => self.connection(target),
            "rate" => self.rates(target, "rate", &[50.0, 80.0, 100.0, 125.0, 156.0, 195.0, 244.0]),
            "window" => self.window(target),
            "throttle" => self.throttle(target),
            "cost" => self.cost(target),
            "load" => self.rates(target, "load", &[25.0, 50.0, 100.0, 200.0, 300.0, 400.0]),
            "soak" => self.soak(target),
            "fresh" => self.fresh(target),
            "reach" => self.reach(target),
            _ => panic!("no experiment {experiment}"),
        }
    }

    fn noise(&mut self) -> f64 {
        0.85 + 0.3 * self.rng.random::<f64>() + 0.4 * self.rng.random::<f64>().powi(12)
    }

    fn begin(&mut self, experiment: &str, target: usize, factors: &[(&str, String)]) -> Cell {
        self.cells += 1;
        self.now += 1_000_000;
        let factors: BTreeMap<String, String> =
            factors.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Cell {
            experiment: experiment.to_owned(),
            version: 1,
            cell: self.cells,
            target: target as u32,
            factors,
            begun_at: self.now,
            load: GeneratorLoad { late_p99: 300, cpu: 0.2, ..GeneratorLoad::default() },
            ..Cell::default()
        }
    }

    /// Calls that take `ms` each, from `at`; the phases are made up to add up.
    fn call(&mut self, cell: &mut Cell, at: u64, ms: f64) -> CallRecord {
        let first = cell.calls == 0;
        let took = (ms * 1_000.0) as u64;
        let setup = if first { 30_000 } else { 0 };
        let transfer = took / 5;
        let call = CallRecord {
            experiment: cell.experiment.clone(),
            cell: cell.cell,
            target: cell.target,
            n: cell.calls,
            method: "eth_getBlockByNumber".to_owned(),
            intended_at: at,
            begun_at: at,
            queue: Some(50),
            dns: first.then_some(2_000),
            tcp: first.then_some(10_000),
            tls: first.then_some(18_000),
            write: Some(40),
            first_byte: Some(took.saturating_sub(transfer + 90)),
            transfer: Some(transfer),
            ended_at: at + took + setup,
            connection: Some(self.connections),
            stream: Some(2 * cell.calls as u32 + 1),
            protocol: Some("h2".to_owned()),
            bytes_out: 90,
            bytes_in: 12_000,
            status: Some(200),
            class: "answer".to_owned(),
            rule: "result".to_owned(),
            credits: Some(20.0),
            ..CallRecord::default()
        };
        cell.calls += 1;
        call
    }

    fn refuse(&self, cell: &Cell, call: &mut CallRecord) {
        let in_body = self.dials[cell.target as usize].in_body;
        call.class = "throttled".to_owned();
        call.rule = "rate".to_owned();
        call.status = Some(if in_body { 200 } else { 429 });
        call.code = Some(-32_007);
        call.ended_at = call.begun_at + 9_000;
        (call.transfer, call.first_byte) = (Some(10), Some(8_900));
    }

    fn wire(&mut self, cell: &Cell, at: u64, event: WireEvent) {
        self.records.push(Record::Wire(WireRecord {
            experiment: cell.experiment.clone(),
            cell: cell.cell,
            target: cell.target,
            at,
            connection: self.connections,
            event,
        }));
    }

    fn open(&mut self, cell: &Cell) {
        self.connections += 1;
        let max_streams = self.dials[cell.target as usize].announced;
        self.wire(cell, self.now, opened());
        self.wire(cell, self.now, WireEvent::Settings { max_streams, others: BTreeMap::new() });
    }

    fn end(&mut self, mut cell: Cell, until: u64) {
        self.now = until.max(self.now) + 1_000;
        cell.ended_at = self.now;
        self.records.push(Record::Cell(cell));
    }

    fn push(&mut self, call: CallRecord) -> u64 {
        let ended = call.ended_at;
        self.records.push(Record::Call(call));
        ended
    }

    fn streams(&mut self, target: usize) {
        for repeat in 0..3 {
            for streams in [8_u64, 16, 32, 64, 96, 98, 99, 100, 101, 112, 128, 256, 512] {
                let mut cell = self.begin("streams", target, &[("streams", streams.to_string())]);
                cell.repeat = repeat;
                self.open(&cell);
                let dials = self.dials[target].clone();
                let dead = dials.fatal_above.is_some_and(|cap| streams > cap);
                let mut until = self.now;
                for n in 0..streams {
                    let ms = dials.base_ms * self.noise();
                    let at = self.now;
                    let mut call = self.call(&mut cell, at, ms);
                    let refused = dials.refused_above.is_some_and(|cap| n >= cap);
                    if dead || refused {
                        call.error = Some(if dead { "goaway" } else { "refused" }.to_owned());
                        call.class = "fault".to_owned();
                        call.status = None;
                    }
                    if refused {
                        let stream = call.stream.unwrap_or(0);
                        self.wire(&cell, at, WireEvent::Reset { stream, code: 7 });
                    }
                    until = until.max(self.push(call));
                }
                if dead {
                    let debug = "too many <streams>".to_owned();
                    let goaway = WireEvent::Goaway { code: 11, last_stream: 0, debug };
                    self.wire(&cell, self.now + 20, goaway);
                }
                self.end(cell, until);
            }
        }
    }

    fn connection(&mut self, target: usize) {
        let dials = self.dials[target].clone();
        for repeat in 0..3 {
            let asked = 20_000_u64;
            let factors = [("requests", asked.to_string())];
            let mut cell = self.begin("connection", target, &factors);
            cell.repeat = repeat;
            self.open(&cell);
            let ends = dials.recycle.map(|calls| calls + self.rng.random_range(0..3));
            let at = self.now;
            let mut until = at;
            // One call of each hundred is enough for a record that is made up.
            for n in (0..ends.unwrap_or(asked)).step_by(100) {
                let call = self.call(&mut cell, at + n * 10_000, dials.base_ms);
                until = until.max(self.push(call));
            }
            let reason = if ends.is_some() { "replaced" } else { "done" };
            if ends.is_some() {
                let debug = String::new();
                let goaway = WireEvent::Goaway { code: 0, last_stream: (1 << 31) - 1, debug };
                self.wire(&cell, until, goaway);
            }
            let (reason, calls) = (reason.to_owned(), ends.unwrap_or(asked));
            self.wire(&cell, until, WireEvent::Closed { reason, calls, in_flight: 0 });
            self.end(cell, until);
        }
        for idle_s in [10_u64, 30, 50, 55, 65, 120, 300] {
            let factors = [("idle_ms", (idle_s * 1_000).to_string())];
            let mut cell = self.begin("connection", target, &factors);
            self.open(&cell);
            let at = self.now;
            let call = self.call(&mut cell, at, dials.base_ms);
            let last = self.push(call);
            if let Some(limit) = dials.idle_s.filter(|limit| idle_s >= *limit) {
                let event = WireEvent::Closed { reason: "eof".to_owned(), calls: 1, in_flight: 0 };
                self.wire(&cell, last + limit * 1_000_000, event);
                self.connections += 1;
            }
            let call = self.call(&mut cell, last + idle_s * 1_000_000, dials.base_ms);
            let until = self.push(call);
            self.end(cell, until);
        }
    }

    /// Open loop at each rate. A provider that shapes makes calls wait.
    fn rates(&mut self, target: usize, experiment: &str, rates: &[f64]) {
        let seconds = if experiment == "rate" { 12.0 } else { 5.0 };
        for rate in rates {
            let mut cell = self.begin(experiment, target, &[("rate", rate.to_string())]);
            let start = self.now;
            let mut meter = Meter::of(&self.dials[target], start);
            let mut until = start;
            for n in 0..(rate * seconds) as u64 {
                let at = start + (n as f64 * 1e6 / rate) as u64;
                let call = self.answered(&mut cell, &mut meter, at, 1.0);
                until = until.max(self.push(call));
            }
            self.end(cell, until);
        }
    }

    fn answered(&mut self, cell: &mut Cell, meter: &mut Meter, at: u64, cost: f64) -> CallRecord {
        let ms = self.dials[cell.target as usize].base_ms * self.noise();
        let waits = meter.waits(at);
        let mut call = self.call(cell, at, ms + waits);
        if !meter.passes(at, cost) {
            self.refuse(cell, &mut call);
        }
        call
    }

    /// Leans on the limit as the plan does, each time when it is whole again.
    fn window(&mut self, target: usize) {
        let second = Duration::from_secs(1);
        for silence in [2_u64, 14, 17] {
            let terms = Knocking {
                settle: second * silence as u32,
                per_second: 400.0,
                calls: 1_000,
                within: second * 60,
            };
            let factors =
                [("flood", "400".to_owned()), ("silence_ms", (silence * 1_000).to_string())];
            let mut cell = self.begin("window", target, &factors);
            let start = self.now;
            let mut meter = Meter::of(&self.dials[target], start);
            let mut knocker = Knocker::new(terms);
            let mut under_way: Vec<(u64, bool, u64)> = Vec::new();
            let mut until = start;
            while !knocker.is_over() && cell.calls < terms.calls {
                let due = start + knocker.due().as_micros() as u64;
                // A refusal is quicker than an answer and overtakes it.
                let first = under_way.iter().enumerate().min_by_key(|(_, call)| call.2);
                if let Some((at, (begun, passed, ended))) =
                    first.map(|(at, call)| (at, *call)).filter(|(_, call)| call.2 <= due)
                {
                    under_way.swap_remove(at);
                    let since = |at: u64| Duration::from_micros(at - start);
                    knocker.heard(since(begun), since(ended), passed);
                    continue;
                }
                let call = self.answered(&mut cell, &mut meter, due, 1.0);
                under_way.push((due, call.class != "throttled", call.ended_at));
                knocker.sent();
                until = until.max(self.push(call));
            }
            self.end(cell, until);
        }
    }

    fn throttle(&mut self, target: usize) {
        for connections in [5_u64, 10] {
            for level in 1..=24_u64 {
                let concurrency = level * 5;
                let factors = [
                    ("concurrency", concurrency.to_string()),
                    ("connections", connections.to_string()),
                ];
                let mut cell = self.begin("throttle", target, &factors);
                self.closed(&mut cell, concurrency, connections, 300, 1.0);
                let until = self.now;
                self.end(cell, until);
            }
        }
    }

    /// A closed loop: each of `concurrency` places calls again when it has its answer.
    fn closed(&mut self, cell: &mut Cell, places: u64, connections: u64, calls: u64, share: f64) {
        let dials = self.dials[cell.target as usize].clone();
        let limit = dials.shaped.map(|limit| match dials.shaped_per_connection {
            true => limit * connections as f64,
            false => limit,
        });
        let first_connection = self.connections + 1;
        self.connections += connections;
        let start = self.now;
        let mut free = vec![start; places as usize];
        let mut gate = start as f64;
        let mut until = start;
        for n in 0..calls {
            let place = (0..free.len()).min_by_key(|place| free[*place]).unwrap_or(0);
            let at = free[place];
            let ms = dials.base_ms * share * self.noise();
            let mut call = self.call(cell, at, ms);
            if let Some(limit) = limit {
                gate = gate.max(at as f64) + 1e6 / limit;
                call.ended_at = call.ended_at.max(gate as u64);
            }
            call.connection = Some(first_connection + n % connections);
            free[place] = call.ended_at;
            until = until.max(self.push(call));
        }
        self.now = until;
    }

    fn cost(&mut self, target: usize) {
        for (method, cost) in [("eth_chainId", 1.0), ("eth_getLogs", 2.0)] {
            let mut cell = self.begin("cost", target, &[("method", method.to_owned())]);
            let start = self.now;
            let mut meter = Meter::of(&self.dials[target], start);
            let mut until = start;
            for n in 0..3_000 {
                let mut call = self.answered(&mut cell, &mut meter, start + n * 4_000, cost);
                method.clone_into(&mut call.method);
                until = until.max(self.push(call));
            }
            self.end(cell, until);
        }
    }

    fn protocol(&mut self, target: usize) {
        let dials = self.dials[target].clone();
        for repeat in 0..3 {
            for protocol in ["http/1.1", "h2"] {
                for connections in [1_u64, 3] {
                    let factors = [
                        ("protocol", protocol.to_owned()),
                        ("connections", connections.to_string()),
                        ("concurrency", "100".to_owned()),
                        ("body", "large".to_owned()),
                    ];
                    let mut cell = self.begin("protocol", target, &factors);
                    cell.repeat = repeat;
                    let share = if protocol == "h2" { dials.h2_share } else { 1.0 };
                    let from = self.records.len();
                    self.closed(&mut cell, 100, connections, 400, share);
                    let all_fail =
                        protocol == "h2" && connections == 1 && dials.fatal_above.is_some();
                    for record in &mut self.records[from..] {
                        if let Record::Call(call) = record {
                            call.protocol = Some(protocol.to_owned());
                            if all_fail {
                                call.error = Some("goaway".to_owned());
                                call.class = "fault".to_owned();
                                call.status = None;
                            }
                        }
                    }
                    let until = self.now;
                    self.end(cell, until);
                }
            }
        }
    }

    /// An hour, a line a minute, with a slow spell; a target that lies has errors within it.
    fn soak(&mut self, target: usize) {
        let mut cell = self.begin("soak", target, &[("rate", "1".to_owned())]);
        let start = self.now;
        for minute in 0..60_u64 {
            let slow = if (30..34).contains(&minute) { 2.5 } else { 1.0 };
            let p50 = (self.dials[target].base_ms * self.noise() * slow * 1_000.0) as u64;
            let failed = match self.dials[target].lies {
                Some(_) if minute == 31 => 20,
                Some(_) | None => 0,
            };
            let unserved = (failed > 0).then(|| ("fault".to_owned(), failed));
            self.records.push(Record::Rollup(Rollup {
                experiment: "soak".to_owned(),
                cell: cell.cell,
                target: target as u32,
                begun_at: start + minute * 60_000_000,
                ended_at: start + (minute + 1) * 60_000_000,
                calls: 60,
                served: 60 - failed,
                unserved: unserved.into_iter().collect(),
                p50: Some(p50),
                p95: Some(p50 * 3 / 2),
                p99: Some(p50 * 2),
                max: Some(p50 * 2),
                credits: Some(1_200.0),
                load: GeneratorLoad { late_p99: 300, cpu: 0.1, ..GeneratorLoad::default() },
                ..Rollup::default()
            }));
        }
        cell.calls = 3_600;
        self.end(cell, start + 3_600_000_000);
    }

    fn fresh(&mut self, target: usize) {
        let first = 20_000_000_u64;
        let begin = 900_000_000_000;
        let mut cell = self.begin("fresh", target, &[("start", (first - 1).to_string())]);
        (cell.begun_at, cell.ended_at) = (begin - 200_000, begin - 100_000);
        self.records.push(Record::Cell(cell));
        for block in 0..60_u64 {
            let mut cell = self.begin("fresh", target, &[("block", (first + block).to_string())]);
            let lag = self.dials[target].lag_ms * (0.5 + self.rng.random::<f64>());
            let jitter = 30.0 * self.rng.random::<f64>();
            // Every target sees the same blocks at the same time.
            cell.ended_at = begin + block * 12_000_000 + ((lag + jitter) * 1e3) as u64;
            cell.begun_at = cell.ended_at - 100_000;
            self.records.push(Record::Cell(cell));
        }
        let watched = [
            ("watched_ms", "720000".to_owned()),
            ("polls", "7200".to_owned()),
            ("failed", "0".to_owned()),
        ];
        let mut cell = self.begin("fresh", target, &watched);
        (cell.begun_at, cell.ended_at) = (begin, begin + 720_000_000);
        self.records.push(Record::Cell(cell));
    }

    fn reach(&mut self, target: usize) {
        let max = self.dials[target].range_max;
        for range in [100_u64, 1_000, 2_000, 5_000, 10_000, 50_000, 100_000] {
            self.probe(target, "range", &range.to_string(), range <= max, "range_too_large");
        }
        for batch in [10_u64, 100, 1_000] {
            self.probe(target, "batch", &batch.to_string(), true, "fault");
        }
        for state in [64_u64, 128, 10_000, 1_000_000] {
            let keeps = target != 2 || state <= 128;
            self.probe(target, "state", &state.to_string(), keeps, "missing_data");
        }
        for method in ["debug_traceCall", "eth_getProof", "trace_block"] {
            let there = method == "eth_getProof" || target == 0;
            // What is refused is asked for twice.
            for _ in 0..if there { 1 } else { 2 } {
                self.probe(target, "method", method, there, "unsupported");
            }
        }
        for what in ["calls", "subscriptions"] {
            self.probe(target, "websocket", what, target != 2, "unsupported");
        }
    }

    fn probe(&mut self, target: usize, probe: &str, value: &str, served: bool, class: &str) {
        let fate = if served { "served" } else { "refused" };
        let factors =
            [("probe", probe.to_owned()), ("value", value.to_owned()), ("fate", fate.to_owned())];
        let mut cell = self.begin("reach", target, &factors);
        let at = self.now;
        let ms = self.dials[target].base_ms;
        let mut call = self.call(&mut cell, at, ms);
        if !served {
            class.clone_into(&mut call.class);
        }
        let until = self.push(call);
        self.end(cell, until);
    }

    pub(crate) fn agree(&mut self, asks: u64) {
        let methods = ["eth_getBalance", "eth_getLogs", "eth_call", "eth_getBlockByNumber"];
        for ask in 0..asks {
            for target in 0..self.dials.len() {
                let lies = self.dials[target].lies.is_some_and(|one_of| ask % one_of == 1);
                let digest = if lies { format!("lie{ask}") } else { format!("d{ask}") };
                let mut factors = vec![
                    ("ask", ask.to_string()),
                    ("method", methods[ask as usize % methods.len()].to_owned()),
                    ("params", format!("[\"0x{:x}\"]", 7_000_000 + ask * 7)),
                    ("digest", digest),
                ];
                if lies {
                    let other = (target + 1) % self.dials.len();
                    factors.push(("against", other.to_string()));
                    factors.push(("path", "result[0].data".to_owned()));
                    factors.push(("here", "\"0x1\"".to_owned()));
                    factors.push(("there", "\"<0x2>\"".to_owned()));
                }
                let cell = self.begin("agree", target, &factors);
                let until = self.now;
                self.end(cell, until);
            }
        }
    }

    /// Marks every `nth` cell of an experiment as one in which the generator fell behind.
    pub(crate) fn overload(&mut self, experiment: &str, nth: usize) {
        let cells = self.records.iter_mut().filter_map(|record| match record {
            Record::Cell(cell) if cell.experiment == experiment => Some(cell),
            Record::Cell(_) | Record::Call(_) | Record::Wire(_) | Record::Rollup(_) => None,
        });
        cells.step_by(nth).for_each(|cell| cell.load.saturated = true);
    }
}

/// The bucket and the shaper of one provider.
struct Meter {
    bucket: Option<(f64, f64)>,
    tokens: f64,
    last: u64,
    shaped: Option<f64>,
    gate: f64,
}

impl Meter {
    fn of(dials: &Dials, now: u64) -> Self {
        let tokens = dials.bucket.map_or(0.0, |(size, _)| size);
        Self { bucket: dials.bucket, tokens, last: now, shaped: dials.shaped, gate: now as f64 }
    }

    fn passes(&mut self, at: u64, cost: f64) -> bool {
        let Some((size, refill)) = self.bucket else { return true };
        self.tokens = (self.tokens + refill * (at - self.last) as f64 / 1e6).min(size);
        self.last = at;
        let passes = self.tokens >= cost;
        if passes {
            self.tokens -= cost;
        }
        passes
    }

    /// Milliseconds.
    fn waits(&mut self, at: u64) -> f64 {
        let Some(limit) = self.shaped else { return 0.0 };
        self.gate = self.gate.max(at as f64) + 1e6 / limit;
        (self.gate - at as f64) / 1e3
    }
}

/// A world as a side of a comparison.
pub(crate) fn side<'a>(name: &'a str, world: &'a World) -> Side<'a> {
    Side { name, run: &world.run, records: &world.records }
}

fn opened() -> WireEvent {
    let (dns, tcp, tls) = (Some(900), Some(11_000), Some(23_000));
    let protocol = "h2".to_owned();
    WireEvent::Opened { alpn: Some(protocol.clone()), protocol, dns, tcp, tls }
}
