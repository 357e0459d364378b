//! Listening sockets, one for each worker, and what to do when accepting fails.
//!
//! With SO_REUSEPORT the kernel spreads new connections over the workers'
//! sockets; there is no accept lock and no hand-over between threads.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait to be accepted; the kernel caps it at its own bound.
pub(crate) const BACKLOG: u16 = 1024;

/// Bytes of answers that the kernel keeps of a connection beyond those that are on their way. Without
/// this bound a client on a short path that reads nothing takes 2.6 MB, read from an upstream and
/// copied for it before anything else.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 512 << 10;

/// A bound, listening socket that belongs to no runtime yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds `address` and listens. With `reuse_port` others may bind the same
    /// address, also another process of the same user: see [`Self::bind_workers`].
    ///
    /// An IPv6 wildcard address also takes IPv4.
    pub fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        #[cfg(unix)]
        if reuse_port {
            socket.set_reuse_port(true)?;
        }
        // Accepted connections inherit it.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(i32::from(BACKLOG))?;
        let socket = TcpListener::from(socket);
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// Binds one socket for each of `workers` to the same address; with port 0
    /// all to the port that the first was given.
    ///
    /// Fails if another process listens there already: two processes that share a
    /// port by mistake would each get half of the requests.
    pub fn bind_workers(address: SocketAddr, workers: usize) -> io::Result<Vec<Self>> {
        if workers <= 1 {
            return Ok(vec![Self::bind(address, false)?]);
        }
        if address.port() != 0 {
            drop(Self::bind(address, false)?);
        }
        let first = Self::bind(address, true)?;
        let address = first.address();
        let mut listeners = vec![first];
        for _ in 1..workers {
            listeners.push(Self::bind(address, true)?);
        }
        Ok(listeners)
    }

    /// Takes over sockets that listen already, as a service manager gives them. Each has a worker, and workers
    /// beyond their number share them. The backlog is as it was set.
    pub fn of_given(sockets: Vec<TcpListener>, workers: usize) -> io::Result<Vec<Self>> {
        let listeners = sockets.into_iter().map(Self::given);
        let mut listeners = listeners.collect::<io::Result<Vec<_>>>()?;
        for place in 0..workers.saturating_sub(listeners.len()) {
            let shared = listeners[place].socket.try_clone()?;
            listeners.push(Self::given(shared)?);
        }
        Ok(listeners)
    }

    /// Takes over a socket that listens already.
    pub fn given(socket: TcpListener) -> io::Result<Self> {
        let socket = Socket::from(socket);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        socket.set_nonblocking(true)?;
        let socket = TcpListener::from(socket);
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// A copy of the socket. Until both are closed, it listens.
    pub fn copy(&self) -> io::Result<OwnedFd> {
        Ok(self.socket.try_clone()?.into())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Registers it with the runtime of the calling worker.
    pub(crate) fn start(self) -> io::Result<tokio::net::TcpListener> {
        tokio::net::TcpListener::from_std(self.socket)
    }
}

/// Whether an error of `accept` is about that one connection, so that the next
/// can be accepted at once. The others (no file descriptors, no memory) come
/// back at once too, for as long as they last: without a pause they spin.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// How long to wait after accepting failed: twice as long each time, to a bound.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(10);
    const LONGEST: Duration = Duration::from_secs(1);

    pub(crate) fn new() -> Self {
        Self { next: Self::FIRST }
    }

    pub(crate) fn failed(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(Self::LONGEST);
        pause
    }

    pub(crate) fn succeeded(&mut self) {
        self.next = Self::FIRST;
    }

    /// True for the first failure of a row, so that a row is logged once.
    pub(crate) fn is_fresh(&self) -> bool {
        self.next == Self::FIRST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn workers_share_one_address() {
        let listeners = Listener::bind_workers(ANY, 3).unwrap();
        assert_eq!(listeners.len(), 3);
        assert!(listeners.iter().all(|l| l.address() == listeners[0].address()));
        assert_ne!(listeners[0].address().port(), 0);
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[test]
    fn the_kernel_keeps_few_bytes_for_a_client_that_reads_nothing() {
        use std::io::Write;

        let listener = Listener::bind(ANY, false).unwrap();
        let _client = std::net::TcpStream::connect(listener.address()).unwrap();
        listener.socket.set_nonblocking(false).unwrap();
        let (mut accepted, _) = listener.socket.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        let piece = vec![0; 64 << 10];
        let mut kept = 0;
        let refused = loop {
            match accepted.write(&piece) {
                Ok(written) => kept += written,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(kept <= UNSENT_BYTES_MAX as usize + (256 << 10), "{kept} bytes");
    }

    #[test]
    fn given_sockets_are_for_all_workers() {
        for (given, workers, expected) in [(1, 1, 1), (1, 3, 3), (2, 5, 5), (3, 1, 3)] {
            let sockets = (0..given).map(|_| TcpListener::bind(ANY).unwrap()).collect();
            let listeners = Listener::of_given(sockets, workers).unwrap();
            assert_eq!(listeners.len(), expected, "{given} for {workers}");
            let addresses: std::collections::BTreeSet<_> =
                listeners.iter().map(Listener::address).collect();
            assert_eq!(addresses.len(), given);
        }
    }

    #[test]
    fn an_address_in_use_is_an_error_even_when_it_could_be_shared() {
        let listeners = Listener::bind_workers(ANY, 2).unwrap();
        let second = Listener::bind_workers(listeners[0].address(), 2);
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn pauses_double_to_a_bound_and_start_over() {
        let mut backoff = Backoff::new();
        assert!(backoff.is_fresh());
        let pauses: Vec<_> = (0..9).map(|_| backoff.failed().as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert!(!backoff.is_fresh());
        backoff.succeeded();
        assert_eq!(backoff.failed(), Backoff::FIRST);
    }

    #[test]
    fn only_errors_of_one_connection_pass() {
        // EMFILE, ENFILE, ENOBUFS, ENOMEM; then ECONNABORTED, EINTR.
        for errno in [24, 23, 105, 12] {
            assert!(!is_passing(&io::Error::from_raw_os_error(errno)), "{errno}");
        }
        for errno in [103, 4] {
            assert!(is_passing(&io::Error::from_raw_os_error(errno)), "{errno}");
        }
    }
}
