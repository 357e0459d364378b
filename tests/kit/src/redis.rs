//! A Redis or Valkey of the machine, which ends with the test.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::free_port;

/// Kills the command when our end of the pipe closes, however that comes about.
const SUPERVISOR: &str = r#"
exec 3<&0
"$@" </dev/null >/dev/null 2>&1 3<&- &
pid=$!
echo "$pid"
exec >/dev/null
read -r _ <&3
kill -9 "$pid" 2>/dev/null
wait "$pid" 2>/dev/null
"#;

const REDIS_FIRST: [&str; 2] = ["redis-server", "valkey-server"];
const VALKEY_FIRST: [&str; 2] = ["valkey-server", "redis-server"];

/// A Redis or Valkey that ends with the test, also when the test is killed. It keeps nothing on disk.
#[derive(Debug)]
pub struct RedisServer {
    shell: Child,
    pid: String,
    port: u16,
}

impl RedisServer {
    /// A Redis, or where none is installed a Valkey, on a free port.
    pub fn start() -> Self {
        Self::start_at(free_port(), &[])
    }

    /// As [`Self::start`], on this port and with these options of the command line.
    pub fn start_at(port: u16, options: &[&str]) -> Self {
        Self::run(&[], REDIS_FIRST, port, options)
    }

    /// A Valkey, or where none is installed a Redis, on a free port.
    pub fn valkey() -> Self {
        Self::valkey_at(free_port())
    }

    /// As [`Self::valkey`], on this port.
    pub fn valkey_at(port: u16) -> Self {
        Self::run(&[], VALKEY_FIRST, port, &[])
    }

    /// As [`Self::valkey`], by way of another program, such as `env NAME=value`.
    pub fn valkey_under(launcher: &[String]) -> Self {
        Self::run(launcher, VALKEY_FIRST, free_port(), &[])
    }

    fn run(launcher: &[String], programs: [&str; 2], port: u16, options: &[&str]) -> Self {
        let program = programs
            .into_iter()
            .find(|program| {
                let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
                version.is_ok_and(|status| status.success())
            })
            .expect("redis-server or valkey-server is installed: see `scripts/setup test`");
        let mut shell = Command::new("sh")
            .args(["-c", SUPERVISOR, "sh"])
            .args(launcher)
            .args([program, "--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--dir", "/"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("every system that runs these tests has sh");
        let mut pid = String::new();
        let stdout = shell.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut pid).expect("the shell prints the pid first");
        Self { shell, pid: pid.trim().to_owned(), port }
    }

    /// Sends a signal, such as `-STOP`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.pid]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{name} cannot be sent");
    }

    /// Sends a command, as a line whose words may be quoted, and waits for its answer, which is a number or `OK`.
    pub fn obey(&self, command: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it is up");
        stream.write_all(format!("{command}\r\n").as_bytes()).expect("it reads");
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).expect("it answers");
        assert!(answer.starts_with([':', '+']), "{command}: {answer}");
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ended = self.shell.wait();
    }
}
