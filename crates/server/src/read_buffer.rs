//! The buffer of a worker that client sockets are read into.

use std::cell::RefCell;

/// Bytes read with one system call; one such buffer for each worker.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// Calls `read` with the buffer of this thread. Never borrowed across an await, nor twice.
pub(crate) fn with_read_buffer<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| read(buffer))
}
