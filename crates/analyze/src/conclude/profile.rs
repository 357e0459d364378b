//! From verdicts to settings: what the proxy should know of each upstream, as YAML.
//!
//! The text is a profile, which an upstream of the proxy names under `profile`: an entry for each
//! target with its host, and below it the keys that the upstream would have itself. What has no
//! setting is a comment with the figure that was measured. Each line says what it rests on. A
//! figure of low confidence is a comment as well.
//!
//! Rates are written as they were measured: the proxy keeps a twentieth below them. Of what ends a
//! connection less is written, because the other side counts otherwise than we do.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use wellhead_eth::MethodTable;
use wellhead_limit::civil;
use wellhead_upstream::{Provider, Tariff};

use crate::conclude::setting::ProfileKey;
use crate::conclude::verdict::FindingBound::{Found, NotUpTo};
use crate::conclude::verdict::{
    CapWay, Confidence, ExperimentVerdict, Extent, Faster, Finding, NoDifference, Refilled,
    RefusalWay, ShapingScope, TokenLimit, figure,
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

/// What a setting is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ProfileValue {
    Count(u64),
    /// As YAML.
    Scalar(String),
    List(Vec<String>),
}

/// What a target's verdicts come to.
#[derive(Default)]
struct Settings<'a> {
    provider: Option<&'a Provider>,
    /// HTTP/1.1 is quicker in every setting in which it was compared with HTTP/2.
    quicker_h1: bool,
    set: BTreeMap<ProfileKey, ProfileLine>,
    comments: Vec<String>,
}

/// A value, and what it rests on.
struct ProfileLine {
    value: ProfileValue,
    why: String,
}

/// The settings of one target as its upstream has them, without what they rest on.
pub(crate) fn settings(target: &MeasuredTarget, verdicts: &[&ExperimentVerdict]) -> String {
    Settings::of(target, verdicts).lines().into_iter().map(|(line, _)| line + "\n").collect()
}

fn upstream(out: &mut String, target: &MeasuredTarget, verdicts: &[&ExperimentVerdict]) {
    let settings = Settings::of(target, verdicts);
    let _ = writeln!(out, "  - host: {}", quoted(&target.host));
    let _ = writeln!(out, "    id: {}", quoted(&plain(&target.id)));
    if let Some(chain_id) = target.chain_id {
        let _ = writeln!(out, "    chain_id: {chain_id}");
    }
    if let Some(provider) = settings.provider {
        let _ = writeln!(out, "    # provider {} in the catalogue", plain(&provider.id));
    }
    for (line, why) in settings.lines() {
        let why = why.map(|why| format!(" # {why}")).unwrap_or_default();
        let _ = writeln!(out, "    {line}{why}");
    }
    if !settings.comments.is_empty() {
        out.push_str("    # Measured, without a setting:\n");
        for comment in &settings.comments {
            let _ = writeln!(out, "    #   {comment}");
        }
    }
}

impl Settings<'_> {
    fn of(target: &MeasuredTarget, verdicts: &[&ExperimentVerdict]) -> Self {
        let mut settings = Self {
            provider: target.provider.as_deref().and_then(Provider::named),
            quicker_h1: verdicts.iter().all(|verdict| leaves_http1(verdict)),
            ..Self::default()
        };
        verdicts.iter().for_each(|verdict| settings.add(verdict));
        settings
    }

    fn add(&mut self, verdict: &ExperimentVerdict) {
        let why = format!("{}: {}", verdict.experiment, plain(&verdict.sentence));
        if verdict.confidence <= Confidence::Low {
            return self.comments.push(format!("{why}{}", verdict.confidence_note()));
        }
        match &verdict.finding {
            Finding::Rate(Found(it)) => self.refused_rate(it.per_second, it.way, &why),
            Finding::Bucket(Found(it)) => self.bucket(*it, why),
            Finding::InFlight { calls, .. } => self.in_flight(*calls, why),
            Finding::ConnectionCap { connections, .. } => {
                let most = (*connections).clamp(1, 65_536);
                self.least(ProfileKey::ConnectionsMax, most, why);
            }
            Finding::Shaping(Found(it)) => self.knee(it.scope, it.knee, &why),
            Finding::StreamCap(Found(it)) => self.streams(it.streams, it.way, why),
            Finding::Recycle(Found(it)) => {
                let most = (it.after_calls * REQUESTS_PERCENT / 100).max(1);
                let why = format!("90 % of the measured value; {why}");
                self.put(ProfileKey::RequestsMax, ProfileValue::Count(most), why);
            }
            Finding::IdleClose(Found(it)) => self.idle(it.after_ms, why),
            Finding::Comparison(Found(it)) => self.faster(&it.what, why),
            Finding::Reach { what, up_to: Some(up_to), refused_at: Some(_), .. } if *up_to > 0 => {
                match key(*what) {
                    Some(key) => self.put(key, ProfileValue::Count(*up_to), why),
                    None => self.comments.push(why),
                }
            }
            Finding::Methods { missing, .. } if !missing.is_empty() => {
                let deny = missing.iter().take(DENIED_MAX).cloned().collect();
                self.put(ProfileKey::Deny, ProfileValue::List(deny), why);
            }
            // A test below has the kinds from which a setting follows.
            _ => self.comments.push(why),
        }
    }

    /// Sets a key, whatever was there.
    fn put(&mut self, key: ProfileKey, value: ProfileValue, why: String) {
        self.set.insert(key, ProfileLine { value, why });
    }

    /// Sets a key to the least that anything asks for.
    fn least(&mut self, key: ProfileKey, count: u64, why: String) {
        match self.set.get(&key).map(|line| &line.value) {
            Some(ProfileValue::Count(known)) if *known <= count => {}
            _ => self.put(key, ProfileValue::Count(count), why),
        }
    }

    fn idle(&mut self, after_ms: u64, why: String) {
        let ms = (after_ms * IDLE_PERCENT / 100).min(3_600_000);
        // The shortest that the setting takes.
        if ms < 100 {
            return self.comments.push(why);
        }
        let why = format!("80 % of the measured value; {why}");
        self.put(ProfileKey::Idle, ProfileValue::Scalar(duration(ms)), why);
    }

    /// HTTP/2 needs no setting: the proxy takes it where it is offered.
    fn faster(&mut self, what: &str, why: String) {
        let is_first = !self.set.contains_key(&ProfileKey::Http);
        match what == HTTP1 && self.quicker_h1 && is_first {
            true => self.put(ProfileKey::Http, ProfileValue::Scalar(quoted("1.1")), why),
            false => self.comments.push(why),
        }
    }

    fn refused_rate(&mut self, per_second: f64, way: RefusalWay, why: &str) {
        self.rate(per_second, why, true);
        let how = match way {
            RefusalWay::Status429 => return,
            RefusalWay::InBody | RefusalWay::OtherStatus(_) => {
                "throttled calls get another status than 429"
            }
            RefusalWay::Unanswered => "calls above the limit get no response",
            RefusalWay::Queued => "calls above the limit queue and are not throttled",
        };
        self.comments.push(format!("{why}: {how}"));
    }

    /// What a long test passed (`direct`) goes before what a burst's refill suggests.
    fn rate(&mut self, per_second: f64, why: &str, direct: bool) {
        let (key, value, why) = match self.credits() {
            // What was asked to find it is one method; others cost more or less.
            Some((unit, each)) => {
                let (value, each) = ((per_second * each).floor(), figure(each));
                let why = format!("at {each} {} per call; {why}", plain(unit));
                (ProfileKey::CreditsPerSecond, value, why)
            }
            None => (ProfileKey::CallsPerSecond, per_second.floor(), why.to_owned()),
        };
        if value >= 1.0 && (direct || !self.set.contains_key(&key)) {
            self.put(key, ProfileValue::Count(value as u64), why);
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
    fn bucket(&mut self, it: TokenLimit, why: String) {
        self.rate(it.refill_per_second, &why, false);
        if it.refill_per_second < 1.0 || self.credits().is_some() {
            return self.comments.push(why);
        }
        let steady = it.refill == Refilled::Evenly && it.size >= 1;
        if it.window_s > WINDOW_SECONDS {
            let ms = (it.window_s.min(86_400.0) * 1_000.0).round() as u64;
            self.put(ProfileKey::CallsWindow, ProfileValue::Scalar(duration(ms)), why.clone());
        } else if !steady {
            self.comments.push(why.clone());
        }
        if steady {
            self.put(ProfileKey::CallsBurst, ProfileValue::Count(it.size), why);
        }
    }

    fn streams(&mut self, streams: u64, way: CapWay, why: String) {
        let (value, why) = match way {
            // The proxy keeps to what a connection announces, on each of them.
            CapWay::Announced => return self.comments.push(why),
            CapWay::Refused => (streams, why),
            // What it counts as open ends a little later than with us.
            CapWay::Fatal => {
                let margin = (streams / 16).max(1);
                (streams.saturating_sub(margin), format!("1/16 below the measured value; {why}"))
            }
        };
        self.at_once(value, why);
    }

    /// Calls at once on one connection: the fewest that anything asks for.
    fn at_once(&mut self, calls: u64, why: String) {
        self.least(ProfileKey::StreamsMax, calls.clamp(1, 1_000), why);
    }

    fn knee(&mut self, scope: ShapingScope, knee: f64, why: &str) {
        let at_once = (knee * BEYOND_KNEE).ceil().max(1.0) as u64;
        let why = format!("25 % above the knee, beyond which only latency grows; {why}");
        match scope {
            ShapingScope::Account | ShapingScope::Open => self.in_flight(at_once, why),
            ShapingScope::Connection => self.at_once(at_once, why),
        }
    }

    /// Calls in flight, over all connections: the fewest that anything asks for.
    fn in_flight(&mut self, calls: u64, why: String) {
        self.least(ProfileKey::InFlight, calls.clamp(1, 65_536), why);
    }

    /// Lines of YAML, those of settings with what they rest on.
    fn lines(&self) -> Vec<(String, Option<&str>)> {
        let mut lines = Vec::new();
        let mut group = "";
        for (key, ProfileLine { value, why }) in &self.set {
            let (its, name) = key.path().split_once('.').unwrap_or(("", key.path()));
            if its != group {
                group = its;
                lines.push((format!("{group}:"), None));
            }
            let indent = if group.is_empty() { "" } else { "  " };
            let (value, items) = match value {
                ProfileValue::Count(count) => (format!(" {count}"), &[][..]),
                ProfileValue::Scalar(text) => (format!(" {text}"), &[][..]),
                ProfileValue::List(items) => (String::new(), items.as_slice()),
            };
            lines.push((format!("{indent}{name}:{value}"), Some(why.as_str())));
            let item = |item: &String| (format!("{indent}  - {}", quoted(item)), None);
            lines.extend(items.iter().map(item));
        }
        lines
    }
}

const HTTP1: &str = "http/1.1";

/// Whether a verdict is no reason against HTTP/1.1: it says that it is quicker, or does not compare
/// it. A comparison that was not made may have failed.
fn leaves_http1(verdict: &ExperimentVerdict) -> bool {
    match &verdict.finding {
        Finding::Comparison(
            Found(Faster { what, than, .. }) | NotUpTo(NoDifference { what, than, .. }),
        ) if what == HTTP1 || than == HTTP1 => {
            let is_faster = !verdict.finding.is_unmet();
            is_faster && what == HTTP1 && verdict.confidence > Confidence::Low
        }
        Finding::CannotTell { .. } => verdict.experiment != "protocol",
        _ => true,
    }
}

/// The setting below `history`, where there is one.
fn key(what: Extent) -> Option<ProfileKey> {
    match what {
        Extent::State => Some(ProfileKey::State),
        Extent::Blocks => Some(ProfileKey::Blocks),
        Extent::Logs => Some(ProfileKey::Logs),
        Extent::Traces => Some(ProfileKey::Traces),
        Extent::Range => Some(ProfileKey::RangeMax),
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

/// The day and minute of a unix time, in UTC.
pub(crate) fn date(unix: u64) -> String {
    let (year, month, day) = civil(u32::try_from(unix / 86_400).unwrap_or(u32::MAX));
    let (hour, minute) = (unix / 3_600 % 24, unix / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::conclude::verdict::sample_findings;

    fn verdict(finding: Finding) -> ExperimentVerdict {
        ExperimentVerdict {
            experiment: "rate".to_owned(),
            target: 0,
            sentence: finding.to_string(),
            finding,
            confidence: Confidence::High,
            evidence: Vec::new(),
        }
    }

    /// The settings that follow from each kind of findings, but for credits: only the catalogue knows of these.
    const FOLLOWING: [(&str, &[ProfileKey]); 11] = [
        ("bucket", &[ProfileKey::CallsPerSecond, ProfileKey::CallsWindow, ProfileKey::CallsBurst]),
        ("comparison", &[ProfileKey::Http]),
        ("connection_cap", &[ProfileKey::ConnectionsMax]),
        ("idle_close", &[ProfileKey::Idle]),
        ("in_flight", &[ProfileKey::InFlight]),
        ("methods", &[ProfileKey::Deny]),
        ("rate", &[ProfileKey::CallsPerSecond]),
        (
            "reach",
            &[
                ProfileKey::State,
                ProfileKey::Blocks,
                ProfileKey::Logs,
                ProfileKey::Traces,
                ProfileKey::RangeMax,
            ],
        ),
        ("recycle", &[ProfileKey::RequestsMax]),
        ("shaping", &[ProfileKey::InFlight, ProfileKey::StreamsMax]),
        ("stream_cap", &[ProfileKey::StreamsMax]),
    ];

    #[test]
    fn settings_follow_from_these_kinds_and_no_others() {
        let mut reached = BTreeSet::new();
        for finding in sample_findings() {
            let Some(kind) = finding.kind() else { continue };
            let mut settings = Settings { quicker_h1: true, ..Settings::default() };
            settings.add(&verdict(finding));
            reached.extend(settings.set.keys().map(|key| (kind.word, *key)));
        }
        let following =
            FOLLOWING.iter().flat_map(|(word, keys)| keys.iter().map(|key| (*word, *key)));
        assert_eq!(reached, following.collect());
    }

    #[test]
    fn a_cap_on_connections_is_a_setting() {
        let finding = Finding::ConnectionCap { connections: 10, way: RefusalWay::Unanswered };
        let run = RunRecord { targets: vec![MeasuredTarget::default()], ..RunRecord::default() };
        let text = profile(&run, &[verdict(finding)]);
        let line = "    connections_max: 10 # rate: At most 10 connections per client address; \
                    excess gets no response\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn settings_of_an_upstream_have_no_comments() {
        let missing = vec!["a # b".to_owned(), "c\" # d".to_owned()];
        let methods = verdict(Finding::Methods { served: 1, missing });
        let (takes, way) = (Finding::Takes { p50_ms: 1.0, p95_ms: 2.0 }, RefusalWay::Status429);
        let rate = Finding::InFlight { calls: 20, way };
        let told = [&methods, &verdict(takes), &verdict(rate)];
        let expected = "budget:\n  in_flight: 20\n\
                        methods:\n  deny:\n    - \"a # b\"\n    - \"c\\\" # d\"\n";
        assert_eq!(settings(&MeasuredTarget::default(), &told), expected);
    }

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
