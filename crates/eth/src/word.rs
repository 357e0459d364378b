//! Enums whose variants each have one word, used in the data file, in metrics
//! labels and in the documentation, so that the three cannot drift apart.

/// Declares an enum with `word()`, `from_word()`, `ALL` and `Display`.
macro_rules! word_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every variant, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The one word for this variant.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The variant a word stands for; exact, case matters.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

pub(crate) use word_enum;
