//! What a call costs over HTTP/1.1 and over WebSocket.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::crowd::{frame, upgrade};
use crate::process::cpu_seconds;

/// Connections that take turns.
const CONNECTIONS: usize = 8;
/// Calls of a measurement.
const CALLS: usize = 40_000;
const CALLS_UPSTREAM: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    WebSocket,
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    /// Answered by the proxy.
    Local,
    /// Another one each time, so that no cache has it.
    Upstream(usize),
}

impl Call {
    fn body(self) -> String {
        match self {
            Self::Local => {
                r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#.to_owned()
            }
            Self::Upstream(number) => format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":["0x{number:040x}","latest"]}}"#
            ),
        }
    }
}

/// Connections over which calls go in turns.
pub(crate) struct CallLoop {
    streams: Vec<TcpStream>,
    protocol: Protocol,
    next: usize,
}

impl CallLoop {
    pub(crate) fn http(port: u16, connections: usize) -> Self {
        Self::new(port, Protocol::Http, connections)
    }

    fn new(port: u16, protocol: Protocol, connections: usize) -> Self {
        let connect = |_| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
            stream.set_nodelay(true).expect("a socket");
            if protocol == Protocol::WebSocket {
                stream.write_all(upgrade()).expect("sent");
                let mut head = [0; 1024];
                let read = stream.read(&mut head).expect("an answer");
                assert!(head[..read].starts_with(b"HTTP/1.1 101"), "not upgraded");
            }
            stream
        };
        Self { streams: (0..connections).map(connect).collect(), protocol, next: 0 }
    }

    /// Makes one call and reads its answer.
    pub(crate) fn play(&mut self, call: Call) {
        let body = call.body();
        let request = match self.protocol {
            Protocol::WebSocket => frame(body.as_bytes()),
            Protocol::Http => format!(
                "POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .into_bytes(),
        };
        let place = self.next % self.streams.len();
        self.next += 1;
        let stream = &mut self.streams[place];
        stream.write_all(&request).expect("sent");
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        // Answers of these calls end with the bracket of their object, and nothing in them does before.
        while !answer.ends_with(b"}") {
            let read = stream.read(&mut buffer).expect("an answer");
            assert!(read > 0, "the connection was closed");
            answer.extend(&buffer[..read]);
        }
        assert!(
            answer.windows(9).any(|part| part == b"\"result\":"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
}

/// CPU of the process `pid` for one call, in µs.
pub(crate) fn call_costs(port: u16, pid: u32, protocol: Protocol, local: bool) -> f64 {
    let mut calls = CallLoop::new(port, protocol, CONNECTIONS);
    let count = if local { CALLS } else { CALLS_UPSTREAM };
    let salt = if protocol == Protocol::Http { 1 << 40 } else { 2 << 40 };
    let call = |number| if local { Call::Local } else { Call::Upstream(salt + number) };
    (0..100).for_each(|number| calls.play(call(count + number)));
    let total = || {
        let (user, system) = cpu_seconds(pid);
        user + system
    };
    let before = total();
    (0..count).for_each(|number| calls.play(call(number)));
    (total() - before) * 1e6 / count as f64
}
