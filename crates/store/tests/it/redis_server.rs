//! A Redis or Valkey of the machine, which ends with the test.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};

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

/// A Redis that ends with the test.
pub(crate) struct Redis {
    shell: Child,
    pid: String,
    pub(crate) port: u16,
}

impl Redis {
    pub(crate) fn start() -> Self {
        Self::start_at(free_port(), &[])
    }

    pub(crate) fn start_at(port: u16, options: &[&str]) -> Self {
        Self::run(["redis-server", "valkey-server"], port, options)
    }

    /// A Valkey, if one is installed.
    pub(crate) fn valkey() -> Self {
        Self::valkey_at(free_port())
    }

    pub(crate) fn valkey_at(port: u16) -> Self {
        Self::run(["valkey-server", "redis-server"], port, &[])
    }

    fn run(programs: [&str; 2], port: u16, options: &[&str]) -> Self {
        let program = programs
            .into_iter()
            .find(|program| {
                let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
                version.is_ok_and(|status| status.success())
            })
            .expect("redis-server or valkey-server is installed: see `scripts/setup test`");
        let mut shell = Command::new("sh")
            .args(["-c", SUPERVISOR, "sh", program, "--bind", "127.0.0.1", "--port"])
            .arg(port.to_string())
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

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.pid]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{name} cannot be sent");
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A connection of the test's own; Redis must be up.
    pub(crate) async fn raw(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.url()).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ended = self.shell.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("it has an address").port()
}
