//! A relay of bytes before a server, which may be late, silent or closed.
//!
//! It knows nothing of what it passes on. Connections that are open feel a change at once, as they do when a
//! network fails.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// How the relay treats its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayMode {
    /// Bytes pass this much later, in each direction.
    Late(Duration),
    /// Bytes are held until the mode changes; connections stay open, and new ones are accepted.
    Silent,
    /// Connections close, also those that are made from now on.
    Closed,
}

/// A running relay; dropping it ends it.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    mode: watch::Sender<RelayMode>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// Starts one before the server at this port of the loopback.
    pub async fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a port");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let mode = watch::Sender::new(RelayMode::Late(Duration::ZERO));
        let accepting = tokio::spawn(accept(listener, server, mode.subscribe()));
        Self { port, mode, accepting }
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on the mode is this one.
    pub fn set(&self, mode: RelayMode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: u16, mode: watch::Receiver<RelayMode>) {
    // Dropping the set ends the connections with the relay.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(relay(client, server, mode.clone()));
    }
}

/// One connection. Both ends close when one does.
async fn relay(client: TcpStream, server: u16, mut mode: watch::Receiver<RelayMode>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    let _best_effort = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let (up, down) = (mode.clone(), mode.clone());
    tokio::select! {
        () = pass(from_client, to_server, up) => {}
        () = pass(from_server, to_client, down) => {}
        _closed = mode.wait_for(|mode| *mode == RelayMode::Closed) => {}
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<RelayMode>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let Ok(mode) = mode.wait_for(|mode| *mode != RelayMode::Silent).await.map(|mode| *mode)
        else {
            return;
        };
        if let RelayMode::Late(late) = mode
            && !late.is_zero()
        {
            sleep(late).await;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
