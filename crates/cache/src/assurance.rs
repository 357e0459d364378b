//! What stands behind an answer: how closely it was looked at, and how many upstreams said it.
//!
//! An entry remembers it, and a look-up says how much its method asks for. So an answer that was
//! kept before the settings asked for more, in memory, on a disk or in a Redis that others fill,
//! serves no call that wants to be certain.

/// How closely an answer was compared with its call and recomputed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Scrutiny {
    /// Not at all.
    #[default]
    None = 0,
    /// With its call and with itself.
    Cheap = 1,
    /// Its hashes, roots and signatures, too.
    Full = 2,
}

impl Scrutiny {
    const ALL: [Self; 3] = [Self::None, Self::Cheap, Self::Full];
}

/// What stands behind an answer, or has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assurance {
    /// How closely it was looked at.
    pub scrutiny: Scrutiny,
    /// How many upstreams gave it, the first included.
    pub agreed: u8,
}

impl Assurance {
    /// The word of one upstream.
    pub const WORD: Self = Self { scrutiny: Scrutiny::None, agreed: 1 };

    /// Whether this is enough where `required` is asked for.
    pub fn meets(self, required: Self) -> bool {
        self.scrutiny >= required.scrutiny && self.agreed >= required.agreed
    }

    pub(crate) fn encode(self) -> [u8; 2] {
        [self.scrutiny as u8, self.agreed]
    }

    pub(crate) fn decode([scrutiny, agreed]: [u8; 2]) -> Option<Self> {
        let scrutiny = *Scrutiny::ALL.get(usize::from(scrutiny))?;
        Some(Self { scrutiny, agreed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assurance(scrutiny: Scrutiny, agreed: u8) -> Assurance {
        Assurance { scrutiny, agreed }
    }

    #[test]
    fn more_serves_less_and_never_the_other_way() {
        for (at, scrutiny) in Scrutiny::ALL.into_iter().enumerate() {
            for agreed in 1..4 {
                for (required, wanted) in Scrutiny::ALL.into_iter().enumerate() {
                    for votes in 1..4 {
                        let meets = assurance(scrutiny, agreed).meets(assurance(wanted, votes));
                        assert_eq!(meets, at >= required && agreed >= votes);
                    }
                }
            }
        }
    }

    #[test]
    fn it_is_written_in_two_bytes() {
        for scrutiny in Scrutiny::ALL {
            let written = assurance(scrutiny, 3);
            assert_eq!(Assurance::decode(written.encode()), Some(written));
        }
        assert_eq!(Assurance::decode([3, 1]), None);
    }
}
