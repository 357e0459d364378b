//! Where keys come from.

/// Where keys come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrigin {
    /// `access.keys.list`.
    Settings,
    /// `access.keys.file`.
    File,
    /// `access.keys.redis`.
    Redis,
}

impl KeyOrigin {
    pub(crate) const ALL: [Self; 3] = [Self::Settings, Self::File, Self::Redis];
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// Those of which it is remembered what has ended for good.
    pub const REMEMBERED: [Self; 2] = [Self::File, Self::Redis];

    /// As pages about keys, and the state file, name it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Settings => "config",
            Self::File => "file",
            Self::Redis => "redis",
        }
    }
}
