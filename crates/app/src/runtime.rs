//! The runtimes of wellhead's threads, and threads for work that may hang.

use std::io;

use tokio::sync::oneshot;

/// A single-threaded runtime: each worker, the control thread and the thread of studies have one.
pub(crate) fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// What comes of `work` on a thread of its own, as a disk may hang: nothing waits for one that does, not even the end of
/// the runtime.
pub(crate) async fn aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    let work = move || {
        // The wait for it may be over.
        let _ = done.send(work());
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
    result.await.map_err(|_| io::Error::other("it panicked"))
}
