//! Lines of memory that are asked for before they are needed.
//!
//! With many keys the lines of a key and of its meters are in no cache. A load that waits for one soon holds up all
//! work behind it, because a core finishes only so much out of order; a prefetch holds up nothing. It reads no value
//! and changes none, so a line that is asked for in vain costs only its way through the caches.

use prefetch_index::prefetch_index;

/// Asks for the line in which `value` begins.
#[inline]
pub(crate) fn fetch_ahead<T>(value: &T) {
    fetch_ahead_at(value, 0);
}

/// Asks for the line that is so many sizes of `value` behind its begin, or before it.
#[inline]
pub(crate) fn fetch_ahead_at<T>(value: &T, sizes: isize) {
    // The address is computed with wrapping and never read, so it may be outside of the slice.
    prefetch_index(std::slice::from_ref(value), sizes.cast_unsigned());
}
