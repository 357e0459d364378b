//! Simulated chains and upstreams: for tests, and for the demo
