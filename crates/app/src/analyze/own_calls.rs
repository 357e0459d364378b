//! Calls of one's own as work: from a file, drawn or replayed.

use std::path::Path;

use wellhead_analyze::call_list::CallList;
use wellhead_analyze::measure::plan::{ExperimentPlan, FixedPlan};
use wellhead_analyze::work::{METHODS, WorkKind};

use super::{Plans, measure, work};
use crate::cli::analyze::endpoint::{OwnCallsArgs, ReplayArgs};
use crate::cli::analyze::{Measured, WorkChoice};
use crate::config;
use crate::terminal::{CommandError, complain};

/// Longer files are refused.
const BYTES_MAX: u64 = 256 << 20;

/// The work of an experiment that may have calls of one's own.
pub(super) fn own_or(kind: WorkChoice, own: &OwnCallsArgs) -> Result<WorkKind, CommandError> {
    match &own.calls_from {
        Some(path) => Ok(WorkKind::Listed(read(path)?)),
        None => Ok(work(kind)),
    }
}

/// Replays a file.
pub(super) fn replay(it: &Measured<ReplayArgs>) -> Result<(), CommandError> {
    let list = read(&it.from)?;
    let Some(plan) = FixedPlan::replay(list, it.speed, it.connections.into()) else {
        let text = format!("`{}`: each call needs a `timestamp`", it.from.display());
        return Err(CommandError::Config(text));
    };
    measure(&it.common, &|_| -> Plans { vec![Box::new(plan.clone()) as Box<dyn ExperimentPlan>] })
}

/// The calls in a file. They live as long as the process, which has one run.
fn read(path: &Path) -> Result<&'static CallList, CommandError> {
    let failed = |why: String| CommandError::Config(format!("`{}`: {why}", path.display()));
    let text = config::file::read_any(path, BYTES_MAX)
        .and_then(config::file::text)
        .map_err(|error| failed(error.to_string()))?;
    let list = CallList::parse(&text, &METHODS).map_err(|why| failed(why.to_string()))?;
    if list.left_out() > 0 {
        complain(&format!(
            "{} calls; {} lines of the log are left out: batches, writes, and methods whose params cannot \
             be drawn",
            list.calls().len(),
            list.left_out()
        ));
    }
    Ok(Box::leak(Box::new(list)))
}
