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

pub(super) struct RedisOfTest {
    shell: Child,
    pub(super) port: u16,
}

impl RedisOfTest {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        Self::start_at(listener.local_addr().expect("it has an address").port())
    }

    pub(super) fn start_at(port: u16) -> Self {
        let is_there = |program: &&str| {
            let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
            version.is_ok_and(|status| status.success())
        };
        let program = ["valkey-server", "redis-server"].into_iter().find(is_there);
        let program = program.expect("redis-server is installed: see `scripts/setup test`");
        let mut shell = Command::new("sh")
            .args(["-c", SUPERVISOR, "sh", program, "--bind", "127.0.0.1", "--port"])
            .arg(port.to_string())
            .args(["--save", "", "--appendonly", "no", "--dir", "/"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("every system that runs these tests has sh");
        let stdout = shell.stdout.take().expect("stdout is piped");
        BufReader::new(stdout)
            .read_line(&mut String::new())
            .expect("the shell prints the pid first");
        Self { shell, port }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for RedisOfTest {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ended = self.shell.wait();
    }
}
