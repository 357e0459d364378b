//! From verdicts to settings: what the proxy should know of each upstream, as YAML.
//!
//! The text is a list of `upstreams` as the settings of a chain have it, with the URL as a
//! variable, because a run knows none. What has no setting is a comment with the figure that was
//! measured. Each line says what it rests on. A figure of low confidence is a comment as well.

use std::fmt::Write as _;

use crate::record::{Run, Target};
use crate::verdict::{Confidence, Extent, Finding, RefusalWay, Scope, Verdict, figure};

/// Of a measured limit so much is asked for: a limit that is met exactly refuses some.
const MARGIN: f64 = 0.95;

/// Methods that are written to `methods.deny` at most.
const DENIED_MAX: usize = 100;

/// The settings that follow from the verdicts of a run.
pub fn profile(run: &Run, verdicts: &[Verdict]) -> String {
    let mut out = format!(
        "# What was measured with wellhead {}, {} UTC, seed {}.\n\
         # Merge each entry into the upstream of your settings.\nupstreams:\n",
        plain(&run.wellhead),
        date(run.started_unix),
        run.seed
    );
    for (index, target) in run.targets.iter().enumerate() {
        let own: Vec<&Verdict> =
            verdicts.iter().filter(|verdict| verdict.target as usize == index).collect();
        upstream(&mut out, index, target, &own);
    }
    out
}

/// What a target's verdicts come to.
#[derive(Default)]
struct Settings {
    http: Option<Line>,
    /// HTTP/2 is quicker in at least one setting.
    quicker_h2: bool,
    calls_per_second: Option<Line>,
    in_flight: Option<Line>,
    history: Vec<(&'static str, Line)>,
    deny: Option<(Vec<String>, String)>,
    comments: Vec<String>,
}

struct Line {
    value: String,
    why: String,
}

fn upstream(out: &mut String, index: usize, target: &Target, verdicts: &[&Verdict]) {
    let mut settings = Settings::default();
    for verdict in verdicts {
        settings.add(verdict);
    }
    let _ = writeln!(out, "  - id: {}", quoted(&target.id));
    let _ = writeln!(out, "    # {}; its URL is not kept in a run", plain(&target.host));
    let _ = writeln!(out, "    url: \"${{UPSTREAM_{}_URL}}\"", index + 1);
    if let Some(provider) = &target.provider {
        let _ = writeln!(out, "    provider: {}", quoted(provider));
    }
    settings.write(out);
}

impl Settings {
    fn add(&mut self, verdict: &Verdict) {
        let why = format!("{}: {}", verdict.experiment, plain(&verdict.sentence));
        if verdict.confidence <= Confidence::Low {
            self.comments.push(format!("{why} (confidence {})", verdict.confidence.word()));
            return;
        }
        match &verdict.finding {
            Finding::Rate { per_second, way } => {
                self.rate(*per_second, &why, true);
                if *way == RefusalWay::InBody {
                    self.comments
                        .push(format!("{why}: refusals come with another status than 429"));
                }
            }
            Finding::Bucket { refill_per_second, .. } => {
                self.rate(*refill_per_second, &why, false);
                self.comments.push(why);
            }
            Finding::Shaped { scope, knee, .. } => self.knee(*scope, *knee, &why),
            Finding::Faster { what, .. } => match what.as_str() {
                // HTTP/2 is taken where it is offered anyway.
                "http/1.1" if self.http.is_none() => {
                    self.http = Some(Line { value: "\"1.1\"".to_owned(), why });
                }
                "h2" => {
                    self.quicker_h2 = true;
                    self.comments.push(why);
                }
                _ => self.comments.push(why),
            },
            Finding::Reach { what, up_to: Some(up_to), refused_at: Some(_), .. } => {
                match key(*what) {
                    Some(key) => self.history.push((key, Line { value: up_to.to_string(), why })),
                    None => self.comments.push(why),
                }
            }
            Finding::Methods { missing, .. } if !missing.is_empty() => {
                self.deny = Some((missing.clone(), why));
            }
            Finding::Takes { .. }
            | Finding::StreamCap { .. }
            | Finding::NoStreamCap { .. }
            | Finding::Recycle { .. }
            | Finding::NoRecycle { .. }
            | Finding::IdleClose { .. }
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
            | Finding::Held { .. }
            | Finding::Drift { .. }
            | Finding::NoDrift { .. }
            | Finding::CannotTell { .. } => self.comments.push(why),
        }
    }

    /// What a long test passed goes before what a burst's refill suggests.
    fn rate(&mut self, per_second: f64, why: &str, direct: bool) {
        let value = (per_second * MARGIN).floor();
        if value >= 1.0 && (direct || self.calls_per_second.is_none()) {
            let why = format!("95 % of what was measured, {why}");
            self.calls_per_second = Some(Line { value: value.to_string(), why });
        }
    }

    fn knee(&mut self, scope: Scope, knee: f64, why: &str) {
        match scope {
            Scope::Account | Scope::Open => {
                let value = knee.ceil().clamp(1.0, 65_536.0).to_string();
                let why = format!("more at once only takes longer, {why}");
                self.in_flight = Some(Line { value, why });
            }
            Scope::Connection => {
                let knee = figure(knee);
                self.comments.push(format!("{why}, from {knee} at once on each"));
            }
        }
    }

    fn write(&self, out: &mut String) {
        // Where each is quicker at something, the load decides: see the comments.
        if let Some(line) = self.http.as_ref().filter(|_| !self.quicker_h2) {
            let _ = writeln!(out, "    http: {} # {}", line.value, line.why);
        }
        if self.calls_per_second.is_some() || self.in_flight.is_some() {
            out.push_str("    budget:\n");
            let lines =
                [("calls_per_second", &self.calls_per_second), ("in_flight", &self.in_flight)];
            for (name, line) in lines {
                if let Some(line) = line {
                    let _ = writeln!(out, "      {name}: {} # {}", line.value, line.why);
                }
            }
        }
        if !self.history.is_empty() {
            out.push_str("    history:\n");
            for (name, line) in &self.history {
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

/// On one line, without what would end a comment or hide in a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || turns(c) { ' ' } else { c }).collect()
}

/// A mark that turns text around, and could make one thing look like another.
pub(crate) fn turns(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A YAML scalar in double quotes, whose escapes are those of JSON. A `$`, with which a variable
/// of the settings would begin, is doubled.
fn quoted(text: &str) -> String {
    serde_json::Value::String(text.replace('$', "$$")).to_string()
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
    fn dates() {
        assert_eq!(super::date(0), "1970-01-01 00:00");
        assert_eq!(super::date(951_827_696), "2000-02-29 12:34");
        assert_eq!(super::date(1_795_000_000), "2026-11-18 11:06");
    }
}
