//! The canned upstream as a program: `fast_upstream [--port 0] [--workers 1] [--chain-id 1]
//! [--delay-ms 0]`.
//!
//! Prints the address it listens on, one line, and serves until it is ended. One
//! thread by default, so that a benchmark can give it one core and no more.

use std::error::Error;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::net::{TcpListener, TcpSocket};
use wellhead_sim::fast::{Canned, serve};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut port, mut workers, mut chain_id, mut delay_ms) = (0u16, 1usize, 1u64, 0u64);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("`{word}` needs a value"))?;
        match word.as_str() {
            "--port" => port = value.parse()?,
            "--workers" => workers = value.parse()?,
            "--chain-id" => chain_id = value.parse()?,
            "--delay-ms" => delay_ms = value.parse()?,
            _ => return Err(format!("unknown option `{word}`").into()),
        }
    }
    // Each worker is a runtime with a listener of its own: the kernel spreads the
    // connections, and no thread waits for another.
    let mut addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let canned = Canned::delayed(wall_clock(), chain_id, Duration::from_millis(delay_ms));
    let mut threads = Vec::new();
    for _ in 0..workers.max(1) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(async { listen(addr) })?;
        addr = listener.local_addr()?;
        let canned = Arc::clone(&canned);
        threads.push(std::thread::spawn(move || runtime.block_on(serve(listener, canned))));
    }
    writeln!(io::stdout(), "http://{addr}")?;
    for thread in threads {
        thread.join().map_err(|_| "a worker panicked")??;
    }
    Ok(())
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

#[expect(clippy::disallowed_methods, reason = "an outermost program dates its own canned heads")]
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
