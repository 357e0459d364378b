//! `wellhead analyze compare`: two runs beside each other.

use wellhead_analyze::conclude::profile::plain;
use wellhead_analyze::report::{Side, compare};

use super::gate::{self, JudgedRun, tell, write};
use super::read;
use crate::cli::analyze::CompareArgs;
use crate::cli::analyze::gate::GateArgs;
use crate::terminal::CommandError;

/// Prints what differs, and ends with its own exit code where something does.
pub(super) fn command(it: &CompareArgs) -> Result<(), CommandError> {
    gate::check(&GateArgs { conditions: it.conditions.clone(), ..GateArgs::default() })?;
    let (before, after) = (read(&it.before)?, read(&it.after)?);
    let (first, second) = (it.before.display().to_string(), it.after.display().to_string());
    let comparison = compare(
        Side { name: &first, run: &before.0, records: &before.1 },
        Side { name: &second, run: &after.0, records: &after.1 },
    );
    // Some of it is in the words of the other side.
    comparison.text.lines().for_each(|line| tell(&it.conditions, &plain(line)));
    let files = [(&it.markdown, &comparison.markdown), (&it.html, &comparison.html)];
    for (path, text) in files.into_iter().filter_map(|(path, text)| Some((path.as_ref()?, text))) {
        write(path, text)?;
    }
    let judged = JudgedRun { run: &after.0, records: &after.1, is_interrupted: false };
    gate::decide_on(&it.conditions, &judged, Some((&before.0, &comparison)))?;
    if comparison.differs { Err(CommandError::Differs) } else { Ok(()) }
}
