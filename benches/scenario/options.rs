//! What is asked for on the command line.

use std::time::Duration;

use crate::faults;

/// Loads are bounded, however they are asked for.
const SOAK_MINUTES_MAX: u64 = 24 * 60;
const RATE_MAX: u64 = 20_000;

/// What can be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Stages,
    Faults,
    Outage,
    Redis,
    Soak,
    Subscriptions,
}

/// The options, checked.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) parts: Vec<Part>,
    /// The published times instead of short ones.
    pub(crate) full: bool,
    pub(crate) soak: Duration,
    /// Calls a second, instead of users in `faults` and of half of capacity in `soak`.
    pub(crate) rate: Option<u64>,
    /// Names of cases of `faults`; all when empty.
    pub(crate) cases: Vec<String>,
    pub(crate) seed: u64,
    /// Write the results under benches/runs.
    pub(crate) keep: bool,
}

impl Part {
    fn named(name: &str) -> Option<Self> {
        match name {
            "stages" => Some(Self::Stages),
            "faults" => Some(Self::Faults),
            "outage" => Some(Self::Outage),
            "redis" => Some(Self::Redis),
            "soak" => Some(Self::Soak),
            _ => None,
        }
    }
}

impl Options {
    /// `None` when something is not understood.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self {
            parts: vec![Part::Stages, Part::Faults, Part::Outage],
            full: false,
            soak: Duration::ZERO,
            rate: None,
            cases: Vec::new(),
            seed: 1,
            keep: false,
        };
        // `cargo bench` adds its own `--bench`.
        let mut arguments = arguments.filter(|argument| argument != "--bench");
        while let Some(name) = arguments.next() {
            match name.as_str() {
                "--full" => options.full = true,
                "--keep" => options.keep = true,
                "--only" => {
                    let named: Option<_> = arguments.next()?.split(',').map(Part::named).collect();
                    options.parts = named?;
                }
                "--soak" | "--subscriptions" => {
                    let minutes: u64 = arguments.next()?.parse().ok()?;
                    if !(1..=SOAK_MINUTES_MAX).contains(&minutes) {
                        return None;
                    }
                    options.soak = Duration::from_secs(minutes * 60);
                    options.parts = vec![match name.as_str() {
                        "--soak" => Part::Soak,
                        _ => Part::Subscriptions,
                    }];
                }
                "--rate" => {
                    let rate = arguments.next()?.parse().ok();
                    options.rate = Some(rate.filter(|rate| (1..=RATE_MAX).contains(rate))?);
                }
                "--case" => {
                    options.cases = arguments.next()?.split(',').map(str::to_owned).collect();
                    if !options.cases.iter().all(|name| faults::NAMES.contains(&&**name)) {
                        return None;
                    }
                    options.parts = vec![Part::Faults];
                }
                "--seed" => options.seed = arguments.next()?.parse().ok()?,
                _ => return None,
            }
        }
        // How long is for `--soak` to say.
        let soaks =
            options.parts.iter().any(|part| matches!(part, Part::Soak | Part::Subscriptions));
        (soaks != options.soak.is_zero()).then_some(options)
    }
}

/// What `--help` prints.
pub(crate) const USAGE: &str = "\
usage: make scenario, or scripts/scenario [OPTION]...
  --only A[,B]     of stages, faults, outage, redis: these alone (the first three)
  --case A[,B]     of the faults killed, errors, limited, stalls: these alone
  --full           stages and faults as long as published, 30 minutes instead of 4; more
                   and longer rounds of redis
  --soak MINUTES   mixed faults at half of capacity for so long, and nothing else
  --subscriptions MINUTES
                   WebSocket clients that stay, come and go, stall and storm, while
                   upstreams fail and blocks are replaced, and nothing else
  --rate N         so many calls a second, whether or not earlier ones are answered:
                   for faults instead of 200 users, for the soak instead of half
                   of what is possible
  --seed N         where chance begins (1)
  --keep           write the results to benches/runs
WELLHEAD_BIN names another binary to measure; nothing is then built.
";
