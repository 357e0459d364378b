//! What is asked for on the command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::case::Case;
use crate::contender::{Kind, UpstreamKind};
use crate::kept::Kept;

/// Turns are bounded, however they are asked for.
const ROUNDS_MAX: u32 = 50;
const SECONDS_MAX: u32 = 120;

/// The options, checked.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) cases: Vec<Case>,
    pub(crate) kept: Vec<Kept>,
    pub(crate) rounds: u32,
    pub(crate) turn: Duration,
    pub(crate) upstream: UpstreamKind,
    /// Another build of wellhead, to be compared with this one.
    pub(crate) before: Option<PathBuf>,
    /// These contenders alone; all where it is empty.
    pub(crate) only: Vec<Kind>,
}

impl Options {
    /// The error names the argument that is not understood.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut named, mut rounds, mut seconds) = (None, None, None);
        let (mut full, mut upstream) = (false, UpstreamKind::Fast);
        let (mut before, mut only) = (None, Vec::new());
        // `cargo bench` adds its own `--bench`.
        let mut arguments = arguments.filter(|argument| argument != "--bench");
        while let Some(name) = arguments.next() {
            if name == "--full" {
                full = true;
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{name} has no value"))?;
            let wrong = || format!("{name} {value}: not understood");
            match name.as_str() {
                "--case" => {
                    let (mut cases, mut kept) = (Vec::new(), Vec::new());
                    for name in value.split(',') {
                        match Kept::named(name) {
                            Some(part) => kept.push(part),
                            None => cases.push(Case::named(name).ok_or_else(wrong)?),
                        }
                    }
                    named = Some((cases, kept));
                }
                "--rounds" => rounds = Some(number(&value, ROUNDS_MAX).ok_or_else(wrong)?),
                "--seconds" => seconds = Some(number(&value, SECONDS_MAX).ok_or_else(wrong)?),
                "--before" => {
                    let file = Some(PathBuf::from(&value)).filter(|path| path.is_file());
                    before = Some(file.ok_or_else(|| format!("{name} {value}: no such file"))?);
                }
                "--only" => {
                    let kinds = value.split(',').map(Kind::named).collect::<Option<_>>();
                    only = kinds.ok_or_else(wrong)?;
                }
                "--upstream" => {
                    upstream = match value.as_str() {
                        "fast" => UpstreamKind::Fast,
                        "geth" => UpstreamKind::Geth,
                        _ => return Err(wrong()),
                    };
                }
                _ => return Err(wrong()),
            }
        }
        let usual = if full { Case::ALL.to_vec() } else { Case::USUAL.to_vec() };
        let (cases, kept) = named.unwrap_or((usual, Kept::ALL.to_vec()));
        let seconds = seconds.unwrap_or(if full { 10 } else { 4 });
        Ok(Self {
            cases,
            kept,
            rounds: rounds.unwrap_or(if full { 5 } else { 3 }),
            turn: Duration::from_secs(seconds.into()),
            upstream,
            before,
            only,
        })
    }
}

fn number(text: &str, max: u32) -> Option<u32> {
    text.parse().ok().filter(|number| (1..=max).contains(number))
}

/// What `--help` prints.
pub(crate) fn usage() -> String {
    let mut text = "\
usage: make bench, or scripts/bench [OPTION]...
  --case A[,B]    these cases only (see below)
  --full          all cases, in 5 rounds of 10 s turns
  --rounds N      how often each contender gets its turn, 1 to 50 (3)
  --seconds N     how long a turn is, 1 to 120 (4)
  --upstream U    fast: an upstream that costs next to nothing (the default);
                  geth: a real node, which then takes most of the other core
  --only A[,B]    these contenders only, such as wellhead,wellhead-traces or
                  wellhead,wellhead-before: in every other round they take their turns the other
                  way round
  --before BIN    another build of wellhead takes its turn in each round, too, with what are
                  defaults now as settings; what is told is this build's figure over that one's
cases, those marked * without being asked for:
"
    .to_owned();
    for case in Case::ALL {
        let mark = if Case::USUAL.contains(&case) { '*' } else { ' ' };
        text.push_str(&format!("{mark} {:<12} {}\n", case.name(), case.about()));
    }
    for part in Kept::ALL {
        text.push_str(&format!("* {:<12} {}\n", part.name(), part.about()));
    }
    text
}
