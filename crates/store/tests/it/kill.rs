//! Killed while it writes, again and again: nothing wrong is read afterwards, what
//! was acknowledged is there, the files stay within their bound, and opening them reads
//! a small part of them.
//!
//! The process that writes and dies is this program, started anew for the one test
//! [`the_process_that_is_killed`], which does nothing when it is run with the others.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use crate::support::{bytes_of, fill, found, open};

const BYTES_MAX: u64 = 8 << 20;
const VALUE_BYTES: usize = 6000;
const KILLS: u64 = 50;
/// Values a life writes at most: about 1.6 MB, so it cannot evict its own.
const VALUES_A_LIFE: u64 = 1000;
/// Values between two lines that acknowledge.
const STEP: u64 = 8;

const WHERE: &str = "WELLHEAD_STORE_TEST_DIRECTORY";
const FIRST: &str = "WELLHEAD_STORE_TEST_FIRST";
const ACKNOWLEDGED: &str = "acknowledged ";

#[tokio::test]
async fn the_process_that_is_killed() {
    let (Ok(directory), Ok(first)) = (std::env::var(WHERE), std::env::var(FIRST)) else { return };
    let first: u64 = first.parse().expect("a number");
    let disk = open(Path::new(&directory), BYTES_MAX);
    for start in (first..first + VALUES_A_LIFE).step_by(STEP as usize) {
        fill(&disk, start..start + STEP, VALUE_BYTES).await;
        let mut out = std::io::stdout();
        // Tests print to a buffer of the harness unless they write for themselves.
        writeln!(out, "{ACKNOWLEDGED}{}", start + STEP).and_then(|()| out.flush()).expect("a pipe");
    }
    // The test that is to kill it must not find it gone.
    let _until_killed = std::io::stdin().lines().next();
}

/// Lets a life write until it has acknowledged `lines` times, kills it there, and
/// returns the number behind the last value it is known to have written.
fn live_and_die(directory: &Path, first: u64, lines: usize) -> u64 {
    let program = std::env::current_exe().expect("this program has a path");
    let mut child = Command::new(program)
        .args(["kill::the_process_that_is_killed", "--exact", "--nocapture"])
        .env(WHERE, directory)
        .env(FIRST, first.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program can be started");
    let out = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut acknowledged = out.lines().filter_map(|line| {
        let line = line.expect("the child writes text");
        Some(line.split_once(ACKNOWLEDGED)?.1.parse::<u64>().expect("a number"))
    });
    let last = acknowledged.nth(lines - 1).expect("it lives until it is killed");
    child.kill().expect("it can be killed");
    child.wait().expect("it can be waited for");
    last
}

/// Bytes of the values held for each byte that opening may read. A place takes 16 bytes, and
/// a value about 1,600 here.
const HELD_FOR_ONE_READ: u64 = 50;

/// What the headers of a small store and a look at [`bytes_read`] add to that, at most.
const LOOK_BYTES: u64 = 4096;

/// Bytes that this thread has read so far from files, as the kernel counts them.
#[cfg(target_os = "linux")]
fn bytes_read() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/io").expect("the kernel counts");
    let read = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
    read.expect("a line of bytes read").parse().expect("a number")
}

/// Elsewhere nothing is counted, and nothing is held against the bound.
#[cfg(not(target_os = "linux"))]
fn bytes_read() -> u64 {
    0
}

#[tokio::test]
async fn killed_fifty_times() {
    let directory = tempfile::tempdir().unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    let mut written = 0;
    let (mut reopened, mut read, mut held_in_all) = (Vec::new(), 0, 0);
    for life in 0..KILLS {
        let first = life * VALUES_A_LIFE;
        let lines = rng.random_range(1..=(VALUES_A_LIFE / STEP) as usize);
        let last = live_and_die(directory.path(), first, lines);
        written += last - first;
        let held = bytes_of(directory.path());
        assert!(held <= BYTES_MAX, "life {life}: {held} bytes");
        let (read_before, began) = (bytes_read(), Instant::now());
        let disk = open(directory.path(), BYTES_MAX);
        reopened.push(began.elapsed());
        let opening_read = bytes_read() - read_before;
        assert!(
            opening_read <= held / HELD_FOR_ONE_READ + LOOK_BYTES,
            "life {life}: opening read {opening_read} bytes of {held}"
        );
        (read, held_in_all) = (read + opening_read, held_in_all + held);
        let kept = found(&disk, first..last, VALUE_BYTES).await;
        assert_eq!(kept, last - first, "life {life}: all that was acknowledged is there");
        // Older ones, and those whose writing was cut short, are right or missing.
        let oldest = if life % 10 == 9 { 0 } else { first.saturating_sub(VALUES_A_LIFE) };
        found(&disk, oldest..first + VALUES_A_LIFE, VALUE_BYTES).await;
        let seen = disk.stats();
        assert_eq!(seen.errors, 0, "life {life}: {seen:?}");
        disk.close().await;
    }
    reopened.sort();
    let (median, longest) = (reopened[reopened.len() / 2], reopened[reopened.len() - 1]);
    let percent = read as f64 * 100.0 / held_in_all as f64;
    println!("reopened {KILLS} times: {median:?} at p50, {longest:?} at most, {percent:.2} % read");
    let average = VALUE_BYTES as u64 / 4;
    assert!(written * average > BYTES_MAX, "the bound was met: {written} values");
}
