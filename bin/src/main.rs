//! The program: arguments to the app, the app's outcome to an exit code.

use std::process::ExitCode;

/// Measured on answers of 256 KB: 8 % less CPU than glibc's, and musl's must not be used.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Huge pages hold what is idle in pieces of 2 MiB, most of them nearly empty, and are zeroed
/// whole when they are first touched: a process with 1,000 upstreams took twice the memory, and
/// one with a single upstream too. Small calls cost as much without them; see docs/performance.md.
#[cfg(target_os = "linux")]
fn without_huge_pages() {
    // Where the kernel knows no such thing there is nothing to be without.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

#[cfg(not(target_os = "linux"))]
fn without_huge_pages() {}

fn main() -> ExitCode {
    without_huge_pages();
    wellhead_app::run()
}
