//! The process between the two of a hand-over: it starts the successor, and ends when the successor is ready.
//!
//! systemd waits for the end of a service's main process only if that is a child of its own when it is told of
//! (`MAINPID`): any other it would kill at the next stop, without time to drain. A process becomes a child of systemd
//! when its parent ends, and the predecessor has to drain for a while. So the parent is this one, which is the running
//! binary again, under the name [`NAME`]. If the successor ends, the starter ends with its exit code; if the predecessor
//! ends, the starter kills the successor.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use command_fds::{CommandFdExt as _, FdMapping};

/// The binary is a starter if it is started under this name (`argv[0]`). It is not an option of the command line, because
/// no user has a use for it.
const NAME: &str = "wellhead-starter";
/// How often a process looks whether another one has ended, or is ready.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The starter reports the process that it started within this time.
const STARTED_WITHIN: Duration = Duration::from_secs(10);
/// Tells the starter to end, and so to leave the successor alone.
const RELEASE: u8 = b'r';
/// Of the line in which the starter reports; errors of the system are shorter.
const LINE_BYTES_MAX: u64 = 1024;

/// The starter, as the predecessor has it. Dropped, it and the successor are killed, unless it was released.
#[derive(Debug)]
pub(super) struct Starter {
    process: Child,
    control: UnixStream,
    /// The process id of the successor, once it is known.
    successor: Option<u32>,
    is_released: bool,
}

impl Starter {
    /// Has the program started with these arguments and files. Waits until it is, which takes some milliseconds.
    pub(super) fn start(
        program: OsString,
        arguments: impl Iterator<Item = OsString>,
        files: Vec<FdMapping>,
        environment: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        let (control, theirs) = UnixStream::pair()?;
        let mut command = Command::new(this_program()?);
        std::os::unix::process::CommandExt::arg0(&mut command, NAME);
        command.arg(program).args(arguments).stdin(OwnedFd::from(theirs));
        environment(&mut command);
        let process = command.fd_mappings(files).map_err(io::Error::other)?.spawn()?;
        // Its copies of the files are closed.
        drop(command);
        let mut starter = Self { process, control, successor: None, is_released: false };
        starter.successor = Some(starter.read_pid()?);
        Ok(starter)
    }

    /// The process id of the successor; an error in the words of the system if it could not be started.
    fn read_pid(&self) -> io::Result<u32> {
        self.control.set_read_timeout(Some(STARTED_WITHIN))?;
        let mut line = String::new();
        BufReader::new((&self.control).take(LINE_BYTES_MAX)).read_line(&mut line)?;
        line.trim_end().parse().map_err(|_| io::Error::other(line.trim_end().to_owned()))
    }

    /// The process id of the successor.
    pub(super) fn successor(&self) -> u32 {
        self.successor.expect("a starter that has no successor is not returned")
    }

    /// How the successor has ended, if it has.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// The successor goes on alone: the starter ends. Waits for that, for about [`LOOK_EVERY`]. May be dropped and
    /// called again.
    pub(super) async fn release(&mut self) -> io::Result<()> {
        if !self.is_released {
            self.control.write_all(&[RELEASE])?;
            self.is_released = true;
        }
        while self.process.try_wait()?.is_none() {
            tokio::time::sleep(LOOK_EVERY / 10).await;
        }
        Ok(())
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        if self.successor.is_none() {
            // It may hang in the start, and would not notice the end of the control socket.
            let _ = self.process.kill();
        } else if !self.is_released {
            // That is what it waits for; it may have ended already.
            let _ = self.control.shutdown(std::net::Shutdown::Both);
        }
        let _ = self.process.wait();
    }
}

/// The binary of this process, even where its file was replaced.
fn this_program() -> io::Result<OsString> {
    match cfg!(target_os = "linux") {
        true => Ok("/proc/self/exe".into()),
        false => std::env::current_exe().map(Into::into),
    }
}

/// Does what a starter is for, if this process is one. To be asked first of all.
pub(crate) fn run() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    if arguments.next()? != NAME {
        return None;
    }
    let program = arguments.next()?;
    let mut command = Command::new(program);
    // The other end of the control socket is the predecessor's.
    command.args(arguments).stdin(Stdio::null());
    let status = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    Some(status.and_then(|control| watch(&control, &mut command)).unwrap_or(ExitCode::FAILURE))
}

/// Starts the successor, and stays until it ends or is released.
fn watch(mut control: &UnixStream, command: &mut Command) -> io::Result<ExitCode> {
    let mut successor = match command.spawn() {
        Ok(successor) => successor,
        Err(error) => {
            writeln!(control, "{error}")?;
            return Ok(ExitCode::FAILURE);
        }
    };
    control.set_read_timeout(Some(LOOK_EVERY))?;
    let mut is_watched = writeln!(control, "{}", successor.id()).is_ok();
    while is_watched {
        let mut word = [0];
        match control.read(&mut word) {
            Ok(1) if word == [RELEASE] => return Ok(ExitCode::SUCCESS),
            Ok(_) => is_watched = false,
            Err(error) => is_watched = is_timeout(&error),
        }
        if let Some(status) = successor.try_wait()? {
            return Ok(code_of(status));
        }
    }
    successor.kill()?;
    successor.wait()?;
    Ok(ExitCode::FAILURE)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// The code of a process that a signal ended is 128 and the signal's number, as a shell has it.
fn code_of(status: ExitStatus) -> ExitCode {
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    let code = status.code().or(signal.map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
