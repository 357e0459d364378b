//! Ports for the servers of tests.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

/// Ports to give away: below those that systems take for outgoing connections,
/// one of which could otherwise take a free port before the program does.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A port of the loopback that nothing listens on at this moment, and that no test process has given away
/// that still runs: the port is claimed by a locked file until this process ends. A program binds its port
/// a while after it was given one, and a second one that finds the port taken ends, while what answers
/// there is the first.
///
/// # Panics
/// When all of them are taken.
#[must_use]
pub fn free_port() -> u16 {
    static CLAIMS: Mutex<Vec<File>> = Mutex::new(Vec::new());
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(PORTS.end - PORTS.start);
    // Test processes that run at once start far from one another.
    let first = std::process::id().wrapping_mul(1009) % count;
    let (port, claim) = (0..count)
        .map(|_| (first + GIVEN.fetch_add(1, Ordering::Relaxed)) % count)
        .filter_map(|offset| u16::try_from(offset).ok())
        .map(|offset| PORTS.start + offset)
        .find_map(|port| Some((port, claimed(port)?)))
        .expect("thousands of programs do not listen here");
    CLAIMS.lock().push(claim);
    port
}

/// A lock on this port among test processes, if nothing listens on it.
fn claimed(port: u16) -> Option<File> {
    let folder = std::env::temp_dir().join("wellhead-ports");
    std::fs::create_dir_all(&folder).expect("there is room for claims");
    let claim = File::create(folder.join(port.to_string())).expect("the folder is ours");
    claim.try_lock().ok()?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
    Some(claim)
}
