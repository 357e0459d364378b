//! A relay before a server that keeps every byte that it was sent.
//!
//! Bytes are passed on as they come, in both directions, so the server and its client see each other alone. What
//! was sent over TLS or HTTP/2 is kept as it was sent, and says little.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::secrets::look_for_secrets;

/// Bytes that are kept. More are passed on, and [`Tap::sent`] says that they are missing by a panic.
const BYTES_MAX: usize = 64 << 20;

/// A running relay; dropping it ends it.
#[derive(Debug)]
pub struct Tap {
    port: u16,
    sent: Arc<Mutex<Vec<u8>>>,
    accepting: JoinHandle<()>,
}

impl Tap {
    /// Starts one before the server at this port of the loopback.
    pub async fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a port");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let sent = Arc::<Mutex<Vec<u8>>>::default();
        let accepting = tokio::spawn(accept(listener, server, Arc::clone(&sent)));
        Self { port, sent, accepting }
    }

    /// Where it listens, as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// All that was sent to the server so far, over all connections.
    ///
    /// # Panics
    /// When it was more than is kept.
    #[must_use]
    pub fn sent(&self) -> Vec<u8> {
        let sent = self.sent.lock().expect("no holder of this lock panics");
        assert!(sent.len() < BYTES_MAX, "more was sent than is kept");
        sent.clone()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.accepting.abort();
        look_for_secrets("what a server was sent", &self.sent.lock().expect("no holder panics"));
    }
}

async fn accept(listener: TcpListener, server: u16, sent: Arc<Mutex<Vec<u8>>>) {
    // Dropping the set ends the connections with the relay.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(relay(client, server, Arc::clone(&sent)));
    }
}

/// One connection, to its end.
async fn relay(client: TcpStream, server: u16, sent: Arc<Mutex<Vec<u8>>>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    let _best_effort = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = async {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let read = from_client.read(&mut buffer).await.unwrap_or(0);
            if read == 0 || to_server.write_all(&buffer[..read]).await.is_err() {
                break;
            }
            let mut sent = sent.lock().expect("no holder of this lock panics");
            if sent.len() < BYTES_MAX {
                sent.extend_from_slice(&buffer[..read]);
            }
        }
        let _closed_already = to_server.shutdown().await;
    };
    let down = async {
        let _either_side_closed = tokio::io::copy(&mut from_server, &mut to_client).await;
        let _closed_already = to_client.shutdown().await;
    };
    tokio::join!(up, down);
}
