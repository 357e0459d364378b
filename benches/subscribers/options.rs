//! What the command line asks for.

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) subscribers: usize,
    /// Heads of a turn.
    pub(crate) heads: usize,
    pub(crate) rounds: usize,
}

impl Options {
    /// `None` where the arguments cannot be read, or ask for help.
    pub(crate) fn parse(arguments: &[String]) -> Option<Self> {
        let mut options = Self { subscribers: 10_000, heads: 10, rounds: 3 };
        // cargo adds it.
        let mut words = arguments.iter().filter(|word| *word != "--bench");
        while let Some(word) = words.next() {
            let value = match word.as_str() {
                "--subscribers" => &mut options.subscribers,
                "--heads" => &mut options.heads,
                "--rounds" => &mut options.rounds,
                _ => return None,
            };
            *value = words.next()?.parse().ok().filter(|count| *count > 0)?;
        }
        (options.subscribers >= 100).then_some(options)
    }

    pub(crate) fn usage() -> &'static str {
        "What subscribers cost, beside a loop of writes, nginx and geth.\n\n  \
         --subscribers N   at least 100 (10000)\n  \
         --heads N         heads of a turn (10)\n  \
         --rounds N        rounds (3)\n"
    }
}
