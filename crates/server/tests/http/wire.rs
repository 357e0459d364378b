//! A client that writes bytes as they are told it, and reads HTTP/1.1 answers.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::site::GUARD;

#[derive(Debug)]
pub(crate) struct Wire<S = TcpStream> {
    pub(crate) stream: S,
    unread: Vec<u8>,
}

/// One answer, its body complete.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).next()
    }

    pub(crate) fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        self.head.lines().skip(1).filter_map(move |line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }

    /// Asserts a refusal: this status, and a JSON-RPC error of this code.
    #[track_caller]
    pub(crate) fn is_refusal(&self, status: u16, code: i64) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        let json = self.json();
        assert_eq!(json["jsonrpc"], "2.0");
        assert!(json["id"].is_null());
        assert_eq!(json["error"]["code"], code, "{json}");
    }
}

impl Wire {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self { stream, unread: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// POSTs JSON with more header lines, each ending in CRLF.
    pub(crate) async fn post(&mut self, target: &str, more: &str, body: &[u8]) {
        let head = format!(
            "POST {target} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n{more}\r\n",
            body.len()
        );
        self.send([head.as_bytes(), body].concat()).await;
    }

    pub(crate) async fn exchange(&mut self, target: &str, more: &str, body: &[u8]) -> Reply {
        self.post(target, more, body).await;
        self.reply().await
    }

    /// Sends, and reads one answer.
    pub(crate) async fn ask(&mut self, bytes: &str) -> Reply {
        self.send(bytes).await;
        self.reply().await
    }

    /// The next final answer; `100 Continue` is passed over.
    pub(crate) async fn reply(&mut self) -> Reply {
        loop {
            let reply = self.any_reply(false).await.expect("an answer, not the end");
            if reply.status != 100 {
                return reply;
            }
        }
    }

    /// The answer to a HEAD request.
    pub(crate) async fn reply_to_head(&mut self) -> Reply {
        self.any_reply(true).await.expect("an answer, not the end")
    }

    pub(crate) async fn any_reply(&mut self, to_head: bool) -> Option<Reply> {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if self.more().await == 0 {
                return None;
            }
        };
        let head: Vec<u8> = self.unread.drain(..end).collect();
        let head = String::from_utf8(head).expect("a head is ASCII");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, body: Vec::new() };
        assert_eq!(reply.header("transfer-encoding"), None, "lengths are always known");
        if !to_head {
            let length = reply.header("content-length").map_or(0, |n| n.parse().unwrap());
            while self.unread.len() < length {
                assert!(self.more().await > 0, "the body ended early");
            }
            reply.body = self.unread.drain(..length).collect();
        }
        Some(reply)
    }

    async fn more(&mut self) -> usize {
        let mut room = vec![0; 64 * 1024];
        let read = tokio::time::timeout(GUARD, self.stream.read(&mut room)).await;
        // A reset is an end too.
        let read = read.expect("something to read").unwrap_or(0);
        self.unread.extend_from_slice(&room[..read]);
        read
    }

    /// The next bytes, when so many are there.
    pub(crate) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.unread.len() < count {
            assert!(self.more().await > 0, "the bytes ended early");
        }
        self.unread.drain(..count).collect()
    }

    /// Asserts that the server has closed, with nothing more to read.
    pub(crate) async fn is_closed(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.unread), "");
        assert_eq!(self.more().await, 0, "{}", String::from_utf8_lossy(&self.unread));
    }
}
