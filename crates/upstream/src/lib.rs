//! One upstream: identity, health, latency, and the judgement of its replies
