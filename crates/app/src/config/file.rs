//! Files that the settings name, and the config itself: read in bounded time and to a bounded size.
//!
//! To open a pipe waits until something writes to it, and to read one until that ends, for ever
//! if it must. So files that are named in a config have to be regular ones. The config itself may
//! come through a pipe, as `/dev/stdin` or `<(...)` of a shell: it is read on a thread of its own,
//! and has [`PIPE_WAIT`] to arrive.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// So long a config that is no regular file may take to arrive.
const PIPE_WAIT: Duration = Duration::from_secs(10);

/// The first `bytes_max` of a regular file.
pub(crate) fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    read(path, bytes_max)
}

/// The first `bytes_max` of a file, or of what comes through a pipe.
pub(crate) fn read_any(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_within(path, bytes_max, PIPE_WAIT)
}

fn read_within(path: &Path, bytes_max: u64, wait: Duration) -> io::Result<Vec<u8>> {
    let kind = std::fs::metadata(path)?;
    if kind.is_file() || kind.is_dir() {
        return read(path, bytes_max);
    }
    let (sender, receiver) = mpsc::channel();
    let path = path.to_owned();
    // Where nothing comes the thread stays; the process ends because of that.
    std::thread::Builder::new().name("wellhead-config".to_owned()).spawn(move || {
        let _ = sender.send(read(&path, bytes_max));
    })?;
    receiver.recv_timeout(wait).unwrap_or_else(|_| {
        let what = format!("it is a pipe or a device, and did not end within {wait:?}");
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    })
}

fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::path::PathBuf;

    use super::*;

    fn path_of(pipe: &io::PipeReader) -> PathBuf {
        format!("/proc/self/fd/{}", pipe.as_raw_fd()).into()
    }

    #[test]
    fn a_config_may_come_through_a_pipe() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(b"chains:").expect("room");
        drop(writer);
        assert_eq!(read_any(&path_of(&reader), 100).expect("read"), b"chains:");
    }

    #[test]
    fn a_pipe_that_brings_nothing_is_not_waited_for() {
        let (reader, _writer) = io::pipe().expect("a pipe");
        let error = read_within(&path_of(&reader), 100, Duration::ZERO).expect_err("late");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let error = read_regular(&path_of(&reader), 100).expect_err("a pipe");
        assert_eq!(error.to_string(), "it is not a regular file");
    }

    #[test]
    fn a_regular_file_is_read_up_to_its_bound() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        std::fs::write(&path, "abcdef").expect("written");
        assert_eq!(read_regular(&path, 4).expect("read"), b"abcd");
        assert_eq!(read_any(&path, 4).expect("read"), b"abcd");
        assert!(read_any(folder.path(), 4).is_err(), "a folder");
    }
}
