//! The disk tier: what is found again, what its bounds do, and which process may open it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use wellhead_store::{Disk, DiskBounds, OpenError, State};

use crate::support::{
    FOREVER, Time, bounds, bytes_of, digest, fill, found, open, until_seen, value,
};

const MIB: u64 = 1 << 20;

#[tokio::test]
async fn values_of_every_size_are_found_and_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let sizes = [0, 1, 15, 16, 17, 4031, 4032, 4033, 4096, 99_999, 100_000];
    let disk = open(directory.path(), 8 * MIB);
    for (n, bytes) in (0..).zip(sizes) {
        disk.put(digest(n), Bytes::from(vec![n as u8 + 1; bytes]), FOREVER);
    }
    until_seen("the values", || disk.stats().written == sizes.len() as u64).await;
    for round in ["written", "opened again"] {
        let disk = if round == "written" {
            disk.clone()
        } else {
            disk.close().await;
            open(directory.path(), 8 * MIB)
        };
        for (n, bytes) in (0..).zip(sizes) {
            let got = disk.get(&digest(n)).await;
            assert_eq!(got, Some(Bytes::from(vec![n as u8 + 1; bytes])), "{round}: {bytes} bytes");
        }
        assert_eq!(disk.get(&digest(99)).await, None);
        let seen = disk.stats();
        assert_eq!((seen.hits, seen.misses, seen.entries), (11, 1, Some(11)), "{round}");
        assert_eq!((seen.damaged, seen.errors, seen.state), (0, 0, State::Up), "{round}");
    }
}

#[tokio::test]
async fn too_large_and_timeless_values_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let disk = open(directory.path(), 8 * MIB);
    disk.put(digest(1), Bytes::from(vec![0; 100_001]), FOREVER);
    disk.put(digest(2), Bytes::new(), Duration::ZERO);
    fill(&disk, 3..4, 100).await;
    let seen = disk.stats();
    assert_eq!((seen.refused, seen.written, seen.entries), (2, 1, Some(1)));
}

#[tokio::test]
async fn value_put_later_takes_the_place() {
    let directory = tempfile::tempdir().unwrap();
    let disk = open(directory.path(), 8 * MIB);
    for word in ["old", "new"] {
        disk.put(digest(1), Bytes::from(word), FOREVER);
    }
    disk.close().await;
    let disk = open(directory.path(), 8 * MIB);
    assert_eq!(disk.get(&digest(1)).await, Some(Bytes::from("new")));
    assert_eq!(disk.stats().entries, Some(1));
}

#[tokio::test]
async fn value_past_its_time_is_a_miss_and_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let time = Time::at(1000);
    let disk = Disk::open(directory.path(), &bounds(8 * MIB), time.clock()).unwrap();
    disk.put(digest(1), Bytes::from("x"), Duration::from_secs(10));
    until_seen("the value", || disk.stats().written == 1).await;
    time.set(1009);
    assert!(disk.get(&digest(1)).await.is_some());
    time.set(1010);
    assert!(disk.get(&digest(1)).await.is_none());
    let seen = disk.stats();
    assert_eq!((seen.expired, seen.misses, seen.damaged, seen.entries), (1, 1, 0, Some(0)));
}

#[tokio::test]
async fn files_never_exceed_the_bound_and_the_oldest_go_first() {
    let directory = tempfile::tempdir().unwrap();
    let disk = open(directory.path(), 2 * MIB);
    for step in 0..40 {
        fill(&disk, step * 100..(step + 1) * 100, 8000).await;
        let held = bytes_of(directory.path());
        assert!(held <= 2 * MIB, "step {step}: {held} bytes");
        // The newest quarter of what fits is always there.
        assert_eq!(found(&disk, step * 100..(step + 1) * 100, 8000).await, 100, "step {step}");
    }
    let is_all_counted = || disk.stats().entries == Some(4000 - disk.stats().evicted);
    until_seen("what went", is_all_counted).await;
    let seen = disk.stats();
    assert_eq!(seen.written, 4000);
    assert!(bytes_of(directory.path()) > MIB, "the room is used");
    assert_eq!(found(&disk, 0..100, 8000).await, 0, "the oldest are gone");
    assert_eq!((seen.dropped, seen.damaged), (0, 0));
}

#[tokio::test]
async fn bound_may_be_changed_between_runs() {
    let directory = tempfile::tempdir().unwrap();
    for (round, bytes_max) in (0..).zip([8 * MIB, 2 * MIB, 64 * MIB, MIB]) {
        let disk = open(directory.path(), bytes_max);
        assert!(bytes_of(directory.path()) <= bytes_max, "round {round}");
        fill(&disk, round * 1000..(round + 1) * 1000, 8000).await;
        assert!(bytes_of(directory.path()) <= bytes_max, "round {round}");
        assert_eq!(found(&disk, round * 1000 + 950..(round + 1) * 1000, 8000).await, 50);
        disk.close().await;
    }
}

#[tokio::test]
async fn restarts_do_not_use_up_room() {
    let directory = tempfile::tempdir().unwrap();
    for n in 0..300 {
        let disk = open(directory.path(), 8 * MIB);
        fill(&disk, n..n + 1, 100).await;
        disk.close().await;
    }
    let disk = open(directory.path(), 8 * MIB);
    assert_eq!(found(&disk, 0..300, 100).await, 300);
}

#[tokio::test]
async fn full_queues_drop_puts_and_make_gets_misses() {
    let directory = tempfile::tempdir().unwrap();
    let disk = open(directory.path(), 8 * MIB);
    fill(&disk, 0..1, 100).await;
    disk.close().await;
    let bounds = DiskBounds { queue_bytes_max: 1000, reads_max: 0, ..bounds(8 * MIB) };
    let disk = Disk::open(directory.path(), &bounds, Time::at(1000).clock()).unwrap();
    disk.put(digest(1), Bytes::from(vec![0; 1000]), FOREVER);
    assert!(disk.get(&digest(0)).await.is_none());
    let seen = disk.stats();
    assert_eq!((seen.dropped, seen.busy, seen.misses), (1, 1, 0));
}

/// A clock that stops each reader of the disk for as long as the test wants.
struct Gate(watch::Sender<bool>, Reached);

/// Whether a reader stands at the gate.
type Reached = Arc<(std::sync::Mutex<bool>, std::sync::Condvar)>;

impl Gate {
    fn shut() -> Self {
        Self(watch::Sender::new(false), Reached::default())
    }

    fn open(&self) {
        self.0.send_replace(true);
    }

    /// Ends when a reader stands there. Paused time does not pass meanwhile.
    async fn reached(&self) {
        let reached = Arc::clone(&self.1);
        let wait = move || {
            let there = reached.0.lock().unwrap();
            drop(reached.1.wait_while(there, |there| !*there).unwrap());
        };
        tokio::task::spawn_blocking(wait).await.unwrap();
    }

    fn clock(&self) -> wellhead_store::Clock {
        let (gate, reached) = (self.0.subscribe(), Arc::clone(&self.1));
        Arc::new(move || {
            if std::thread::current().name() == Some("store-read") {
                *reached.0.lock().unwrap() = true;
                reached.1.notify_all();
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let mut gate = gate.clone();
                let _the_test_is_over = runtime.block_on(gate.wait_for(|open| *open)).is_err();
            }
            1000
        })
    }
}

#[tokio::test(start_paused = true)]
async fn slow_disk_costs_no_more_than_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Gate::shut();
    let bounds = DiskBounds {
        read_within: Duration::from_millis(20),
        readers: 1,
        reads_max: 3,
        ..bounds(8 * MIB)
    };
    let disk = Disk::open(directory.path(), &bounds, gate.clock()).unwrap();
    fill(&disk, 0..1, 100).await;
    let start = tokio::time::Instant::now();
    // A get that is given up before a reader has it is not read: the first has to be with it.
    let digest = digest(0);
    let (first, ()) = tokio::join!(disk.get(&digest), gate.reached());
    assert!(first.is_none());
    for _ in 1..10 {
        assert!(disk.get(&digest).await.is_none());
    }
    // Three wait behind it, and further ones wait for nothing.
    let seen = disk.stats();
    assert_eq!((seen.late, seen.busy, seen.hits), (4, 6, 0), "{seen:?}");
    let limit = Duration::from_millis(21);
    assert!(start.elapsed() <= limit * u32::try_from(seen.late).unwrap());
    gate.open();
}

#[tokio::test]
async fn get_may_be_dropped_at_any_moment() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Gate::shut();
    let disk = Disk::open(directory.path(), &bounds(8 * MIB), gate.clock()).unwrap();
    fill(&disk, 0..1, 100).await;
    for _ in 0..100 {
        let wanted = digest(0);
        let mut get = Box::pin(disk.get(&wanted));
        let nothing_yet = std::future::poll_fn(|context| {
            std::task::Poll::Ready(get.as_mut().poll(context).is_pending())
        });
        assert!(nothing_yet.await);
    }
    gate.open();
    assert_eq!(disk.get(&digest(0)).await, Some(value(0, 100)));
    assert_eq!(disk.stats().hits, 1, "a look-up that was given up does not count");
}

#[tokio::test]
async fn store_belongs_to_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let disk = open(directory.path(), 8 * MIB);
    fill(&disk, 0..10, 100).await;
    let second = Disk::open(directory.path(), &bounds(8 * MIB), Time::at(1000).clock());
    assert!(matches!(second, Err(OpenError::InUse)), "{second:?}");
    assert_eq!(found(&disk, 0..10, 100).await, 10);
    disk.close().await;
    assert_eq!(found(&open(directory.path(), 8 * MIB), 0..10, 100).await, 10);
}

#[tokio::test]
async fn closed_store_misses_and_drops() {
    let directory = tempfile::tempdir().unwrap();
    let disk = open(directory.path(), 8 * MIB);
    fill(&disk, 0..1, 100).await;
    disk.close().await;
    disk.put(digest(1), Bytes::new(), FOREVER);
    assert!(disk.get(&digest(0)).await.is_none());
    assert_eq!(disk.stats().dropped, 1);
}

#[test]
fn directory_of_another_program_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("1.values"), "mine").unwrap();
    let opened = Disk::open(directory.path(), &bounds(8 * MIB), Time::at(1000).clock());
    assert!(matches!(opened, Err(OpenError::NotOurs)), "{opened:?}");
    assert_eq!(names(directory.path()), ["1.values"]);
}

#[tokio::test]
async fn store_of_another_format_starts_empty() {
    let directory = tempfile::tempdir().unwrap();
    let disk = open(directory.path(), 8 * MIB);
    fill(&disk, 0..10, 100).await;
    disk.close().await;
    let marker = directory.path().join("wellhead-store");
    fs::write(&marker, "wellhead disk store, format 2\n").unwrap();
    fs::write(directory.path().join("note.txt"), "not of the store").unwrap();
    let disk = open(directory.path(), 8 * MIB);
    assert_eq!(disk.stats().entries, Some(0));
    assert_eq!(names(directory.path()), ["note.txt", "wellhead-store"]);
    fill(&disk, 0..10, 100).await;
    disk.close().await;
    assert_eq!(found(&open(directory.path(), 8 * MIB), 0..10, 100).await, 10);
}

#[test]
fn store_that_is_too_small_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let opened = Disk::open(directory.path(), &bounds(MIB - 1), Time::at(1000).clock());
    assert!(matches!(opened, Err(OpenError::TooSmall)), "{opened:?}");
    assert_eq!(names(directory.path()), [""; 0]);
}

#[tokio::test]
async fn disk_that_takes_nothing_is_told_and_comes_back() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("store");
    let disk = open(&directory, 2 * MIB);
    let aside = parent.path().join("aside");
    fs::rename(&directory, &aside).unwrap();
    // No segment can be made.
    fill(&disk, 0..500, 8000).await;
    until_seen("down", || disk.stats().state == State::Down).await;
    let seen = disk.stats();
    assert_eq!((seen.written, seen.dropped), (0, 500));
    fs::rename(&aside, &directory).unwrap();
    fill(&disk, 500..510, 8000).await;
    until_seen("up", || disk.stats().state == State::Up).await;
    assert_eq!(found(&disk, 500..510, 8000).await, 10);
    assert!(bytes_of(&directory) <= 2 * MIB);
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
