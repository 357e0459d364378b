//! Placeholder target.
fn main() {}
