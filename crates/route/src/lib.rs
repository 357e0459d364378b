//! Which upstreams to try for a request, and in which order. Pure: told the
//! time, given the chance, it returns a [`Plan`] and touches nothing.
//!
//! [`Roster`] has the settings (which upstreams serve which methods), [`View`] the
//! state of the chain, and each upstream its own condition. `dispatch` runs the plan,
//! and decides whether a failed call is tried elsewhere.
//!
//! [`View`]: wellhead_chain::View

mod balance;
mod plan;
mod roster;

pub use balance::Balance;
pub use plan::{CANDIDATES_MAX, Fitness, HOLD_SHORT, Plan, PlanRequest, assess, plan};
pub use roster::{DangerousMethods, NotServed, Roster, RouteRule, TEST_CHAINS};
