//! The one place from which a plan is run.

use wellhead_dispatch::{Bounds, Job, Outcome, WorkerUpstreams};
use wellhead_route::Plan;

use crate::state::chain::ServedChain;

/// Asks the upstreams of `chain` by `plan`, within these bounds.
pub(crate) fn run_plan<'a>(
    chain: &'a ServedChain,
    worker: &'a WorkerUpstreams,
    job: &'a Job<'a>,
    plan: &'a Plan,
    bounds: &'a Bounds,
) -> impl Future<Output = Outcome> + 'a {
    wellhead_dispatch::run(job, plan, &chain.roster, worker, bounds)
}
