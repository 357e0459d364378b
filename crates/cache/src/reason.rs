//! Why an answer is kept, or is not: one word each, shown to people.
//!
//! The words stand in a response header, in the metrics and in what `explain` says.

/// Why an answer is kept, or why not. Its words stand in metrics and `explain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(strum::Display, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Reason {
    /// Kept: it depends on no block.
    Fixed,
    /// Kept: it depends on a block that can no longer be replaced.
    Final,
    /// Kept until its block is orphaned.
    Canonical,
    /// Kept: it speaks of a block named by its hash, whatever becomes of that block.
    Named,
    /// Kept until the next head, and for no longer than the settings say.
    Head,
    /// Kept for the short time of the settings: a `null` that says something true.
    Null,
    /// Not kept: the call is no read.
    NotARead,
    /// Not kept: it depends on the upstream or the time, or nothing is known of the method.
    Live,
    /// Not kept: it speaks of what is not in a block yet.
    Pending,
    /// Not kept: the block reference cannot be understood in exactly one way.
    Unreadable,
    /// Not kept: the upstream was asked by a tag, so its own idea of it decided.
    Tag,
    /// Not kept: an object in the parameters has a key twice, or two that some nodes
    /// take for the same.
    DuplicateKey,
    /// Not kept: the parameters are nested too deep for a key.
    TooDeep,
    /// Not kept: the parameters are too large for a key.
    ParamsTooLarge,
    /// Not kept: the parameters are not what a key can be made of.
    OddParams,
    /// Not kept: an error.
    Error,
    /// Not kept: it was not read to its end, or is told piece by piece.
    Unfinished,
    /// Not kept: `null`, which may not be true for long, or not at another upstream.
    NullAnswer,
    /// Not kept: it depends on the block in which something was found, and names none.
    NamesNoBlock,
    /// Not kept: it was asked for by a height that may still get another block, and does
    /// not tell from which block it is.
    Unproven,
    /// Not kept: it names a block that the view does not know.
    UnknownBlock,
    /// Not kept: its block was orphaned.
    Orphaned,
    /// Not kept: it hangs on the head, and that changed while the answer was under way.
    HeadMoved,
    /// Not kept: the settings give answers of this kind no time.
    Off,
    /// Not kept: larger than one answer may be.
    TooLarge,
}

wellhead_word::words!(Reason);

impl Reason {
    /// Whether it is a reason to keep an answer.
    pub const fn is_kept(self) -> bool {
        match self {
            Self::Fixed | Self::Final | Self::Canonical | Self::Named | Self::Head | Self::Null => {
                true
            }
            Self::NotARead
            | Self::Live
            | Self::Pending
            | Self::Unreadable
            | Self::Tag
            | Self::DuplicateKey
            | Self::TooDeep
            | Self::ParamsTooLarge
            | Self::OddParams
            | Self::Error
            | Self::Unfinished
            | Self::NullAnswer
            | Self::NamesNoBlock
            | Self::Unproven
            | Self::UnknownBlock
            | Self::Orphaned
            | Self::HeadMoved
            | Self::Off
            | Self::TooLarge => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_place_and_its_word() {
        for (place, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, place, "{reason}: counters are indexed by it");
            let same = Reason::ALL.iter().filter(|other| other.word() == reason.word());
            assert_eq!(same.count(), 1, "{reason}");
        }
    }
}
