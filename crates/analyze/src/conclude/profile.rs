//! From verdicts to settings: what the proxy should know of each upstream, as YAML.
//!
//! The text is a profile, which an upstream of the proxy names under `profile`: an entry for each
//! target with its host, and below it the keys that the upstream would have itself. What has no
//! setting is a comment with the figure that was measured. Each line says what it rests on. A
//! figure of low confidence is a comment as well.
//!
//! Rates are written as they were measured: the proxy keeps a twentieth below them. Of what ends a
//! connection less is written, because the other side counts otherwise than we do.

use std::fmt::Write as _;

use wellhead_eth::MethodTable;
use wellhead_upstream::{Provider, Tariff};

use crate::conclude::verdict::{
    CapWay, Confidence, ExperimentVerdict, Extent, Finding, Refilled, RefusalWay, ShapingScope,
    figure,
};
use crate::record::{MeasuredTarget, RunRecord};
use crate::text::is_bidi_control;
use crate::work::WorkKind;

/// Of the requests after which a connection ends this many percent are made on it.
const REQUESTS_PERCENT: u64 = 90;

/// Of the silence after which it is closed this many percent are waited for.
const IDLE_PERCENT: u64 = 80;

/// Calls at once beyond the knee, so that a provider that shapes always has some to serve.
const BEYOND_KNEE: f64 = 1.25;

/// A window that is longer is told: a second is what the proxy takes for granted.
const WINDOW_SECONDS: f64 = 1.5;

/// Methods that are written to `methods.deny` at most.
const DENIED_MAX: usize = 100;

/// The settings that follow from the verdicts of a run.
pub fn profile(run: &RunRecord, verdicts: &[ExperimentVerdict]) -> String {
    let mut out = format!(
        "# What was measured with wellhead {}, seed {}: name this file under `profile` of an\n\
         # upstream. Where there are several, the one with its host, chain and id counts.\n\
         measured: \"{}\"\nupstreams:\n",
        plain(&run.wellhead),
        run.seed,
        date(run.started_unix),
    );
    for (index, target) in run.targets.iter().enumerate() {
        let own: Vec<&ExperimentVerdict> =
            verdicts.iter().filter(|verdict| verdict.target as usize == index).collect();
        upstream(&mut out, target, &own);
    }
    out
}

/// What a target's verdicts come to.
struct Settings<'a> {
    provider: Option<&'a Provider>,
    http: Option<ProfileLine>,
    /// HTTP/1.1 is quicker in every setting in which it was compared with HTTP/2.
    quicker_h1: bool,
    connection: Vec<(&'static str, ProfileLine)>,
    budget: Vec<(&'static str, ProfileLine)>,
    history: Vec<(&'static str, ProfileLine)>,
    deny: Option<(Vec<String>, String)>,
    comments: Vec<String>,
}

struct ProfileLine {
    value: String,
    why: String,
}

fn upstream(out: &mut String, target: &MeasuredTarget, verdicts: &[&ExperimentVerdict]) {
    let mut settings = Settings {
        provider: target.provider.as_deref().and_then(Provider::named),
        http: None,
        quicker_h1: verdicts.iter().all(|verdict| leaves_http1(verdict)),
        connection: Vec::new(),
        budget: Vec::new(),
        history: Vec::new(),
        deny: None,
        comments: Vec::new(),
    };
    for verdict in verdicts {
        settings.add(verdict);
    }
    let _ = writeln!(out, "  - host: {}", quoted(&target.host));
    let _ = writeln!(out, "    id: {}", quoted(&plain(&target.id)));
    if let Some(chain_id) = target.chain_id {
        let _ = writeln!(out, "    chain_id: {chain_id}");
    }
    if let Some(provider) = settings.provider {
        let _ = writeln!(out, "    # provider {} in the catalogue", plain(&provider.id));
    }
    settings.write(out);
}

impl Settings<'_> {
    fn add(&mut self, verdict: &ExperimentVerdict) {
        let why = format!("{}: {}", verdict.experiment, plain(&verdict.sentence));
        if verdict.confidence <= Confidence::Low {
            self.comments.push(format!("{why} (confidence {})", verdict.confidence.word()));
            return;
        }
        match &verdict.finding {
            Finding::Rate { per_second, way } => self.refused_rate(*per_second, *way, &why),
            Finding::Bucket { size, refill_per_second, window_s, refill, .. } => {
                self.bucket(*refill_per_second, *size, *window_s, *refill, why);
            }
            Finding::InFlight { calls, .. } => self.in_flight(*calls, why),
            Finding::ConnectionCap { connections, .. } => self.connections(*connections, &why),
            Finding::Shaped { scope, knee, .. } => self.knee(*scope, *knee, &why),
            Finding::StreamCap { streams, way, .. } => self.streams(*streams, *way, why),
            Finding::Recycle { after_calls, .. } => self.requests_max(*after_calls, &why),
            Finding::IdleClose { after_ms } => self.idle(*after_ms, why),
            Finding::Faster { what, .. } => self.faster(what, why),
            Finding::Reach { what, up_to: Some(up_to), refused_at: Some(_), .. } if *up_to > 0 => {
                self.reach(*what, *up_to, why);
            }
            Finding::Methods { missing, .. } if !missing.is_empty() => {
                self.deny = Some((missing.clone(), why));
            }
            Finding::Takes { .. }
            | Finding::NoStreamCap { .. }
            | Finding::NoRecycle { .. }
            | Finding::NoIdleClose { .. }
            | Finding::NoRateLimit { .. }
            | Finding::NoBucket { .. }
            | Finding::NotShaped { .. }
            | Finding::NoDifference { .. }
            | Finding::BodyPace { .. }
            | Finding::NoBodyPace { .. }
            | Finding::SmallWait { .. }
            | Finding::SmallFlow { .. }
            | Finding::Cost { .. }
            | Finding::Lag { .. }
            | Finding::NoLag { .. }
            | Finding::Disagrees { .. }
            | Finding::Agrees { .. }
            | Finding::Reach { .. }
            | Finding::Methods { .. }
            | Finding::WebSocket { .. }
            | Finding::Capacity { .. }
            | Finding::NoCapacityLimit { .. }
            | Finding::Users { .. }
            | Finding::Held { .. }
            | Finding::Drift { .. }
            | Finding::Step { .. }
            | Finding::Fails { .. }
            | Finding::Ended { .. }
            | Finding::NoDrift { .. }
            | Finding::Adds { .. }
            | Finding::CannotTell { .. } => self.comments.push(why),
        }
    }

    fn requests_max(&mut self, after_calls: u64, why: &str) {
        let value = (after_calls * REQUESTS_PERCENT / 100).max(1).to_string();
        let why = format!("nine tenths, {why}");
        set(&mut self.connection, "requests_max", ProfileLine { value, why }, true);
    }

    fn idle(&mut self, after_ms: u64, why: String) {
        let ms = (after_ms * IDLE_PERCENT / 100).min(3_600_000);
        // The shortest that the setting takes.
        if ms < 100 {
            return self.comments.push(why);
        }
        let (value, why) = (duration(ms), format!("four fifths, {why}"));
        set(&mut self.connection, "idle", ProfileLine { value, why }, true);
    }

    /// HTTP/2 needs no setting: the proxy takes it where it is offered.
    fn faster(&mut self, what: &str, why: String) {
        match what == HTTP1 && self.quicker_h1 && self.http.is_none() {
            true => self.http = Some(ProfileLine { value: "\"1.1\"".to_owned(), why }),
            false => self.comments.push(why),
        }
    }

    fn reach(&mut self, what: Extent, up_to: u64, why: String) {
        let Some(key) = key(what) else { return self.comments.push(why) };
        set(&mut self.history, key, ProfileLine { value: up_to.to_string(), why }, true);
    }

    fn refused_rate(&mut self, per_second: f64, way: RefusalWay, why: &str) {
        self.rate(per_second, why, true);
        match way {
            RefusalWay::Status429 => {}
            RefusalWay::InBody | RefusalWay::OtherStatus(_) => {
                self.comments.push(format!("{why}: refusals come with another status than 429"));
            }
            RefusalWay::Unanswered => {
                self.comments.push(format!("{why}: calls above the limit are not answered"));
            }
            RefusalWay::Queued => {
                self.comments
                    .push(format!("{why}: calls above the limit wait, and are not refused"));
            }
        }
    }

    /// What a long test passed (`direct`) goes before what a burst's refill suggests.
    fn rate(&mut self, per_second: f64, why: &str, direct: bool) {
        let (name, value, why) = match self.credits() {
            // What was asked to find it is one method; others cost more or less.
            Some((unit, each)) => {
                let (value, each) = ((per_second * each).floor(), figure(each));
                ("credits_per_second", value, format!("at {each} {} a call, {why}", plain(unit)))
            }
            None => ("calls_per_second", per_second.floor(), why.to_owned()),
        };
        if value >= 1.0 {
            set(&mut self.budget, name, ProfileLine { value: value.to_string(), why }, direct);
        }
    }

    /// The unit, and what the calls cost that rates are measured with, where the provider
    /// counts credits and not calls.
    fn credits(&self) -> Option<(&str, f64)> {
        let provider = self.provider.filter(|provider| provider.rate.is_some())?;
        if provider.plans.iter().any(|plan| plan.calls_per_second.is_some()) {
            return None;
        }
        let tariff = Tariff::of(provider);
        let methods = WorkKind::Cheap.methods();
        let each = |method: &str| f64::from(tariff.throughput(MethodTable::standard().row(method)));
        let credits: f64 = methods.iter().map(|(method, share)| each(method) * share).sum();
        (credits > 0.0).then_some((provider.unit.as_str(), credits))
    }

    /// How the calls of a rate are counted; of credits the catalogue knows that.
    fn bucket(&mut self, per_second: f64, size: u64, window_s: f64, refill: Refilled, why: String) {
        self.rate(per_second, &why, false);
        if per_second < 1.0 || self.credits().is_some() {
            return self.comments.push(why);
        }
        let steady = refill == Refilled::Evenly && size >= 1;
        if window_s > WINDOW_SECONDS {
            let value = duration((window_s.min(86_400.0) * 1_000.0).round() as u64);
            set(&mut self.budget, "calls_window", ProfileLine { value, why: why.clone() }, true);
        } else if !steady {
            self.comments.push(why.clone());
        }
        if steady {
            set(
                &mut self.budget,
                "calls_burst",
                ProfileLine { value: size.to_string(), why },
                true,
            );
        }
    }

    fn streams(&mut self, streams: u32, way: CapWay, why: String) {
        let (value, why) = match way {
            // The proxy keeps to what a connection announces, on each of them.
            CapWay::Announced => return self.comments.push(why),
            CapWay::Refused => (streams, why),
            // What it counts as open ends a little later than with us.
            CapWay::Fatal => {
                let margin = (streams / 16).max(1);
                (streams.saturating_sub(margin), format!("a sixteenth less, {why}"))
            }
        };
        self.at_once(value, why);
    }

    /// Calls at once on one connection: the fewest that anything asks for.
    fn at_once(&mut self, calls: u32, why: String) {
        let known = self.connection.iter().find(|(name, _)| *name == "streams_max");
        let known = known.and_then(|(_, line)| line.value.parse().ok()).unwrap_or(u32::MAX);
        let line = ProfileLine { value: calls.clamp(1, 1_000).to_string(), why };
        set(&mut self.connection, "streams_max", line, calls < known);
    }

    fn knee(&mut self, scope: ShapingScope, knee: f64, why: &str) {
        let at_once = (knee * BEYOND_KNEE).ceil().max(1.0);
        let why = format!("a quarter above the knee, more only takes longer, {why}");
        match scope {
            ShapingScope::Account | ShapingScope::Open => {
                self.in_flight(at_once as u64, why);
            }
            ShapingScope::Connection => self.at_once(at_once.min(1_000.0) as u32, why),
        }
    }

    /// A profile has no setting for that: the upstream's counts for each worker.
    fn connections(&mut self, connections: u64, why: &str) {
        self.comments.push(format!(
            "{why}: set `connections_max` of the upstream to {connections} or less, divided by `workers`"
        ));
    }

    /// Calls in flight, over all connections: the fewest that anything asks for.
    fn in_flight(&mut self, calls: u64, why: String) {
        let known = self.budget.iter().find(|(name, _)| *name == "in_flight");
        let known = known.and_then(|(_, line)| line.value.parse().ok()).unwrap_or(u64::MAX);
        let line = ProfileLine { value: calls.clamp(1, 65_536).to_string(), why };
        set(&mut self.budget, "in_flight", line, calls < known);
    }

    fn write(&self, out: &mut String) {
        // Where it is not quicker in every setting, the load decides: see the comments.
        if let Some(line) = &self.http {
            let _ = writeln!(out, "    http: {} # {}", line.value, line.why);
        }
        let groups = [
            ("connection", &self.connection),
            ("budget", &self.budget),
            ("history", &self.history),
        ];
        for (group, lines) in groups.into_iter().filter(|(_, lines)| !lines.is_empty()) {
            let _ = writeln!(out, "    {group}:");
            for (name, line) in lines {
                let _ = writeln!(out, "      {name}: {} # {}", line.value, line.why);
            }
        }
        if let Some((methods, why)) = &self.deny {
            let _ = writeln!(out, "    methods: # {why}\n      deny:");
            for method in methods.iter().take(DENIED_MAX) {
                let _ = writeln!(out, "        - {}", quoted(method));
            }
        }
        if !self.comments.is_empty() {
            out.push_str("    # Measured, and no setting:\n");
            for comment in &self.comments {
                let _ = writeln!(out, "    #   {comment}");
            }
        }
    }
}

const HTTP1: &str = "http/1.1";

/// Whether a verdict is no reason against HTTP/1.1: it says that it is quicker, or does not compare
/// it. A comparison that was not made may have failed.
fn leaves_http1(verdict: &ExperimentVerdict) -> bool {
    match &verdict.finding {
        Finding::Faster { what, than, .. } | Finding::NoDifference { what, than, .. }
            if what == HTTP1 || than == HTTP1 =>
        {
            let faster = matches!(verdict.finding, Finding::Faster { .. });
            faster && what == HTTP1 && verdict.confidence > Confidence::Low
        }
        Finding::CannotTell { .. } => verdict.experiment != "protocol",
        _ => true,
    }
}

/// Sets a line; one that is there gives way only where `over`.
fn set(
    lines: &mut Vec<(&'static str, ProfileLine)>,
    name: &'static str,
    line: ProfileLine,
    over: bool,
) {
    match lines.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) if over => *known = line,
        Some(_) => {}
        None => lines.push((name, line)),
    }
}

/// The setting below `history`, where there is one.
fn key(what: Extent) -> Option<&'static str> {
    match what {
        Extent::State => Some("state"),
        Extent::Blocks => Some("blocks"),
        Extent::Logs => Some("logs"),
        Extent::Traces => Some("traces"),
        Extent::Range => Some("range_max"),
        Extent::Batch => None,
    }
}

/// On one line, without what would end a comment, or move a cursor and hide in a terminal.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_bidi_control(c) { ' ' } else { c }).collect()
}

/// A YAML scalar in double quotes, with the escapes of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// As settings have it.
fn duration(ms: u64) -> String {
    if ms.is_multiple_of(1_000) { format!("{}s", ms / 1_000) } else { format!("{ms}ms") }
}

/// The day and minute of a unix time, by the civil calendar: Howard Hinnant,
/// "chrono-compatible low-level date algorithms" (2013).
pub(crate) fn date(unix: u64) -> String {
    let days = unix / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (unix / 3_600 % 24, unix / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_moves_no_cursor_and_is_one() {
        assert_eq!(super::plain("a\u{1b}[2Jb\nc\u{202e}d\u{9b}e"), "a [2Jb c d e");
    }

    #[test]
    fn dates() {
        assert_eq!(super::date(0), "1970-01-01 00:00");
        assert_eq!(super::date(951_827_696), "2000-02-29 12:34");
        assert_eq!(super::date(1_795_000_000), "2026-11-18 11:06");
    }
}
