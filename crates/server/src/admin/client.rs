//! The other side of the admin listener: one request, for the commands that ask a running wellhead.
//!
//! Plain HTTP on a connection of its own, which is closed after the answer, and blocking: a command has nothing
//! else to do meanwhile.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// No answer is longer: the status of some thousand upstreams.
const ANSWER_MAX: u64 = 64 << 20;

/// Where an admin listener is.
#[derive(Debug, Clone, Copy)]
pub enum AdminPlace<'a> {
    /// At this address.
    Address(SocketAddr),
    /// At this socket file.
    File(&'a Path),
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct AdminRequest<'a> {
    /// `GET`, or one that changes something.
    pub method: &'static str,
    /// Path and query.
    pub target: &'a str,
    /// JSON; empty where there is none.
    pub body: &'a str,
    /// A token, if one is at hand.
    pub token: Option<&'a str>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The whole body.
    pub body: String,
}

/// Asks, and waits for each step at most as long as `patience`.
///
/// # Errors
///
/// In words, if there is no answer, or none in HTTP.
pub fn ask_admin(
    place: AdminPlace<'_>,
    request: AdminRequest<'_>,
    patience: Duration,
) -> Result<AdminAnswer, String> {
    let words = |error: io::Error| error.to_string();
    match place {
        AdminPlace::Address(address) => {
            let stream = TcpStream::connect_timeout(&address, patience).map_err(words)?;
            stream.set_read_timeout(Some(patience)).map_err(words)?;
            stream.set_write_timeout(Some(patience)).map_err(words)?;
            exchange(stream, &address.to_string(), request)
        }
        AdminPlace::File(path) => {
            let stream = UnixStream::connect(path).map_err(words)?;
            stream.set_read_timeout(Some(patience)).map_err(words)?;
            stream.set_write_timeout(Some(patience)).map_err(words)?;
            exchange(stream, "localhost", request)
        }
    }
}

fn exchange(
    mut stream: impl Read + Write,
    host: &str,
    AdminRequest { method, target, body, token }: AdminRequest<'_>,
) -> Result<AdminAnswer, String> {
    let words = |error: io::Error| error.to_string();
    let token = match token {
        // As a header it would be another request.
        Some(token) if token.contains(char::is_control) => {
            return Err("the token holds a control character".to_owned());
        }
        Some(token) => format!("authorization: Bearer {token}\r\n"),
        None => String::new(),
    };
    // What changes something has to show that no web page sent it.
    let intent = match method {
        "GET" => String::new(),
        _ => format!("x-wellhead-admin: 1\r\ncontent-length: {}\r\n", body.len()),
    };
    let request = format!(
        "{method} {target} HTTP/1.1\r\nhost: {host}\r\n{token}{intent}connection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).map_err(words)?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer).map_err(words)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("it does not speak HTTP")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or("it does not speak HTTP")?;
    Ok(AdminAnswer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Keeps what is written, and has its answer ready.
    struct Scripted {
        written: Vec<u8>,
        answer: Cursor<&'static [u8]>,
    }

    impl Read for Scripted {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.answer.read(into)
        }
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn check(
        request: AdminRequest<'_>,
        answer: &'static str,
    ) -> (String, Result<AdminAnswer, String>) {
        let mut stream = Scripted { written: Vec::new(), answer: Cursor::new(answer.as_bytes()) };
        let answered = exchange(&mut stream, "host", request);
        (String::from_utf8(stream.written).expect("text"), answered)
    }

    #[test]
    fn requests_are_written_and_answers_read() {
        let get = AdminRequest { method: "GET", target: "/log", body: "", token: Some("token") };
        let ok = "HTTP/1.1 200 OK\r\na: b\r\n\r\n{}";
        let (sent, answer) = check(get, ok);
        assert_eq!(
            sent,
            "GET /log HTTP/1.1\r\nhost: host\r\nauthorization: Bearer token\r\nconnection: close\r\n\r\n"
        );
        assert_eq!(answer, Ok(AdminAnswer { status: 200, body: "{}".to_owned() }));
        let put = AdminRequest { method: "PUT", body: "{}", ..get };
        let (sent, _) = check(put, ok);
        assert!(sent.contains("\r\nx-wellhead-admin: 1\r\ncontent-length: 2\r\n"), "{sent}");
        assert!(sent.ends_with("\r\n\r\n{}"), "{sent}");
        let (_, answer) = check(put, "SSH-2.0");
        assert_eq!(answer, Err("it does not speak HTTP".to_owned()));
    }
}
