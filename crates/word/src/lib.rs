//! Enums whose variants each have one word: in labels of metrics, logs, pages, settings, stored files.
//!
//! `strum` derives the list and the words from the variants, so that none can be forgotten. What is added
//! here are the names by which the house calls them, documented and `const`: [`words!`], and [`variants!`] for
//! an enum without words. Where a word is not the variant's name, `#[strum(serialize = "…")]` says it. To
//! rename a variant is to rename its word for all readers.

#[doc(hidden)]
pub use strum;

/// Gives a `Copy` enum that derives [`strum::VariantArray`] the constant `ALL`.
///
/// An enum whose variants are not numbered from 0 does not compile:
///
/// ```compile_fail
/// #[derive(Clone, Copy, strum::VariantArray)]
/// enum Tide {
///     High = 1,
///     Low = 2,
/// }
///
/// wellhead_word::variants!(Tide);
/// ```
#[macro_export]
macro_rules! variants {
    ($name:ident) => {
        impl $name {
            /// Every variant, in the order of declaration, which is that of their numbers.
            pub const ALL: [Self; <Self as $crate::strum::VariantArray>::VARIANTS.len()] =
                *<Self as $crate::strum::VariantArray>::VARIANTS
                    .first_chunk()
                    .expect("as long as it is");
        }

        const _: () = {
            let mut place = 0;
            while place < $name::ALL.len() {
                assert!($name::ALL[place] as usize == place, "variants are found by their place");
                place += 1;
            }
        };
    };
}

/// Gives a `Copy` enum that derives [`strum::VariantArray`] and [`strum::VariantNames`] the constant `ALL` and
/// the functions `word` and `from_word`.
///
/// ```
/// #[derive(Debug, Clone, Copy, PartialEq, strum::VariantArray, strum::VariantNames)]
/// #[strum(serialize_all = "snake_case")]
/// enum Tide {
///     High,
///     HalfWay,
///     #[strum(serialize = "ebb")]
///     Low,
/// }
///
/// wellhead_word::words!(Tide);
///
/// assert_eq!(Tide::ALL.map(Tide::word), ["high", "half_way", "ebb"]);
/// assert_eq!(Tide::from_word("ebb"), Some(Tide::Low));
/// assert_eq!(Tide::from_word("Ebb"), None);
/// ```
#[macro_export]
macro_rules! words {
    ($name:ident) => {
        $crate::variants!($name);

        impl $name {
            /// The one word for this variant.
            pub const fn word(self) -> &'static str {
                <Self as $crate::strum::VariantNames>::VARIANTS[self as usize]
            }

            /// The variant a word stands for; exact, case matters.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|it| it.word() == word)
            }
        }
    };
}
