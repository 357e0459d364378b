//! How long a get takes from the disk tier, and how long it takes to open.
//!
//! `cargo bench -p wellhead-store --bench disk -- [DIRECTORY] [MIB]`: fills a store of
//! that size in a directory that is empty or not there, opens it again, and reads
//! values of 1 KB and 300 KB, first with the pages of all files dropped from the kernel's
//! cache where that is possible, then from it. Prints; decides nothing.

#![allow(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use tokio::time::{Instant, sleep};
use wellhead_store::{Clock, Digest, Disk, DiskBounds};

const GETS: usize = 2000;
const SIZES: [usize; 2] = [1000, 300_000];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    let own = tempfile::tempdir().expect("a temporary directory");
    let directory = arguments.first().map_or_else(|| own.path().join("store"), PathBuf::from);
    let mib: u64 = arguments.get(1).map_or(1024, |text| text.parse().expect("a number of MiB"));
    let bounds = DiskBounds {
        bytes_max: mib << 20,
        read_within: Duration::from_secs(10),
        queue_bytes_max: 64 << 20,
        ..DiskBounds::default()
    };
    let clock: Clock = Arc::new(|| 1000);

    let disk = Disk::open(&directory, &bounds, Arc::clone(&clock)).expect("it opens");
    // Half of the bytes are small values, half large ones.
    let counts = SIZES.map(|bytes| (mib << 20) * 2 / 5 / (bytes as u64 + 80));
    let (start, mut put) = (Instant::now(), 0);
    for (kind, count) in (0..).zip(counts) {
        for n in 0..count {
            disk.put(digest(kind, n), value(n, SIZES[kind as usize]), Duration::MAX);
            put += 1;
            if n % 128 == 127 {
                until_written(&disk, put).await;
            }
        }
    }
    until_written(&disk, put).await;
    println!("filled in {:?}: {:?}", start.elapsed(), disk.stats());
    disk.close().await;

    for warmth in ["cold", "warm"] {
        if warmth == "cold" {
            forget(&directory);
        }
        let start = Instant::now();
        let disk = Disk::open(&directory, &bounds, Arc::clone(&clock)).expect("it opens");
        println!("{warmth}: opened in {:?}, {:?} values", start.elapsed(), disk.stats().entries);
        for (kind, count) in (0..).zip(counts) {
            measure(&disk, kind, count, warmth).await;
        }
        let start = Instant::now();
        for n in 0..100_000 {
            assert!(disk.get(&digest(9, n)).await.is_none());
        }
        println!("{warmth}: a miss takes {:?}", start.elapsed() / 100_000);
        disk.close().await;
    }
}

/// Waits until the disk has written or dropped `put` values.
async fn until_written(disk: &Disk, put: u64) {
    while disk.stats().written + disk.stats().dropped < put {
        sleep(Duration::from_millis(1)).await;
    }
}

async fn measure(disk: &Disk, kind: u64, count: u64, warmth: &str) {
    let mut rng = SmallRng::seed_from_u64(kind);
    let mut took = Vec::with_capacity(GETS);
    let mut hits = 0;
    // Read twice when warm: the first time brings the pages.
    let numbers: Vec<u64> = (0..GETS).map(|_| rng.random_range(0..count)).collect();
    for round in 0..if warmth == "warm" { 2 } else { 1 } {
        took.clear();
        hits = 0;
        for n in &numbers {
            let digest = digest(kind, *n);
            let start = Instant::now();
            hits += usize::from(disk.get(&digest).await.is_some());
            took.push(start.elapsed());
        }
        let _the_last_round_counts = round;
    }
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 1000];
    println!(
        "{warmth}: {} bytes: p50 {:?}, p99 {:?}, p99.9 {:?}, most {:?}, {hits} hits of {GETS}",
        SIZES[kind as usize],
        at(500),
        at(990),
        at(999),
        at(1000),
    );
}

/// Drops the files' pages from the kernel's cache, as `dd` can without privileges.
fn forget(directory: &Path) {
    for entry in std::fs::read_dir(directory).expect("the directory is there").flatten() {
        let _not_every_file_system_can = File::open(entry.path()).and_then(|file| file.sync_all());
        let mut input = std::ffi::OsString::from("if=");
        input.push(entry.path());
        let dropped = Command::new("dd")
            .arg(input)
            .args(["iflag=nocache", "count=0", "status=none"])
            .status();
        if !dropped.is_ok_and(|status| status.success()) {
            println!("{} may still be in memory", entry.path().display());
        }
    }
}

fn digest(kind: u64, n: u64) -> Digest {
    let mut bytes = [0; 32];
    SmallRng::seed_from_u64(kind << 56 | n).fill_bytes(&mut bytes);
    Digest(bytes)
}

fn value(n: u64, bytes: usize) -> Bytes {
    let mut value = vec![0; bytes];
    SmallRng::seed_from_u64(n).fill_bytes(&mut value);
    Bytes::from(value)
}
