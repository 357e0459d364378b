//! Whatever becomes of the files between two runs, a value is right or missing.

use std::fs;
use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::support::{bytes_of, fill, found, open};

const BYTES_MAX: u64 = 1 << 20;
/// About three quarters of what fits, in a dozen segments.
const VALUES: u64 = 300;
const VALUE_BYTES: usize = 5000;

/// Fills a store, and returns what its files hold.
async fn filled() -> Vec<(String, Vec<u8>)> {
    let directory = tempfile::tempdir().unwrap();
    let disk = open(directory.path(), BYTES_MAX);
    fill(&disk, 0..VALUES, VALUE_BYTES).await;
    assert_eq!(found(&disk, 0..VALUES, VALUE_BYTES).await, VALUES);
    disk.close().await;
    let mut files = Vec::new();
    for entry in fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        files.push((entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    }
    files.sort();
    files
}

/// One thing that can happen to files.
fn harm(directory: &Path, names: &[PathBuf], rng: &mut SmallRng) -> String {
    let path = &names[rng.random_range(0..names.len())];
    let Ok(mut bytes) = fs::read(path) else { return "nothing: it is gone already".to_owned() };
    let length = bytes.len();
    let at = rng.random_range(0..=length);
    let until = rng.random_range(at..=length);
    let what = match rng.random_range(0..8) {
        0..3 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= rng.random_range(1..=255u8);
            }
            format!("flip {at}")
        }
        3 => {
            bytes.truncate(at);
            format!("truncate to {at}")
        }
        4 => {
            bytes[at..until].fill(0);
            format!("zero {at}..{until}")
        }
        5 => {
            rng.fill(&mut bytes[at..until]);
            format!("noise in {at}..{until}")
        }
        6 => {
            let other = &names[rng.random_range(0..names.len())];
            bytes = fs::read(other).unwrap_or_default();
            format!("content of {}", other.strip_prefix(directory).unwrap().display())
        }
        _ => {
            bytes.extend(std::iter::repeat_n(0xa5, until - at));
            format!("{} bytes more", until - at)
        }
    };
    if rng.random_bool(0.1) {
        fs::remove_file(path).unwrap();
        return format!("{path:?}: removed");
    }
    fs::write(path, bytes).unwrap();
    format!("{path:?}: {what}")
}

#[tokio::test]
async fn harmed_files_give_right_values_or_none() {
    let files = filled().await;
    let (mut kept, mut rounds_with_loss) = (0, 0);
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let directory = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        for (name, bytes) in &files {
            paths.push(directory.path().join(name));
            fs::write(directory.path().join(name), bytes).unwrap();
        }
        // Without its marker it is the directory of another program: that is another test.
        paths.retain(|path| !path.ends_with("wellhead-store"));
        let harms: Vec<String> =
            (0..rng.random_range(1..6)).map(|_| harm(directory.path(), &paths, &mut rng)).collect();
        let disk = open(directory.path(), BYTES_MAX);
        let right = found(&disk, 0..VALUES, VALUE_BYTES).await;
        kept += right;
        rounds_with_loss += u64::from(right < VALUES);
        let first = disk.stats();
        assert!(first.errors == 0 && first.late == 0, "seed {seed}: {first:?} after {harms:?}");
        // What is damaged is found to be so once.
        assert_eq!(found(&disk, 0..VALUES, VALUE_BYTES).await, right, "seed {seed}: {harms:?}");
        assert_eq!(disk.stats().damaged, first.damaged, "seed {seed}: {harms:?}");
        // It goes on as a store, within its bound.
        fill(&disk, VALUES..VALUES + 50, VALUE_BYTES).await;
        let new = found(&disk, VALUES..VALUES + 50, VALUE_BYTES).await;
        assert_eq!(new, 50, "seed {seed}: {harms:?}");
        assert!(bytes_of(directory.path()) <= BYTES_MAX, "seed {seed}: {harms:?}");
        disk.close().await;
        let disk = open(directory.path(), BYTES_MAX);
        let new = found(&disk, VALUES..VALUES + 50, VALUE_BYTES).await;
        assert_eq!(new, 50, "seed {seed}, opened again: {harms:?}");
        disk.close().await;
    }
    // The test would prove nothing if no harm were done, or if all were lost each time.
    assert!(rounds_with_loss > 100, "{rounds_with_loss} rounds with losses");
    assert!(kept > 200 * VALUES / 2, "{kept} values kept");
}

#[tokio::test]
async fn value_that_rots_while_it_is_open_is_counted_once() {
    let directory = tempfile::tempdir().unwrap();
    let disk = open(directory.path(), BYTES_MAX);
    fill(&disk, 0..1, VALUE_BYTES).await;
    let path = directory.path().join("0.values");
    let mut bytes = fs::read(&path).unwrap();
    bytes[16 + 64] ^= 1;
    fs::write(&path, bytes).unwrap();
    for _ in 0..3 {
        assert_eq!(found(&disk, 0..1, VALUE_BYTES).await, 0);
    }
    let seen = disk.stats();
    assert_eq!((seen.damaged, seen.misses, seen.entries), (1, 3, Some(0)));
}
