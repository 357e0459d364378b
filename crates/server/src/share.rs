//! What one client address holds of what all of them share.

use wellhead_limit::Held;

/// What one address holds. Bound by [`fits`](wellhead_limit::fits) where the settings have shares.
#[derive(Debug, Default)]
pub(crate) struct AddressShare {
    /// Requests that came while more than half of all places were taken.
    pub(crate) places: Held,
    /// Bytes of request bodies.
    pub(crate) bodies_bytes: Held,
    /// Answers that wait for their client, and their bytes.
    pub(crate) waiting: Held,
    pub(crate) waiting_bytes: Held,
    /// TLS handshakes under way.
    pub(crate) handshakes: Held,
}
