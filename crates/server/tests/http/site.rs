//! A server under test, with a handler that does what the path says.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use wellhead_server::{
    AnswerBody, ClientHead, ClientName, Drained, Handler, HeldUntilSent, HttpAnswer, HttpRefusal,
    HttpRequest, Identified, Listener, Server, ServerCounts, SessionHead, Settings, Shutdown, Tls,
};

use crate::wire::Wire;

/// No test waits longer for anything; a test that would is broken.
pub(crate) const GUARD: Duration = Duration::from_secs(20);

/// Short enough to fire in a test, long enough not to while nothing is wrong.
pub(crate) const SOON: Duration = Duration::from_millis(40);

/// What `/big` answers: three pieces, compressible, above the inline bound.
pub(crate) fn big() -> Vec<Bytes> {
    let text: String = (0..30_000).map(|n| format!("\"0x{n:x}\",")).collect();
    vec!["[".into(), text.into(), "null]".into()]
}

/// What `/endless` answers: more than sockets take of an answer that its client does not read.
pub(crate) const ENDLESS_BYTES: usize = 64 * 1024 * 1024;

/// Answers by the chain named in the path; without one it echoes.
#[derive(Debug)]
pub(crate) struct Scripted {
    /// Requests that have reached the handler.
    pub(crate) arrived: AtomicUsize,
    /// `/wait` takes a permit before it answers.
    pub(crate) gate: Semaphore,
    /// Requests whose future was dropped before its end.
    pub(crate) abandoned: AtomicUsize,
    /// The client of the latest request.
    pub(crate) client: Mutex<Option<(SocketAddr, Vec<ClientName>)>>,
    /// Answers that are not sent yet, as their handler knows.
    pub(crate) held: Arc<AtomicUsize>,
}

struct UnsentAnswer(Arc<AtomicUsize>);

impl UnsentAnswer {
    fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for UnsentAnswer {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Abandon<'a>(Option<&'a AtomicUsize>);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if let Some(counter) = self.0 {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Handler for Scripted {
    type Session = ();
    type Caller = ();

    fn identify(&self, head: &ClientHead<'_>) -> Result<Identified<()>, HttpRefusal> {
        *self.client.lock().unwrap() = Some((head.peer(), head.names().to_vec()));
        Ok(Identified::as_it_came(()))
    }

    fn open_session(&self, _caller: &(), _head: SessionHead<'_>) {}

    async fn handle_message(&self, _session: &Arc<()>, request: HttpRequest<()>) -> HttpAnswer {
        self.handle(request).await
    }

    async fn handle(&self, request: HttpRequest<()>) -> HttpAnswer {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        let mut answer =
            HttpAnswer { status: 200, body: request.body.into(), ..HttpAnswer::default() };
        match request.path.chain() {
            None => {}
            Some("wait") => {
                let mut abandon = Abandon(Some(&self.abandoned));
                self.gate.acquire().await.expect("never closed").forget();
                abandon.0 = None;
            }
            Some("big") => answer.body = big().into(),
            Some("endless") => answer.body = Bytes::from(vec![b' '; ENDLESS_BYTES]).into(),
            Some("empty") => answer.body = AnswerBody::default(),
            Some("panic") => panic!("as the test asked"),
            Some("full") => {
                answer.status = 429;
                answer.upstream = Some("geth-a".into());
                answer.attempts = 12;
                answer.cache = Some("miss");
                answer.block = request.known_block.map(|block| block + 1);
                answer.warning = Some("logs-doubted");
                answer.retry_after = Some(Duration::from_millis(1500));
                // Always; it goes out only to clients that asked.
                answer.trail = Some("geth-a: throttled".into());
            }
            Some("evil") => {
                answer.upstream = Some("a\r\nset-cookie: a=1".into());
                answer.cache = Some("b\r\nset-cookie: b=1");
                answer.trail = Some("c\r\nset-cookie: c=1".into());
                answer.status = 7;
            }
            Some(chain) => answer.body = Bytes::from(format!("\"{chain}\"")).into(),
        }
        answer.held = Some(HeldUntilSent::new(UnsentAnswer::begin(&self.held)));
        answer
    }
}

/// One server with one worker, on the test's own thread.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) server: Arc<Server>,
    pub(crate) handler: Arc<Scripted>,
    pub(crate) shutdown: Shutdown,
    pub(crate) serving: JoinHandle<Drained>,
}

impl Site {
    pub(crate) fn open(settings: Settings) -> Self {
        Self::open_with(settings, None)
    }

    pub(crate) fn open_with(settings: Settings, tls: Option<Arc<Tls>>) -> Self {
        let server = Server::with(settings, tls);
        let handler = Arc::new(Scripted {
            arrived: AtomicUsize::new(0),
            gate: Semaphore::new(0),
            abandoned: AtomicUsize::new(0),
            client: Mutex::new(None),
            held: Arc::default(),
        });
        let shutdown = Shutdown::new();
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), false).unwrap();
        let address = listener.address();
        let serving = tokio::spawn({
            let (server, handler) = (Arc::clone(&server), Arc::clone(&handler));
            let shutdown = shutdown.clone();
            async move { server.serve(listener, handler, &shutdown).await.unwrap() }
        });
        Self { address, server, handler, shutdown, serving }
    }

    pub(crate) async fn connect(&self) -> Wire {
        Wire::connect(self.address).await
    }

    /// From another address of this machine.
    pub(crate) async fn connect_from(&self, own: [u8; 4]) -> Wire {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((own, 0).into()).unwrap();
        Wire::over(socket.connect(self.address).await.unwrap())
    }

    /// Lets everything else run until `holds`.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&ServerCounts) -> bool) {
        let wait = async {
            while !holds(&self.server.counts()) {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(GUARD, wait).await.is_err() {
            panic!("never: {what}; {:?}", self.server.counts());
        }
    }

    pub(crate) async fn until_arrived(&self, requests: usize) {
        let arrived = || self.handler.arrived.load(Ordering::Relaxed);
        self.until("requests arrive", |_| arrived() >= requests).await;
    }

    /// Until the handler knows of this many answers that are not sent yet.
    pub(crate) async fn until_held(&self, answers: usize) {
        let held = || self.handler.held.load(Ordering::Relaxed);
        self.until("answers are held", |_| held() == answers).await;
    }

    /// What a handler holds for an answer is dropped when its client has read all of it, or is gone. `ask` asks for
    /// `/endless`, and `read` reads the answer.
    pub(crate) async fn held_until_sent<C>(
        &self,
        mut ask: impl AsyncFnMut() -> C,
        read: impl AsyncFnOnce(&mut C),
    ) {
        let mut reads = ask().await;
        self.until_held(1).await;
        read(&mut reads).await;
        self.until_held(0).await;
        let leaves = ask().await;
        self.until_held(1).await;
        drop(leaves);
        self.until_held(0).await;
    }

    /// Begins the drain and says how it went.
    pub(crate) async fn drained(self) -> Drained {
        self.shutdown.begin();
        tokio::time::timeout(GUARD, self.serving).await.expect("the drain ends").unwrap()
    }
}
