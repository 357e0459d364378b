//! Plans which upstreams to try, in which order; pure
