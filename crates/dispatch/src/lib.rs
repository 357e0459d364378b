//! Runs a plan: attempts, failover, deadlines
