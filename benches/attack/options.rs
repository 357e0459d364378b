//! What is asked for on the command line.

use wellhead_e2e::attack::named;

use crate::beside::Kind;

/// Attacks are bounded, however they are asked for.
const SECONDS_MAX: u64 = 15;

/// The options, checked.
#[derive(Debug, Default)]
pub(crate) struct Options {
    only: Vec<String>,
    /// Other proxies to attack in the same way.
    pub(crate) beside: Vec<Kind>,
    /// How long each attack lasts.
    pub(crate) seconds: Option<u64>,
    /// Write the results under benches/runs.
    pub(crate) keep: bool,
    /// Say which attacks there are, and play none.
    pub(crate) list: bool,
}

impl Options {
    /// `None` when something is not understood.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self::default();
        // `cargo bench` adds its own `--bench`.
        let mut arguments = arguments.filter(|argument| argument != "--bench");
        while let Some(name) = arguments.next() {
            match name.as_str() {
                "--list" => options.list = true,
                "--keep" => options.keep = true,
                "--only" => {
                    options.only = arguments.next()?.split(',').map(str::to_owned).collect();
                    let is_known = |name: &String| name.ends_with('*') || named(name).is_some();
                    if !options.only.iter().all(is_known) {
                        return None;
                    }
                }
                "--beside" => {
                    let kinds: Option<_> = arguments.next()?.split(',').map(Kind::named).collect();
                    options.beside = kinds?;
                }
                "--seconds" => {
                    let seconds = arguments.next()?.parse().ok();
                    options.seconds =
                        Some(seconds.filter(|seconds| (1..=SECONDS_MAX).contains(seconds))?);
                }
                _ => return None,
            }
        }
        Some(options)
    }

    /// Whether this attack is asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        let is_named = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        self.only.is_empty() || self.only.iter().any(is_named)
    }
}

/// What `--help` prints.
pub(crate) const USAGE: &str = "\
usage: make attack, or scripts/attack [OPTION]...
  --only A[,B]      these attacks alone; `h2-*` is all that begin with h2-
  --seconds N       how long each lasts (8; at most 15)
  --beside A[,B]    nginx, envoy: attacked in the same way where that makes sense
  --list            say which attacks there are, and play none
  --keep            write the results to benches/runs
WELLHEAD_BIN names another binary to attack; nothing is then built.
";
