//! What an attack is given: where its target is, how long it may last, and how large it is.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::ClientConfig;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, timeout_at};

use super::upstream::Shared;

/// Where attacks come from; the well-behaved caller has another address.
pub const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Between two attempts of one attacking connection that was refused.
const AGAIN_AFTER: Duration = Duration::from_millis(10);
/// Between connections that are opened one after the other.
const OPEN_TOGETHER: usize = 100;
/// Violations kept in words.
const VIOLATIONS_MAX: usize = 8;

/// Large for `scripts/attack`, small for `make test`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// As the attack was seen to do harm.
    Full,
    /// Long enough to see that it is met.
    Short,
}

/// The place of one attack.
#[derive(Debug)]
pub struct Ground {
    /// Where the target takes HTTP/1.1, or TLS where the attack wants that.
    pub target: SocketAddr,
    /// Where it takes HTTP/2 with prior knowledge.
    pub http2: SocketAddr,
    /// Trusts the target's certificate.
    pub tls: Option<Arc<ClientConfig>>,
    /// The upstream that the attack plays with.
    pub upstream: Arc<Shared>,
    /// When it has to end.
    pub end: Instant,
    /// How large it is.
    pub scale: Scale,
    client_calls: AtomicU64,
    violations: Mutex<Vec<String>>,
    remarks: Mutex<Vec<String>>,
}

impl Ground {
    /// A place whose attack ends after `lasts`.
    #[must_use]
    pub fn new(
        [target, http2]: [SocketAddr; 2],
        tls: Option<Arc<ClientConfig>>,
        upstream: Arc<Shared>,
        lasts: Duration,
        scale: Scale,
    ) -> Self {
        Self {
            target,
            http2,
            tls,
            upstream,
            end: Instant::now() + lasts,
            scale,
            client_calls: AtomicU64::new(0),
            violations: Mutex::default(),
            remarks: Mutex::default(),
        }
    }

    /// The name that requests carry.
    #[must_use]
    pub fn host(&self) -> String {
        self.target.to_string()
    }

    /// `full`, or `short` in the short form.
    #[must_use]
    pub fn sized(&self, full: usize, short: usize) -> usize {
        match self.scale {
            Scale::Full => full,
            Scale::Short => short,
        }
    }

    /// Counts requests of the attack that are whole.
    pub fn count_calls(&self, calls: u64) {
        self.client_calls.fetch_add(calls, Ordering::Relaxed);
    }

    /// Requests of the attack so far.
    #[must_use]
    pub fn client_calls(&self) -> u64 {
        self.client_calls.load(Ordering::Relaxed)
    }

    /// Notes something that must not happen.
    pub fn violation(&self, what: String) {
        let mut violations = self.violations.lock().expect("no holder of this lock panics");
        if violations.len() < VIOLATIONS_MAX {
            violations.push(what);
        }
    }

    /// What must not have happened, and did.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().expect("no holder of this lock panics").clone()
    }

    /// Notes what a reader of the report wants to know.
    pub fn remark(&self, what: String) {
        self.remarks.lock().expect("no holder of this lock panics").push(what);
    }

    /// What was noted.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        self.remarks.lock().expect("no holder of this lock panics").clone()
    }

    /// Whether the attack has had its time.
    #[must_use]
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// A connection to the target from [`ATTACKER`].
    pub async fn connect(&self) -> io::Result<TcpStream> {
        self.connect_to(self.target, None).await
    }

    /// A connection to the target from one of `count` addresses, in turn.
    pub async fn connect_from_many(&self, index: usize, count: u8) -> io::Result<TcpStream> {
        let [a, b, c, _] = ATTACKER.octets();
        let last = u8::try_from(index % usize::from(count)).unwrap_or(0);
        self.connect_by(self.target, None, Ipv4Addr::new(a, b, c + 1, last + 1)).await
    }

    /// A connection whose receive buffer is as small as the system lets it be, so that what the
    /// attacker does not read stays with the target.
    pub async fn connect_small(&self) -> io::Result<TcpStream> {
        self.connect_to(self.target, Some(4096)).await
    }

    pub(crate) async fn connect_to(
        &self,
        address: SocketAddr,
        receive_bytes: Option<u32>,
    ) -> io::Result<TcpStream> {
        self.connect_by(address, receive_bytes, ATTACKER).await
    }

    async fn connect_by(
        &self,
        address: SocketAddr,
        receive_bytes: Option<u32>,
        own: Ipv4Addr,
    ) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = receive_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.bind(SocketAddr::new(IpAddr::V4(own), 0))?;
        let connected = timeout_at(self.end, socket.connect(address)).await;
        let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Waits until the attack has had its time.
    pub async fn until_over(&self) {
        tokio::time::sleep_until(self.end).await;
    }
}

/// Runs `count` attackers at once until each has ended, or the time of the attack is over.
pub async fn crowd<F, Fut>(ground: &Arc<Ground>, count: usize, attacker: F)
where
    F: Fn(Arc<Ground>, usize) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let mut running = JoinSet::new();
    for index in 0..count {
        running.spawn(attacker(Arc::clone(ground), index));
        if index % OPEN_TOGETHER == OPEN_TOGETHER - 1 {
            // The queue of a listener is short; what finds it full waits for a second.
            sleep(AGAIN_AFTER).await;
        }
    }
    let ended = timeout_at(ground.end, async { while running.join_next().await.is_some() {} });
    let _over = ended.await;
    running.shutdown().await;
}

/// Runs `count` attackers at once, each again when it has ended, until the time is over.
pub async fn crowd_again<F, Fut>(ground: &Arc<Ground>, count: usize, attacker: F)
where
    F: Fn(Arc<Ground>, usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    crowd(ground, count, move |ground, index| {
        let attacker = attacker.clone();
        async move {
            while !ground.is_over() {
                attacker(Arc::clone(&ground), index).await;
                sleep(AGAIN_AFTER).await;
            }
        }
    })
    .await;
}

/// The head of a `POST /` with these further lines, each with its end.
#[must_use]
pub fn head(host: &str, more: &str) -> String {
    format!("POST / HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n{more}\r\n")
}

/// A whole request.
#[must_use]
pub fn post(host: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = head(host, &format!("content-length: {}\r\n", body.len())).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Sends bytes and reads until the peer closes, says nothing for `silence`, or has sent `most`.
pub async fn exchange(
    stream: &mut TcpStream,
    bytes: &[u8],
    silence: Duration,
    most: usize,
) -> Vec<u8> {
    let mut answer = Vec::new();
    if stream.write_all(bytes).await.is_ok() {
        while answer.len() < most {
            let end = Instant::now() + silence;
            match timeout_at(end, stream.read_buf(&mut answer)).await {
                Ok(Ok(read)) if read > 0 => {}
                _ => break,
            }
        }
    }
    answer
}

/// Reads and forgets until the peer closes.
pub async fn drain(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> u64 {
    let mut room = vec![0; 64 * 1024];
    let mut total = 0;
    while let Ok(read) = stream.read(&mut room).await {
        if read == 0 {
            break;
        }
        total += read as u64;
    }
    total
}
