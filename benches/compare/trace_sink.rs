//! Where a contender sends its traces: a server that takes all and keeps none, so that it costs little.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

/// A running sink. Its thread ends with the process.
#[derive(Debug)]
pub(crate) struct TraceSink {
    port: u16,
    requests: Arc<AtomicU64>,
}

impl TraceSink {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a port");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let requests = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                thread::spawn(move || take_all(stream, &counted));
            }
        });
        Self { port, requests }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Requests that came.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }
}

/// One connection, to its end.
fn take_all(stream: TcpStream, requests: &AtomicU64) {
    let mut reader = BufReader::new(stream);
    while let Some(length) = content_length(&mut reader) {
        let mut body = vec![0; length];
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        if reader.read_exact(&mut body).is_err() || reader.get_mut().write_all(answer).is_err() {
            return;
        }
        requests.fetch_add(1, Relaxed);
    }
}

/// The length of the next body, behind whose head the reader stands then.
fn content_length(reader: &mut impl BufRead) -> Option<usize> {
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            return Some(length);
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
}
