//! A client's connection under TLS.
//!
//! rustls' own streams keep a buffer of 4 KiB for each connection, and a list of records that are
//! to be sent. Here the records of all connections of a worker are opened and sealed in buffers of
//! the worker, and a connection keeps only what it has to: the part of a record that came, what is
//! opened and not read yet, what is sealed and not sent yet. While it is idle it keeps none of these.
//!
//! At most 32 KiB that were written wait for the socket, sealed; a writer of more waits.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError,
    UnbufferedStatus, WriteTraffic,
};
use rustls::{Error, InvalidMessage, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The largest record: its header, and content that may exceed 16 KiB by 2 KiB in TLS 1.2 (RFC 5246,
/// section 6.2.3).
const RECORD_BYTES_MAX: usize = 5 + 16 * 1024 + 2048;

/// The longest message of a handshake that rustls accepts. It lies in one piece until it is whole.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Content that is sealed at once: two records.
const SEALED_BYTES_MAX: usize = 32 * 1024;

/// What the connections of one worker open and seal records in.
struct RecordBuffers {
    incoming: Box<[u8]>,
    outgoing: OutgoingBuffers,
}

#[derive(Default)]
struct OutgoingBuffers {
    /// Pieces that are sealed together.
    content: Vec<u8>,
    /// The sealed records.
    sealed: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<RecordBuffers> = RefCell::new(RecordBuffers {
        incoming: vec![0; MESSAGE_BYTES_MAX + RECORD_BYTES_MAX].into_boxed_slice(),
        outgoing: OutgoingBuffers::default(),
    });
}

/// A connection that may send.
type TlsSender<'a> = WriteTraffic<'a, ServerConnectionData>;

/// A client's connection under TLS. Reading fails with [`io::ErrorKind::UnexpectedEof`] if the client
/// ends the connection without saying so: what came before may have been cut.
pub(crate) struct TlsStream<S> {
    socket: S,
    session: UnbufferedServerConnection,
    /// The beginning of a record, or of a message of a handshake, that has not come whole.
    partial: Vec<u8>,
    /// Opened, and not read yet.
    content: HeldBytes,
    /// Sealed, and not sent yet.
    unsent: HeldBytes,
    /// The client has said that it sends no more.
    is_ended: bool,
    /// The client was told that it is sent no more.
    is_closed: bool,
}

/// Bytes that are taken from their front. Once all are taken they occupy no memory.
#[derive(Default)]
struct HeldBytes {
    bytes: Vec<u8>,
    taken: usize,
}

impl HeldBytes {
    fn bytes(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    fn add(&mut self, more: &[u8]) {
        self.bytes.extend_from_slice(more);
    }

    fn take(&mut self, count: usize) {
        self.taken += count;
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// Shakes hands with a client that has sent `received` so far. An error of rustls is inside that of
    /// `io`; the client was told of it, if the socket took that at once.
    pub(crate) async fn accept(
        config: Arc<ServerConfig>,
        socket: S,
        mut received: Vec<u8>,
    ) -> io::Result<Self> {
        let session = UnbufferedServerConnection::new(config).map_err(failed)?;
        let mut stream = Self {
            socket,
            session,
            partial: Vec::new(),
            content: HeldBytes::default(),
            unsent: HeldBytes::default(),
            is_ended: false,
            is_closed: false,
        };
        let mut opened = stream.open(&mut received, 0, &mut ReadBuf::new(&mut []));
        loop {
            let sent = poll_fn(|cx| match stream.poll_send(cx) {
                // An alert that the socket does not take at once is lost.
                Poll::Pending if opened.is_err() => Poll::Ready(Ok(())),
                sent => sent,
            });
            let sent = sent.await;
            opened?;
            sent?;
            if !stream.session.is_handshaking() {
                return Ok(stream);
            }
            opened = poll_fn(|cx| stream.poll_receive(cx, &mut ReadBuf::new(&mut []))).await;
        }
    }

    /// What was agreed with the client.
    pub(crate) fn session(&self) -> &UnbufferedServerConnection {
        &self.session
    }

    /// What is underneath.
    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    /// Reads once what the socket has, and opens all records that are whole. Their content goes to
    /// `into`, and what has no room there, about a record at most, to `content`.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        BUFFERS.with_borrow_mut(|buffers| {
            let incoming = &mut buffers.incoming;
            let kept = self.partial.len();
            let most = RECORD_BYTES_MAX.max(into.remaining()).min(incoming.len() - kept);
            let mut room = ReadBuf::new(&mut incoming[kept..kept + most]);
            if room.remaining() == 0 {
                // Never without a defect of rustls, which refuses what is longer.
                return Poll::Ready(Err(failed(InvalidMessage::MessageTooLarge.into())));
            }
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut room))?;
            let end = kept + room.filled().len();
            if end == kept {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            incoming[..kept].copy_from_slice(&self.partial);
            Poll::Ready(self.open(&mut incoming[..end], kept, into))
        })
    }

    /// Opens the records of `incoming`, of which the first `kept` bytes are those of `partial`, and keeps
    /// what is left.
    fn open(&mut self, incoming: &mut [u8], kept: usize, into: &mut ReadBuf<'_>) -> io::Result<()> {
        let used = self.advance(incoming, into, |_| Ok(()))?;
        if used == 0 {
            self.partial.extend_from_slice(&incoming[kept..]);
        } else {
            self.partial = incoming[used..].to_vec();
        }
        Ok(())
    }

    /// Goes on with the session until it needs more than `incoming`, and lets `send` seal something if it
    /// may send. Returns how many bytes of `incoming` were used up.
    fn advance(
        &mut self,
        incoming: &mut [u8],
        into: &mut ReadBuf<'_>,
        send: impl FnOnce(&mut TlsSender<'_>) -> Result<(), EncryptError>,
    ) -> io::Result<usize> {
        let mut used = 0;
        loop {
            let UnbufferedStatus { discard, state } =
                self.session.process_tls_records(&mut incoming[used..]);
            used += discard;
            match state {
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, &mut self.unsent),
                // It is in `unsent`, from where each byte is sent once.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(failed)?;
                        let fits = record.payload.len().min(into.remaining());
                        let (now, later) = record.payload.split_at(fits);
                        into.put_slice(now);
                        self.content.add(later);
                        used += record.discard;
                    }
                }
                Ok(ConnectionState::PeerClosed) => self.is_ended = true,
                Ok(ConnectionState::WriteTraffic(mut sender)) => {
                    send(&mut sender).map_err(io::Error::other)?;
                    return Ok(used);
                }
                Ok(ConnectionState::BlockedHandshake | ConnectionState::Closed) => return Ok(used),
                // Early data is off.
                Ok(_) => return Err(failed(Error::General("early data".to_owned()))),
                Err(error) => {
                    self.seal_alert();
                    return Err(failed(error));
                }
            }
        }
    }

    /// Takes the alert that tells the client of a failure.
    fn seal_alert(&mut self) {
        while self.session.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(data)) =
                self.session.process_tls_records(&mut []).state
        {
            encode(data, &mut self.unsent);
        }
    }

    /// Sends what is sealed.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let sent = ready!(Pin::new(&mut self.socket).poll_write(cx, self.unsent.bytes()))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.take(sent);
        }
        Poll::Ready(Ok(()))
    }

    /// Seals as much of `pieces` as is sealed at once, and sends what the socket takes of it. Returns the
    /// length of what was sealed.
    fn seal(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
        buffers: &mut OutgoingBuffers,
    ) -> io::Result<usize> {
        let OutgoingBuffers { content, sealed } = buffers;
        let content = gather(pieces, content);
        let mut partial = std::mem::take(&mut self.partial);
        let mut sealed_bytes = None;
        let advanced = self.advance(&mut partial, &mut ReadBuf::new(&mut []), |sender| {
            sealed_bytes = Some(fill(sealed, |room| sender.encrypt(content, room))?);
            Ok(())
        });
        partial.drain(..advanced?);
        self.partial = partial;
        let Some(sealed_bytes) = sealed_bytes else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut sealed = &sealed[..sealed_bytes];
        // What the session itself had to say comes first.
        while self.unsent.is_empty() && !sealed.is_empty() {
            match Pin::new(&mut self.socket).poll_write(cx, sealed) {
                Poll::Ready(Ok(sent)) if sent > 0 => sealed = &sealed[sent..],
                Poll::Ready(Ok(_)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        self.unsent.add(sealed);
        Ok(content.len())
    }
}

fn failed(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn encode(mut data: EncodeTlsData<'_, ServerConnectionData>, unsent: &mut HeldBytes) {
    let start = unsent.bytes.len();
    let encoded = match data.encode(&mut []) {
        Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
            unsent.bytes.resize(start + required_size, 0);
            data.encode(&mut unsent.bytes[start..])
        }
        encoded => encoded,
    };
    // What is left over if a library breaks its word is not sent.
    unsent.bytes.truncate(start + encoded.unwrap_or(0));
}

/// Has `seal` write into `room`, which grows to what it asks for. Returns how much it wrote.
fn fill(
    room: &mut Vec<u8>,
    mut seal: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<usize, EncryptError> {
    match seal(room) {
        Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size })) => {
            room.resize(required_size, 0);
            seal(room)
        }
        sealed => sealed,
    }
}

/// The beginning of `pieces`, as long as is sealed at once: the only piece itself, or a copy in `room`.
fn gather<'a>(pieces: &'a [IoSlice<'_>], room: &'a mut Vec<u8>) -> &'a [u8] {
    let mut filled = pieces.iter().filter(|piece| !piece.is_empty());
    let first: &[u8] = filled.next().map_or(&[], |piece| piece);
    if first.len() >= SEALED_BYTES_MAX || filled.next().is_none() {
        return &first[..first.len().min(SEALED_BYTES_MAX)];
    }
    room.clear();
    for piece in pieces {
        let left = SEALED_BYTES_MAX - room.len();
        room.extend_from_slice(&piece[..piece.len().min(left)]);
    }
    room
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = into.filled().len();
        while into.remaining() > 0 {
            if !this.content.is_empty() {
                let now = this.content.bytes().len().min(into.remaining());
                into.put_slice(&this.content.bytes()[..now]);
                this.content.take(now);
            }
            if into.filled().len() > before || this.is_ended {
                break;
            }
            let received = this.poll_receive(cx, into);
            // Answers to the client's changes of keys, and alerts; writing sends what is left of them.
            let _ = this.poll_send(cx);
            ready!(received)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        piece: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(piece)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        if pieces.iter().all(|piece| piece.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        Poll::Ready(BUFFERS.with_borrow_mut(|it| self.seal(cx, pieces, &mut it.outgoing)))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    /// Tells the client that this was all, and ends the connection underneath.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.is_closed {
            this.is_closed = true;
            let mut notice = Vec::new();
            let mut partial = std::mem::take(&mut this.partial);
            let advanced = this.advance(&mut partial, &mut ReadBuf::new(&mut []), |sender| {
                fill(&mut notice, |room| sender.queue_close_notify(room)).map(drop)
            });
            partial.drain(..advanced?);
            this.partial = partial;
            this.unsent.add(&notice);
        }
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::crypto::aws_lc_rs;
    use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};
    use rustls_pki_types::PrivateKeyDer;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex, split};
    use tokio_rustls::TlsConnector;

    use super::*;

    type Client = tokio_rustls::client::TlsStream<DuplexStream>;

    /// Both ends of a connection through a pipe that holds `room` bytes.
    async fn connected(
        version: &'static SupportedProtocolVersion,
        room: usize,
    ) -> (Client, TlsStream<DuplexStream>) {
        let (client, server) = duplex(room);
        tokio::join!(connect(version, client), accept(server))
    }

    async fn accept(socket: DuplexStream) -> TlsStream<DuplexStream> {
        let config = CONFIG.with(Clone::clone).0;
        TlsStream::accept(config, socket, Vec::new()).await.expect("a server")
    }

    async fn connect(version: &'static SupportedProtocolVersion, socket: DuplexStream) -> Client {
        let roots = CONFIG.with(Clone::clone).1;
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, socket).await.expect("a client")
    }

    thread_local! {
        static CONFIG: (Arc<ServerConfig>, RootCertStore) = {
            let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
            let made = made.expect("a certificate");
            let mut roots = RootCertStore::empty();
            roots.add(made.cert.der().clone()).expect("an authority");
            let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
            let builder =
                ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
            let mut config = builder
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], key)
                .expect("a config");
            config.ticketer = aws_lc_rs::Ticketer::new().expect("tickets");
            (Arc::new(config), roots)
        };
    }

    impl<S> TlsStream<S> {
        fn kept_bytes(&self) -> usize {
            self.partial.capacity() + self.content.bytes.capacity() + self.unsent.bytes.capacity()
        }
    }

    fn text(length: usize, seed: u8) -> Vec<u8> {
        (0..length).map(|index| (index % 251) as u8 ^ seed).collect()
    }

    const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS12, &version::TLS13];

    /// Whatever pieces records come in, and however slowly the client takes its own.
    #[tokio::test]
    async fn both_directions_carry_what_was_written() {
        for version in VERSIONS {
            // A client of rustls reads on when its change of ciphers is sent, 6 bytes.
            for room in [7, 4_000, 200_000] {
                let (client, server) = duplex(room);
                let (asked, told) = (text(300_000, 0), text(300_000, 1));
                let calls = async {
                    let (mut reads, mut writes) = split(connect(version, client).await);
                    let write = async {
                        writes.write_all(&asked).await.expect("written");
                        writes.flush().await.expect("flushed");
                    };
                    let mut heard = vec![0; told.len()];
                    tokio::join!(write, reads.read_exact(&mut heard)).1.expect("read");
                    assert_eq!(heard, told, "{version:?} {room}");
                };
                let answers = async {
                    let (mut reads, mut writes) = split(accept(server).await);
                    let write = async {
                        let mut left = &told[..];
                        while !left.is_empty() {
                            // Pieces as of a head and a body.
                            let (head, body) = left.split_at(left.len().min(300));
                            let pieces = [head, &[], body].map(IoSlice::new);
                            let sent = writes.write_vectored(&pieces).await.expect("written");
                            assert!(sent <= SEALED_BYTES_MAX);
                            left = &left[sent..];
                        }
                        writes.flush().await.expect("flushed");
                    };
                    let mut heard = vec![0; asked.len()];
                    tokio::join!(write, reads.read_exact(&mut heard)).1.expect("read");
                    assert_eq!(heard, asked, "{version:?} {room}");
                    let idle = reads.unsplit(writes);
                    assert_eq!(idle.kept_bytes(), 0, "{version:?} {room}");
                };
                tokio::join!(calls, answers);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_read_is_kept_and_what_is_not_taken_makes_the_writer_wait() {
        let (mut client, mut server) = connected(&version::TLS13, 400_000).await;
        client.write_all(&text(10_000, 3)).await.expect("written");
        let mut heard = Vec::new();
        let mut piece = [0; 24];
        while heard.len() < 10_000 {
            let count = server.read(&mut piece).await.expect("read");
            heard.extend_from_slice(&piece[..count]);
            assert!(server.kept_bytes() <= 2 * RECORD_BYTES_MAX, "{}", server.kept_bytes());
        }
        assert_eq!(heard, text(10_000, 3));

        let (_client, mut server) = connected(&version::TLS13, 1_000).await;
        let endless = text(10 << 20, 4);
        let written = server.write_all(&endless);
        assert!(tokio::time::timeout(Duration::from_millis(1), written).await.is_err());
        assert!(server.kept_bytes() <= 2 * SEALED_BYTES_MAX, "{}", server.kept_bytes());
    }

    #[tokio::test]
    async fn keys_change_when_the_client_asks() {
        let (mut client, mut server) = connected(&version::TLS13, 100_000).await;
        for round in 0..3 {
            client.get_mut().1.refresh_traffic_keys().expect("new keys");
            client.write_all(&text(100, round)).await.expect("written");
            let mut heard = vec![0; 100];
            server.read_exact(&mut heard).await.expect("read");
            assert_eq!(heard, text(100, round));
            // The session answers with new keys of its own, which come before this.
            server.write_all(&text(50, round)).await.expect("written");
            client.read_exact(&mut heard[..50]).await.expect("read");
            assert_eq!(heard[..50], text(50, round));
        }
    }

    #[tokio::test]
    async fn an_end_is_told_from_a_cut() {
        for version in VERSIONS {
            let (mut client, mut server) = connected(version, 100_000).await;
            client.write_all(b"last").await.expect("written");
            client.shutdown().await.expect("ended");
            let mut heard = Vec::new();
            server.read_to_end(&mut heard).await.expect("an end");
            assert_eq!(heard, b"last");
            // The other half is still open.
            server.write_all(b"answer").await.expect("written");
            server.shutdown().await.expect("ended");
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).await.expect("an end");
            assert_eq!(heard, b"answer");
            assert!(server.write_all(b"more").await.is_err());

            let (client, mut server) = connected(version, 100_000).await;
            drop(client);
            let error = server.read(&mut [0; 10]).await.expect_err("a cut");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    fn cause(error: &io::Error) -> &Error {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        inner.expect("an error of rustls")
    }

    /// The type and length of the alert, without which a client does not learn what it did.
    const ALERT: [u8; 5] = [21, 3, 3, 0, 2];

    #[tokio::test]
    async fn a_client_is_told_what_it_did_wrong() {
        let (mut client, server) = duplex(1_000);
        client.write_all(b"POST / HTTP/1.1\r\n\r\n").await.expect("written");
        let config = CONFIG.with(Clone::clone).0;
        let refused = TlsStream::accept(config, server, Vec::new()).await;
        let error = refused.err().expect("no TLS");
        let expected = Error::InvalidMessage(InvalidMessage::InvalidContentType);
        assert_eq!(cause(&error), &expected);
        let mut alert = Vec::new();
        client.read_to_end(&mut alert).await.expect("read");
        assert_eq!(alert.get(..5), Some(&ALERT[..]), "{alert:?}");

        // A record that was changed on its way.
        let (client, mut server) = connected(&version::TLS13, 1_000).await;
        let (mut socket, _) = client.into_inner();
        socket.write_all(&[23, 3, 3, 0, 20]).await.expect("written");
        socket.write_all(&[7; 20]).await.expect("written");
        let error = server.read(&mut [0; 10]).await.expect_err("garbled");
        assert_eq!(cause(&error), &Error::DecryptError);
        drop(server);
        let mut alert = Vec::new();
        socket.read_to_end(&mut alert).await.expect("read");
        // Tickets come before it.
        assert!(alert.len() > 20 && alert[alert.len() - 24..][..3] == [23, 3, 3], "{alert:?}");
    }

    #[tokio::test]
    async fn a_client_that_leaves_in_the_handshake_has_left() {
        let (client, server) = duplex(1_000);
        drop(client);
        let config = CONFIG.with(Clone::clone).0;
        let left = TlsStream::accept(config, server, Vec::new()).await.err().expect("left");
        assert_eq!(left.kind(), io::ErrorKind::UnexpectedEof);
        assert!(left.get_ref().is_none());
    }
}
