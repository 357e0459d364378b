//! Memory that is asked for before it is needed.
//!
//! Where there are more keys or connections than the caches of a core hold, the time of a look-up or of a turn is
//! that of the lines of memory that it waits for, one after the other. A load that waits holds up all work behind it
//! soon, because a core finishes only so much out of order. A prefetch holds up nothing, and several run at once. It
//! reads no value and changes none: where it was wrong to ask, the line was fetched in vain.
//!
//! Worth its instructions only where the next use is some 100 ns away and the memory is rarely in the caches. What is
//! asked for was measured: `cargo bench -p wellhead-access --bench identify`, `scripts/bench subscribers`.

use std::ptr;
use std::sync::Arc;
use std::task::Waker;

use prefetch_index::prefetch_index;

/// The unit in which memory is fetched, in bytes: that of x86-64 and of most ARM cores.
const LINE_BYTES: usize = 64;
/// What stands before the value of an [`Arc`]: two counters.
const COUNTERS_BYTES: usize = 2 * size_of::<usize>();

/// An address that is fetched and never read. It keeps nothing alive, so what was there may be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchAddress(usize);

impl FetchAddress {
    /// Where a value begins.
    #[inline]
    pub fn of<T: ?Sized>(value: &T) -> Self {
        Self(ptr::from_ref(value).addr())
    }

    /// Where the counters of a shared value are, which each clone of it writes, and behind them the value.
    #[inline]
    pub fn of_shared<T>(shared: &Arc<T>) -> Self {
        Self(Arc::as_ptr(shared).addr().wrapping_sub(COUNTERS_BYTES))
    }

    /// What a waker points to: of one of tokio the task with its future.
    #[inline]
    pub fn of_woken(waker: &Waker) -> Self {
        Self(waker.data().addr())
    }

    /// Prefetches the cache lines of the `bytes` bytes that begin here. Returns before they arrive.
    #[inline]
    pub fn fetch(self, bytes: usize) {
        let nothing: &[u8] = &[];
        let in_line = self.0 % LINE_BYTES;
        let first = self.0.wrapping_sub(in_line).wrapping_sub(nothing.as_ptr().addr());
        for line in (0..in_line + bytes).step_by(LINE_BYTES) {
            // The address of an element is computed with wrapping and not read, so there need be no such element.
            prefetch_index(nothing, first.wrapping_add(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_a_shared_value_stand_before_it() {
        let shared = Arc::new([7_u64; 4]);
        let at = FetchAddress::of_shared(&shared);
        assert_eq!(at.0 + 16, FetchAddress::of(&*shared).0);
        at.fetch(16 + size_of_val(&*shared));
        assert_eq!(*shared, [7; 4]);
    }

    #[test]
    fn a_waker_tells_its_task() {
        struct Task;

        impl std::task::Wake for Task {
            fn wake(self: Arc<Self>) {}
        }

        let task = Arc::new(Task);
        let waker = Waker::from(Arc::clone(&task));
        assert_eq!(FetchAddress::of_woken(&waker), FetchAddress(Arc::as_ptr(&task).addr()));
    }

    /// Nothing is read, so no address is wrong.
    #[test]
    fn any_address_may_be_fetched() {
        for address in [0, 1, 63, 64, usize::MAX / 2, usize::MAX - 63, usize::MAX] {
            for bytes in [0, 1, 64, 65, 4_096] {
                FetchAddress(address).fetch(bytes);
            }
        }
        FetchAddress::of_woken(Waker::noop()).fetch(64);
    }
}
