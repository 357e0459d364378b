//! Upstreams as most tests want them, and what is told of them.

use std::time::Duration;

use wellhead_eth::MethodTable;
use wellhead_upstream::{
    BreakerBounds, Identity, Payload, Slot, Standing, Upstream, Verdict, VerdictClass,
};

use crate::now;

/// The identity of an upstream that is named by its slot: `a`, `b` and so on.
pub fn named_by(slot: Slot) -> Identity {
    Identity::named(&char::from(b'a' + slot.0).to_string())
}

/// An upstream with the usual breaker, whose chain is not verified yet.
pub fn upstream(identity: Identity, slot: Slot) -> Upstream {
    Upstream::new(identity, slot, BreakerBounds::default(), now())
}

/// As [`upstream`], with a verified chain.
pub fn verified(identity: Identity, slot: Slot) -> Upstream {
    let upstream = upstream(identity, slot);
    upstream.set_standing(Standing::Verified);
    upstream
}

/// A verdict of `class` that carries nothing.
pub fn verdict(class: VerdictClass) -> Verdict {
    Verdict::new(class, "test", Payload::None { detail: String::new() })
}

/// Settles a call of `method` that took `took` with a verdict of `class`.
pub fn settle(upstream: &Upstream, method: &str, class: VerdictClass, took: Duration) {
    let row = MethodTable::standard().row(method);
    upstream.settle(row, &verdict(class), now(), now() + took);
}

/// Has the upstream refuse a call of `method`, with `Retry-After` or without.
pub fn throttle(upstream: &Upstream, method: &str, retry_after: Option<Duration>) {
    let row = MethodTable::standard().row(method);
    let verdict = Verdict { retry_after, ..verdict(VerdictClass::Throttled) };
    upstream.settle(row, &verdict, now(), now());
}
