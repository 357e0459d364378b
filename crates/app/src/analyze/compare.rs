//! `wellhead analyze compare`: two runs beside each other.

use std::fs;
use std::path::Path;

use wellhead_analyze::profile::plain;
use wellhead_analyze::report::{Side, compare};

use super::read;
use crate::cli::analyze::CompareArgs;
use crate::terminal::{CommandError, complain, say};

/// Prints what differs, and ends with its own exit code where something does.
pub(super) fn command(it: &CompareArgs) -> Result<(), CommandError> {
    let (before, after) = (read(&it.before)?, read(&it.after)?);
    let (first, second) = (it.before.display().to_string(), it.after.display().to_string());
    let comparison = compare(
        Side { name: &first, run: &before.0, records: &before.1 },
        Side { name: &second, run: &after.0, records: &after.1 },
    );
    // Some of it is in the words of the other side.
    comparison.text.lines().for_each(|line| say(&plain(line)));
    let files = [(&it.markdown, &comparison.markdown), (&it.html, &comparison.html)];
    for (path, text) in files.into_iter().filter_map(|(path, text)| Some((path.as_ref()?, text))) {
        write(path, text)?;
    }
    if comparison.differs { Err(CommandError::Differs) } else { Ok(()) }
}

fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    fs::write(path, text)
        .map_err(|error| CommandError::System(format!("`{}`: {error}", path.display())))?;
    complain(&format!("written: {}", path.display()));
    Ok(())
}
