//! Metric families, log set-up, secret URLs and the wall clock
