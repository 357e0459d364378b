//! Many connections that subscribe to heads, read without a task for each.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use tokio::net::TcpSocket;
use wellhead_e2e::Certificate;

/// What a client that does not read lets the kernel take for it.
const STALLED_BUFFER: u32 = 4096;
const ANSWER_MAX: Duration = Duration::from_secs(60);

const UPGRADE: &str = "GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
                       sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SUBSCRIBE: &[u8] =
    br#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]}"#;

/// The upgrade of a connection.
pub(crate) fn upgrade() -> &'static [u8] {
    UPGRADE.as_bytes()
}

/// A text message of a client, masked with zeros.
pub(crate) fn frame(message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x81];
    match u8::try_from(message.len()).ok().filter(|length| *length < 126) {
        Some(length) => frame.push(0x80 | length),
        None => {
            frame.push(0x80 | 126);
            let length = u16::try_from(message.len()).expect("a short message");
            frame.extend(length.to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(message);
    frame
}

/// Subscribed connections.
pub(crate) struct Crowd(Vec<Socket>);

enum Socket {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Socket {
    fn stream(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(tls) => &tls.sock,
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes),
            Self::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }

    fn read_up_to(&mut self, part: &[u8]) {
        let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
        while !contains(&seen, part) {
            let read = self.read(&mut buffer).unwrap_or_else(|why| panic!("not answered: {why}"));
            assert!(read > 0, "closed: {}", String::from_utf8_lossy(&seen));
            seen.extend(&buffer[..read]);
        }
    }

    /// geth closes a connection on which a message comes before it has answered the upgrade.
    fn subscribe(&mut self) {
        self.read_up_to(b"\r\n\r\n");
        self.write_all(&frame(SUBSCRIBE)).expect("sent");
    }

    fn subscribed(&mut self) {
        self.read_up_to(b"\"result\":\"0x");
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

async fn connect(port: u16, buffer: Option<u32>) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    if let Some(bytes) = buffer {
        socket.set_recv_buffer_size(bytes).expect("a small buffer");
    }
    let stream = socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await;
    let stream = stream.and_then(tokio::net::TcpStream::into_std).expect("a listener");
    stream.set_nonblocking(false).expect("a socket");
    stream.set_read_timeout(Some(ANSWER_MAX)).expect("a time");
    stream
}

impl Crowd {
    /// So many connections, each subscribed.
    pub(crate) async fn subscribe(
        port: u16,
        count: usize,
        certificate: Option<&Certificate>,
    ) -> Self {
        Self::connected(port, count, None, certificate).await.all_subscribed()
    }

    /// So many that are subscribed and read nothing more.
    pub(crate) async fn that_stall(port: u16, count: usize) -> Self {
        Self::connected(port, count, Some(STALLED_BUFFER), None).await.all_subscribed()
    }

    fn all_subscribed(mut self) -> Self {
        self.0.iter_mut().for_each(Socket::subscribe);
        self.0.iter_mut().for_each(Socket::subscribed);
        self
    }

    async fn connected(
        port: u16,
        count: usize,
        buffer: Option<u32>,
        certificate: Option<&Certificate>,
    ) -> Self {
        let mut sockets = Vec::with_capacity(count);
        for _ in 0..count {
            let stream = connect(port, buffer).await;
            let mut socket = match certificate.map(Certificate::connection) {
                None => Socket::Plain(stream),
                Some(tls) => Socket::Tls(Box::new(StreamOwned::new(tls.expect("TLS"), stream))),
            };
            socket.write_all(upgrade()).expect("sent");
            sockets.push(socket);
        }
        Self(sockets)
    }

    /// So many connections to what writes without being asked.
    pub(crate) async fn of_readers(port: u16, count: usize) -> Self {
        let mut sockets = Vec::with_capacity(count);
        for _ in 0..count {
            sockets.push(Socket::Plain(connect(port, None).await));
        }
        Self(sockets)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads what is there, of each.
    pub(crate) fn drain(&mut self) {
        let mut buffer = vec![0; 64 << 10];
        for socket in &mut self.0 {
            socket.stream().set_nonblocking(true).expect("a socket");
            while let Ok(read) = socket.read(&mut buffer) {
                assert!(read > 0, "a connection was closed");
            }
            socket.stream().set_nonblocking(false).expect("a socket");
        }
    }

    /// Reads one notification at least, of the last connection: those before it were written first.
    pub(crate) fn wait_for_last(&mut self) {
        let last = self.0.last_mut().expect("there are some");
        let read = last.read(&mut [0; 4096]).expect("told in time");
        assert!(read > 0, "the connection was closed");
    }

    /// Some of the connections, evenly spread, the first and the last among them.
    pub(crate) fn sample(&self, count: usize) -> Vec<tokio::net::TcpStream> {
        let last = self.0.len() - 1;
        let places = (0..count).map(|place| place * last / (count - 1));
        let streams = places.map(|place| {
            let stream = self.0[place].stream().try_clone().expect("a descriptor");
            stream.set_nonblocking(true).expect("a socket");
            tokio::net::TcpStream::from_std(stream).expect("a runtime")
        });
        streams.collect()
    }
}
