//! One upstream: its identity, its health, and the meaning of its replies.
//!
//! Nothing here sleeps, spawns or reads a clock; `dispatch` sends and reports,
//! `watch` probes, `route` reads. Connections belong to `net`, heads to `chain`.

mod admit;
mod bound;
mod breaker;
mod budget;
mod client_places;
mod control;
mod demand;
mod detail;
mod dissent;
pub mod docs;
mod extent;
mod failure_rate;
mod identity;
mod in_flight;
mod judge;
mod latency;
mod list;
mod offer;
mod provider;
mod quantile;
mod rate;
mod reach;
mod redactor;
mod refusal;
mod rule;
mod search_limit;
mod set;
mod sharing;
mod silence;
mod stamp;
mod study_hold;
mod trials;
mod unknown;
mod upstream;
mod verdict;
mod version;

pub use bound::{Bound, LimitedBy};
pub use breaker::BreakerBounds;
pub use budget::{Budget, BudgetTerms};
pub use client_places::ClientHash;
pub use control::Spending;
pub use extent::CallExtent;
pub use identity::{Identity, MethodRules, Tier, UpstreamId};
pub use in_flight::{FlowShare, InFlight};
pub use judge::Judge;
pub use list::UpstreamList;
pub use offer::Offer;
pub use provider::{Meter, Metering, MethodCost, Provider, ProviderPlan, Push, PushPrice, Tariff};
pub use reach::ReachSettings;
pub use redactor::{HiddenSecrets, Redactor};
pub use refusal::PausedMethod;
pub use rule::{CALL_ID, ErrorSubject, Recorded, RuleScope, RuleSet, RuleStage, VerdictRule};
pub use search_limit::{SearchLimits, SearchSize, SizeLimit};
pub use set::{SharedUpstreamSet, Slot, UPSTREAMS_MAX, UpstreamSet};
pub use sharing::UpstreamSharing;
pub use stamp::{Stamp, StampCell};
pub use upstream::{Change, Condition, Standing, Upstream, UpstreamProblem};
pub use verdict::{Doing, HealthEffect, Learnt, Payload, TryElsewhere, Verdict, VerdictClass};
pub use wellhead_limit::Pages;
