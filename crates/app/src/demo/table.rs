//! What the demo shows: a table for a terminal, a line for a file.
//!
//! Both are made from the same status that `/status` serves.

use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::Value;
use wellhead_sim::fleet::Sky;

use super::client::Figures;

/// Draws over what it drew before.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    lines: usize,
}

impl Screen {
    pub(crate) fn draw(&mut self, text: &str) {
        let mut out = String::new();
        if self.lines > 0 {
            // To the first line of the last table, and clear from there.
            let _ = write!(out, "\x1b[{}F\x1b[J", self.lines);
        }
        out.push_str(text);
        self.lines = text.lines().count();
        let mut stdout = std::io::stdout().lock();
        // A terminal that went away is no reason to stop.
        let _ = stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush());
    }
}

struct Row {
    id: String,
    head: String,
    lag: String,
    latency: String,
    share: String,
    failed: String,
    state: String,
}

impl Row {
    fn heading() -> Self {
        let word = str::to_owned;
        Self {
            id: word("upstream"),
            head: word("head"),
            lag: word("lag"),
            latency: word("latency"),
            share: word("share"),
            failed: word("failed"),
            state: word("state"),
        }
    }

    fn of(upstream: &Value, attempts_total: u64, sky: &Sky) -> Self {
        let id = upstream["id"].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| upstream[key].as_u64();
        let attempts = number("attempts").unwrap_or_default();
        let share = 100.0 * attempts as f64 / attempts_total.max(1) as f64;
        let mut state = upstream["condition"].as_str().unwrap_or_default().to_owned();
        if upstream["lagging"].as_bool() == Some(true) {
            state.push_str(", lagging");
        }
        if let Some(weather) = sky.get(id.as_str()) {
            let _ = write!(state, "  ({weather})");
        }
        Self {
            head: number("head").map_or_else(|| "-".to_owned(), |it| it.to_string()),
            lag: number("lag_blocks").map_or_else(|| "-".to_owned(), |it| it.to_string()),
            latency: upstream["latency_ms"]
                .as_f64()
                .map_or_else(|| "-".to_owned(), |it| format!("{it:.0} ms")),
            share: format!("{share:.0} %"),
            failed: number("failures").unwrap_or_default().to_string(),
            state,
            id,
        }
    }

    fn write(&self, out: &mut String) {
        let Self { id, head, lag, latency, share, failed, state } = self;
        let _ = writeln!(
            out,
            "  {id:<10} {head:>8} {lag:>5} {latency:>9} {share:>7} {failed:>8}  {state}"
        );
    }
}

fn upstreams(status: &Value) -> &[Value] {
    status["chains"][0]["upstreams"].as_array().map_or(&[], Vec::as_slice)
}

fn attempts_total(upstreams: &[Value]) -> u64 {
    upstreams.iter().filter_map(|upstream| upstream["attempts"].as_u64()).sum()
}

/// The live table.
pub(crate) fn table(status: &Value, client: &Figures, sky: &Sky) -> String {
    let mut out = String::new();
    Row::heading().write(&mut out);
    let upstreams = upstreams(status);
    let total = attempts_total(upstreams);
    for upstream in upstreams {
        Row::of(upstream, total, sky).write(&mut out);
    }
    out.push('\n');
    let _ = writeln!(
        out,
        "  client: {} calls, {} failed, p50 {:.1} ms, p99 {:.1} ms",
        client.calls,
        client.failures,
        client.p50.as_secs_f64() * 1e3,
        client.p99.as_secs_f64() * 1e3,
    );
    out
}

/// The same in one line.
pub(crate) fn line(status: &Value, client: &Figures, sky: &Sky) -> String {
    let upstreams = upstreams(status);
    let total = attempts_total(upstreams);
    let mut out = format!(
        "calls {} failed {} p50 {:.1} ms p99 {:.1} ms",
        client.calls,
        client.failures,
        client.p50.as_secs_f64() * 1e3,
        client.p99.as_secs_f64() * 1e3,
    );
    for upstream in upstreams {
        let Row { id, head, lag, latency, share, state, .. } = Row::of(upstream, total, sky);
        let _ = write!(out, " | {id} head {head} lag {lag} {latency} {share} {state}");
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn status() -> Value {
        json!({ "chains": [{ "upstreams": [
            { "id": "swift", "head": 120, "lag_blocks": 0, "latency_ms": 7.4, "attempts": 300,
              "failures": 2, "condition": "ready", "lagging": false },
            { "id": "shaky", "head": null, "lag_blocks": null, "latency_ms": null, "attempts": 100,
              "failures": 9, "condition": "resting", "lagging": true },
        ]}]})
    }

    fn figures() -> Figures {
        Figures {
            calls: 400,
            failures: 0,
            p50: Duration::from_micros(7_250),
            p99: Duration::from_millis(40),
            last_failure: None,
        }
    }

    #[test]
    fn the_table_says_who_does_what() {
        let sky = Sky::from([("shaky", "down: connections are refused")]);
        let table = table(&status(), &figures(), &sky);
        let expected = "  upstream       head   lag   latency   share   failed  state
  swift           120     0      7 ms    75 %        2  ready
  shaky             -     -         -    25 %        9  resting, lagging  (down: connections are refused)

  client: 400 calls, 0 failed, p50 7.2 ms, p99 40.0 ms
";
        assert_eq!(table, expected);
    }

    #[test]
    fn the_line_says_the_same() {
        let line = line(&status(), &figures(), &Sky::new());
        assert!(line.starts_with("calls 400 failed 0 p50 7.2 ms p99 40.0 ms | swift head 120"));
        assert!(!line.contains('\n'));
    }

    #[test]
    fn nothing_known_is_no_reason_to_fail() {
        let table = table(&json!({}), &Figures::default(), &Sky::new());
        assert!(table.contains("0 calls, 0 failed"), "{table}");
    }
}
