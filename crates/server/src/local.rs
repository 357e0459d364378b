//! A listener at a socket file, for programs of this machine: the mode of the file decides which users may connect.

use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::listen::BACKLOG;

/// A bound, listening socket file that belongs to no runtime yet. Removes its file when dropped.
#[derive(Debug)]
pub struct LocalListener {
    socket: UnixListener,
    path: PathBuf,
    /// `None` where it is not for this process to remove.
    file: Option<SocketFile>,
}

impl LocalListener {
    /// Takes over a socket that listens at `path` already, as a service manager gives it. Its file stays.
    pub fn given(socket: UnixListener, path: &Path) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, path: path.to_owned(), file: None })
    }

    /// Binds `path` and listens. A file that a process which ended has left there is replaced; one at
    /// which another process listens is an error ([`io::ErrorKind::AddrInUse`]), and so is a file of
    /// any other kind ([`io::ErrorKind::AlreadyExists`]).
    pub fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(path)?)?;
        let file = SocketFile::at(path)?;
        // Before it listens no client can connect, whatever mode the file was made with.
        std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        socket.listen(i32::from(BACKLOG))?;
        Ok(Self { socket: UnixListener::from(socket), path: path.to_owned(), file: Some(file) })
    }

    /// As [`Self::given`], of a process that hands over: the file is for this process to remove.
    pub fn taken_over(socket: UnixListener, path: &Path) -> io::Result<Self> {
        let file = Some(SocketFile::at(path)?);
        Ok(Self { file, ..Self::given(socket, path)? })
    }

    /// A copy of the socket. Until both are closed, it listens.
    pub fn copy(&self) -> io::Result<OwnedFd> {
        Ok(self.socket.try_clone()?.into())
    }

    /// By which the file can be left to another process, also when this one serves already.
    pub fn file_lease(&self) -> SocketFileLease {
        let is_left = self.file.as_ref().map(|file| Arc::clone(&file.is_left));
        SocketFileLease(is_left.unwrap_or_default())
    }

    /// Where its file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Registers it with the runtime of the calling worker. The file is removed when the second is dropped.
    pub(crate) fn start(self) -> io::Result<(tokio::net::UnixListener, Option<SocketFile>)> {
        Ok((tokio::net::UnixListener::from_std(self.socket)?, self.file))
    }
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        let why = "there is another file, which is no socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    match UnixStream::connect(path) {
        // No process listens there any more.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        // Its queue may be full, which also says that a process listens.
        Ok(_) | Err(_) => Err(io::Error::from(io::ErrorKind::AddrInUse)),
    }
}

/// A socket file that was made here.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    is_left: Arc<AtomicBool>,
}

/// The right to remove a socket file at the end.
#[derive(Debug, Default)]
pub struct SocketFileLease(Arc<AtomicBool>);

impl SocketFileLease {
    /// Another process has the socket: the file stays.
    pub fn leave(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        let made = std::fs::symlink_metadata(path)?;
        let is_left = Arc::default();
        Ok(Self { path: path.to_owned(), device: made.dev(), inode: made.ino(), is_left })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_left.load(Ordering::Relaxed) {
            return;
        }
        // Another process may have its own there by now.
        let is_ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if is_ours {
            // If it cannot be removed, the next start finds it stale.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("a file").mode() & 0o777
    }

    #[test]
    fn the_file_has_its_mode_and_is_removed_at_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("admin.sock");
        for bits in [0o660, 0o600, 0o666] {
            let listener = LocalListener::bind(&path, bits).expect("bound");
            assert_eq!(mode(&path), bits);
            UnixStream::connect(&path).expect("somebody listens");
            drop(listener);
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_stale_file_is_replaced_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("admin.sock");
        // As a process leaves it that is killed.
        drop(UnixListener::bind(&path).expect("bound"));
        assert!(path.exists());
        let first = LocalListener::bind(&path, 0o660).expect("the stale one is replaced");
        let second = LocalListener::bind(&path, 0o660).map(|_| ());
        assert_eq!(second.expect_err("in use").kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).expect("the first one listens on");
        drop(first);
    }

    #[test]
    fn other_files_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "mine").expect("written");
        let bound = LocalListener::bind(&path, 0o660).map(|_| ());
        assert_eq!(bound.expect_err("not a socket").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "mine");
        assert!(LocalListener::bind(folder.path(), 0o660).is_err());
        let long = folder.path().join("x".repeat(120));
        assert!(LocalListener::bind(&long, 0o660).is_err());
    }

    #[test]
    fn a_file_that_another_process_made_meanwhile_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("admin.sock");
        let first = LocalListener::bind(&path, 0o660).expect("bound");
        std::fs::remove_file(&path).expect("removed by hand");
        let _second = LocalListener::bind(&path, 0o660).expect("bound");
        drop(first);
        assert!(path.exists());
    }
}
