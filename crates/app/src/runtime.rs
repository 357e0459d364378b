//! The runtimes of wellhead's threads.

use std::io;

/// A single-threaded runtime: each worker, the control thread and the thread of studies have one.
pub(crate) fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
