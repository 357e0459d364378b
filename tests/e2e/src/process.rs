//! A process that dies with its owner, whatever becomes of the owner.
//!
//! A test that panics, is killed or runs into a time limit must not leave a
//! node behind. So each process runs under a small shell that watches a pipe
//! from us: when our end closes, however that comes about, the shell kills it.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};

use crate::secrets::{assert_none_found, look_for_secrets};
use crate::until;

/// `$0` is the log file, the rest the command. The guard waits on our pipe
/// (kept as 3, for a job in the background gets no stdin); the shell's exit code is
/// the command's. The command has a process group of its own, and what it leaves behind is killed, too.
const SUPERVISOR: &str = r#"
exec 3<&0 2>/dev/null
setsid "$@" </dev/null >"$0" 2>&1 3<&- &
pid=$!
(read -r _ <&3; kill -9 "-$pid" || kill -9 "$pid") >/dev/null 2>&1 &
guard=$!
echo "$pid"
exec >/dev/null
wait "$pid"
code=$?
kill -0 "-$pid" && wait "$guard"
kill "$guard"
exit "$code"
"#;

/// Where the sockets begin that a process is given; the shell has 3 for itself.
pub const FIRST_SOCKET: i32 = 5;

/// Lines of a log that are worth printing.
const LOG_LINES: usize = 200;

/// What can be sent to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ends it at once.
    Kill,
    /// Asks it to end.
    Term,
    /// Freezes it: sockets stay open, nothing answers.
    Stop,
    /// Thaws it.
    Cont,
    /// Has it read its settings again.
    Hangup,
    /// Has it hand its sockets over.
    User2,
}

/// A running process with its log; dropping it kills it.
pub struct Process {
    shell: Child,
    pid: u32,
    log: PathBuf,
    /// Whether it is the program under test, which tells no secrets.
    is_wellhead: bool,
}

impl Process {
    /// Starts `command`, whose output goes to `log`.
    ///
    /// # Panics
    /// When there is no such program, as everywhere in this harness: a test
    /// that cannot start its parts has failed.
    #[must_use]
    pub fn start(command: &[String], log: PathBuf) -> Self {
        Self::start_with_sockets(command, log, Vec::new())
    }

    /// As [`Self::start`], with these sockets from [`FIRST_SOCKET`] on, as a service manager gives them.
    ///
    /// # Panics
    /// As [`Self::start`].
    #[must_use]
    pub fn start_with_sockets(command: &[String], log: PathBuf, sockets: Vec<OwnedFd>) -> Self {
        let mut shell = Command::new("sh");
        let mappings = (FIRST_SOCKET..)
            .zip(sockets)
            .map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd });
        let mut shell = shell
            .fd_mappings(mappings.collect())
            .expect("no two have one number")
            .arg("-c")
            .arg(SUPERVISOR)
            .arg(&log)
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("every system that runs these tests has sh");
        let stdout = shell.stdout.take().expect("stdout is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("the shell prints the pid first");
        let pid = line.trim().parse().expect("the shell prints the pid first");
        let wellhead = binary_path();
        let is_wellhead = command.iter().any(|word| wellhead.as_deref() == Some(Path::new(word)));
        Self { shell, pid, log, is_wellhead }
    }

    /// The process's own id, not the shell's.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal; a process that has ended already gets none.
    pub fn signal(&self, signal: Signal) {
        let name = match signal {
            Signal::Kill => "-KILL",
            Signal::Term => "-TERM",
            Signal::Stop => "-STOP",
            Signal::Cont => "-CONT",
            Signal::Hangup => "-HUP",
            Signal::User2 => "-USR2",
        };
        let _ended_already =
            Command::new("kill").args([name, &self.pid.to_string()]).stderr(Stdio::null()).status();
    }

    /// The exit code, when it ends within `bound`; 128 and more for a signal.
    pub async fn exit_code(&mut self, bound: Duration) -> Option<i32> {
        let shell = Mutex::new(&mut self.shell);
        until(bound, || async {
            let mut shell = shell.lock().ok()?;
            shell.try_wait().ok()?.and_then(|status| status.code())
        })
        .await
    }

    /// How many lines that it has printed so far hold this text.
    #[must_use]
    pub fn lines_with(&self, text: &str) -> usize {
        self.printed().lines().filter(|line| line.contains(text)).count()
    }

    /// All that it has printed so far.
    #[must_use]
    pub fn printed(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Looks for secrets of clients in what it has printed so far, if it is wellhead. To be called before another
    /// process writes to its log.
    pub(crate) fn look_for_secrets(&self) {
        if self.is_wellhead {
            look_for_secrets("what wellhead printed", self.printed().as_bytes());
        }
    }

    /// The end of what it has printed so far, for the message of a failed test.
    #[must_use]
    pub fn log(&self) -> String {
        let text = self.printed();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(Some(status)) = self.shell.try_wait()
        {
            show_end(status, &self.log());
        }
        // Closing the pipe makes the guard kill the process; waiting for it keeps
        // its files from being removed under its feet.
        drop(self.shell.stdin.take());
        let _nothing_to_do = self.shell.wait();
        self.look_for_secrets();
        if self.is_wellhead && !std::thread::panicking() {
            assert_none_found();
        }
    }
}

/// For a failed test: a process that ended before it may be the reason.
#[expect(clippy::print_stderr, reason = "the runner shows it below the name of the test")]
fn show_end(status: ExitStatus, log: &str) {
    eprintln!("a process had ended before its test, {status}:\n{log}");
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// Where a program is: in the cache that `scripts/setup` fills, else on the path.
///
/// # Panics
/// With the words what to do, when it is in neither.
#[must_use]
pub fn tool(name: &str) -> String {
    let cached = cache().join("bin").join(name);
    if cached.exists() {
        return cached.display().to_string();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|p| p.exists());
    found
        .unwrap_or_else(|| panic!("`{name}` is not here; `scripts/setup test` installs it"))
        .display()
        .to_string()
}

/// The binary: `WELLHEAD_BIN`, else the release build beside this test's own build.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn binary() -> PathBuf {
    binary_path().expect("`cargo build --release -p wellhead` comes first; `make test` does both")
}

/// A binary that libraries can be loaded into: `WELLHEAD_LINKED_BIN`, else [`binary`], which is static where the
/// one that is shipped is tested.
#[must_use]
pub(crate) fn linked_binary() -> PathBuf {
    std::env::var_os("WELLHEAD_LINKED_BIN").map_or_else(binary, PathBuf::from)
}

/// As [`binary`]; `None` where there is none, as in a test of the harness alone.
fn binary_path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("WELLHEAD_BIN") {
        return Some(path.into());
    }
    let here = std::env::current_exe().expect("a running test has a path");
    let mut built = here.ancestors().map(|folder| folder.join("release/wellhead"));
    built.find(|path| path.exists())
}

/// The cache outside the checkout, as `scripts/env` names it.
#[must_use]
pub fn cache() -> PathBuf {
    if let Some(cache) = std::env::var_os("WELLHEAD_CACHE") {
        return cache.into();
    }
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    base.expect("HOME is set where people work").join("wellhead")
}
