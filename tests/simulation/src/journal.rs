//! What happened, line by line, and a hash over it.
//!
//! Two runs of one seed must write the same lines: the hash is how a test, and
//! a replay of a seed, sees that they did.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Lines kept for people. The hash goes on without them.
const LINES_MAX: usize = 200_000;

/// The lines so far.
#[derive(Debug, Default)]
pub struct Journal {
    lines: Vec<(Duration, String)>,
    /// Its keys are fixed, so that the hash means the same in every run.
    hasher: DefaultHasher,
}

impl Journal {
    /// Adds a line.
    pub fn note(&mut self, at: Duration, line: String) {
        (at, &line).hash(&mut self.hasher);
        if self.lines.len() < LINES_MAX {
            self.lines.push((at, line));
        }
    }

    /// A hash over all lines so far.
    pub fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// All lines.
    pub fn lines(&self) -> &[(Duration, String)] {
        &self.lines
    }

    /// The last `count` lines up to `at`, and a few that follow.
    pub fn around(&self, at: Duration, count: usize) -> Vec<String> {
        let end = self.lines.partition_point(|(when, _)| *when <= at);
        let begin = end.saturating_sub(count);
        let end = (end + count / 8).min(self.lines.len());
        self.lines[begin..end].iter().map(|(at, line)| written(*at, line)).collect()
    }
}

/// `   12.345 s  line`
pub fn written(at: Duration, line: &str) -> String {
    format!("{:9.3} s  {line}", at.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_tells_order_and_time() {
        let hash = |lines: &[(u64, &str)]| {
            let mut journal = Journal::default();
            for (at, line) in lines {
                journal.note(Duration::from_millis(*at), (*line).to_owned());
            }
            journal.hash()
        };
        assert_eq!(hash(&[(1, "a"), (2, "b")]), hash(&[(1, "a"), (2, "b")]));
        assert_ne!(hash(&[(1, "a"), (2, "b")]), hash(&[(1, "b"), (2, "a")]));
        assert_ne!(hash(&[(1, "a")]), hash(&[(2, "a")]));
    }

    #[test]
    fn what_led_to_a_moment_is_shown() {
        let mut journal = Journal::default();
        for second in 0..10 {
            journal.note(Duration::from_secs(second), format!("line {second}"));
        }
        let shown = journal.around(Duration::from_secs(5), 2);
        assert_eq!(shown, ["    4.000 s  line 4", "    5.000 s  line 5"]);
    }
}
