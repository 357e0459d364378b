//! Where keys come from.

/// Where keys come from. Its words stand in pages about keys and the state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum KeyOrigin {
    /// `access.keys.list`.
    #[strum(serialize = "config")]
    Settings,
    /// `access.keys.file`.
    File,
    /// `access.keys.redis`.
    Redis,
}

wellhead_word::words!(KeyOrigin);

impl KeyOrigin {
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// Those of which it is remembered what has ended for good.
    pub const REMEMBERED: [Self; 2] = [Self::File, Self::Redis];
}
