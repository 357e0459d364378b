//! What the demo shows: a table for a terminal, a line for a file.
//!
//! Both are made from the same status that `/status` serves.

use std::fmt::Write as _;
use std::io::Write as _;

use wellhead_proxy::{Status, UpstreamStatus};
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

/// The words of a row.
type DemoRow = [String; 7];

const HEADING: [&str; 7] = ["upstream", "head", "lag", "latency", "share", "failed", "state"];

fn row(upstream: &UpstreamStatus, attempts_total: u64, sky: &Sky) -> DemoRow {
    let number = |it: Option<u64>| it.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let share = 100.0 * upstream.attempts as f64 / attempts_total.max(1) as f64;
    let mut state = upstream.condition.to_owned();
    if upstream.lagging {
        state.push_str(", lagging");
    }
    if let Some(weather) = sky.get(upstream.id.as_str()) {
        let _ = write!(state, "  ({weather})");
    }
    [
        upstream.id.clone(),
        number(upstream.head),
        number(upstream.lag_blocks),
        upstream.latency_ms.map_or_else(|| "-".to_owned(), |it| format!("{it:.0} ms")),
        format!("{share:.0} %"),
        upstream.failures.to_string(),
        state,
    ]
}

fn write_row(out: &mut String, [id, head, lag, latency, share, failed, state]: &DemoRow) {
    let _ =
        writeln!(out, "  {id:<10} {head:>8} {lag:>5} {latency:>9} {share:>7} {failed:>8}  {state}");
}

fn upstreams(status: &Status) -> &[UpstreamStatus] {
    status.chains.first().map_or(&[], |chain| &chain.upstreams)
}

fn attempts_total(upstreams: &[UpstreamStatus]) -> u64 {
    upstreams.iter().map(|upstream| upstream.attempts).sum()
}

/// The live table.
pub(crate) fn table(status: &Status, client: &Figures, sky: &Sky) -> String {
    let mut out = String::new();
    write_row(&mut out, &HEADING.map(str::to_owned));
    let upstreams = upstreams(status);
    let total = attempts_total(upstreams);
    for upstream in upstreams {
        write_row(&mut out, &row(upstream, total, sky));
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

/// The status and the client's figures in one line.
pub(crate) fn line(status: &Status, client: &Figures, sky: &Sky) -> String {
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
        let [id, head, lag, latency, share, _, state] = row(upstream, total, sky);
        let _ = write!(out, " | {id} head {head} lag {lag} {latency} {share} {state}");
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wellhead_proxy::ChainStatus;

    use super::*;

    fn upstream(id: &str, attempts: u64, failures: u64) -> UpstreamStatus {
        UpstreamStatus {
            id: id.to_owned(),
            condition: "ready",
            head: Some(120),
            lag_blocks: Some(0),
            latency_ms: Some(7.4),
            attempts,
            failures,
            ..UpstreamStatus::default()
        }
    }

    fn status(upstreams: Vec<UpstreamStatus>) -> Status {
        let chains = vec![ChainStatus { upstreams, ..ChainStatus::default() }];
        Status { chains, ..Status::default() }
    }

    fn two() -> Status {
        let shaky = UpstreamStatus {
            head: None,
            lag_blocks: None,
            latency_ms: None,
            condition: "breaker_open",
            lagging: true,
            ..upstream("shaky", 100, 9)
        };
        status(vec![upstream("swift", 300, 2), shaky])
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
    fn the_table_says_what_each_node_does() {
        let sky = Sky::from([("shaky", "down: connections are refused")]);
        let table = table(&two(), &figures(), &sky);
        let expected = "  upstream       head   lag   latency   share   failed  state
  swift           120     0      7 ms    75 %        2  ready
  shaky             -     -         -    25 %        9  breaker_open, lagging  (down: connections are refused)

  client: 400 calls, 0 failed, p50 7.2 ms, p99 40.0 ms
";
        assert_eq!(table, expected);
    }

    #[test]
    fn the_line_says_the_same() {
        let line = line(&two(), &figures(), &Sky::new());
        assert!(line.starts_with("calls 400 failed 0 p50 7.2 ms p99 40.0 ms | swift head 120"));
        assert!(!line.contains('\n'));
    }

    #[test]
    fn nothing_known_is_no_reason_to_fail() {
        let table = table(&status(Vec::new()), &Figures::default(), &Sky::new());
        assert!(table.contains("0 calls, 0 failed"), "{table}");
    }
}
