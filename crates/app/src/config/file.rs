//! Files that the settings name, and the config itself: read in bounded time and to a bounded size.
//!
//! To open a pipe waits until something writes to it, and to read one until that ends, for ever
//! if it must. So files that are named in a config have to be regular ones. The config itself may
//! come through a pipe, as `/dev/stdin` or `<(...)` of a shell: it is read on a thread of its own,
//! and has [`PIPE_WAIT`] to arrive.
//!
//! A file that is longer than its bound is an error: to cut it would lose what stands at its end. Errors are
//! words that continue "cannot be read: ".

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// So long a config that is no regular file may take to arrive.
const PIPE_WAIT: Duration = Duration::from_secs(10);

/// All of a regular file; an error if it is longer than `bytes_max`.
pub(crate) fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    read(path, bytes_max)
}

/// All of a file, or of what comes through a pipe; an error if it is longer than `bytes_max`.
pub(crate) fn read_any(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_within(path, bytes_max, PIPE_WAIT)
}

/// What was read, as text.
pub(crate) fn text(bytes: Vec<u8>) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
    String::from_utf8(bytes).map_err(not_text)
}

/// The line (from 1) that the byte at `at` is in.
pub(crate) fn line_of(text: &[u8], at: usize) -> usize {
    text[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
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
    // One byte more, so that the bound itself reports.
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let what = match bytes_max >> 20 {
            0 => format!("it is longer than {} KiB", bytes_max >> 10),
            mib => format!("it is longer than {mib} MiB"),
        };
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
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
    fn a_file_is_read_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        std::fs::write(&path, "abcdef").expect("written");
        assert_eq!(read_regular(&path, 6).expect("read"), b"abcdef");
        assert_eq!(read_any(&path, 6).expect("read"), b"abcdef");
        assert!(read_any(folder.path(), 6).is_err(), "a folder");
        for (bytes_max, told) in [(2 << 10, "2 KiB"), (3 << 20, "3 MiB")] {
            std::fs::write(&path, vec![b'a'; bytes_max + 1]).expect("written");
            for read in [read_regular, read_any] {
                let error = read(&path, bytes_max as u64).expect_err("too long");
                assert_eq!(error.to_string(), format!("it is longer than {told}"));
            }
        }
        assert_eq!(text(b"a".to_vec()).expect("text"), "a");
        assert_eq!(text(vec![0xff]).expect_err("no text").to_string(), "it is not UTF-8 text");
    }
}
