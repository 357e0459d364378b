//! A small blocking HTTP/1.1 client that counts its answers' bytes.
//!
//! For what wrk cannot do. It keeps nothing of a body but its length.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};

use wellhead_e2e::Certificate;

/// No answer keeps a turn waiting longer.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// A head with a longer line is no answer of ours.
const LINE_BYTES_MAX: u64 = 8 * 1024;
const HEADER_LINES_MAX: usize = 100;

/// Hex digits of the number that makes a call another one.
pub(crate) const NUMBER_DIGITS: usize = 16;
/// Those that the calls of one run have in common.
const RUN_DIGITS: usize = 6;

/// The first digits of the numbers of a run of calls: no two runs have the same, so that no call
/// repeats one of an earlier run.
pub(crate) fn run_digits() -> String {
    static RUNS: AtomicU32 = AtomicU32::new(1);
    format!("{:0RUN_DIGITS$x}", RUNS.fetch_add(1, Ordering::Relaxed))
}

/// A request as it goes over the wire.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) body: String,
    /// Where in the body the [`NUMBER_DIGITS`] stand that differ from call to call.
    pub(crate) number_at: Option<usize>,
    /// What the bare upstream's answer measures: an answer that is shorter has
    /// lost something, and one of an error is.
    pub(crate) answer_bytes: u64,
}

impl Request {
    /// One that is sent as it is, and whose answer is not known.
    pub(crate) fn alike(body: String) -> Self {
        Self { body, number_at: None, answer_bytes: 0 }
    }

    /// Asks the upstream once, to know the answer.
    pub(crate) fn new(body: String, number_at: Option<usize>, upstream: u16) -> io::Result<Self> {
        let mut request = Self { body, number_at, answer_bytes: 0 };
        request.answer_bytes = Client::connect(upstream, 64 * 1024)?.exchange(&request)?;
        Ok(request)
    }

    fn head(&self) -> String {
        format!(
            "POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            self.body.len(),
        )
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<Stream>,
    out: Vec<u8>,
    /// Of the body that is read, where it is to be looked at.
    kept: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl io::Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(room),
            Self::Tls(stream) => stream.read(room),
        }
    }
}

impl io::Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl Client {
    /// Connects to a port of the loopback.
    pub(crate) fn connect(port: u16, buffer_bytes: usize) -> io::Result<Self> {
        Self::connect_to(port, None, buffer_bytes)
    }

    /// Connects, with TLS if there is a certificate to trust.
    pub(crate) fn connect_to(
        port: u16,
        trusted: Option<&Certificate>,
        buffer_bytes: usize,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let stream = match trusted {
            None => Stream::Plain(stream),
            Some(certificate) => {
                let session = certificate.connection().map_err(io::Error::other)?;
                Stream::Tls(Box::new(StreamOwned::new(session, stream)))
            }
        };
        Ok(Self {
            stream: BufReader::with_capacity(buffer_bytes, stream),
            out: Vec::new(),
            kept: None,
        })
    }

    /// Asks, and fails when the answer is not of the length that it should be.
    pub(crate) fn call(&mut self, request: &Request) -> io::Result<()> {
        let bytes = self.exchange(request)?;
        if bytes == request.answer_bytes {
            return Ok(());
        }
        let expected = request.answer_bytes;
        Err(io::Error::other(format!("{bytes} bytes of an answer of {expected}")))
    }

    /// As [`Client::call`], with the number of this call of a run where calls differ.
    pub(crate) fn call_numbered(
        &mut self,
        request: &Request,
        run_digits: &str,
        call: u32,
    ) -> io::Result<()> {
        if let Some(number_at) = request.number_at {
            let digits = format!("{run_digits}{call:0width$x}", width = NUMBER_DIGITS - RUN_DIGITS);
            let at = self.written(request).len() - request.body.len() + number_at;
            self.out[at..at + NUMBER_DIGITS].copy_from_slice(digits.as_bytes());
        }
        self.call(request)
    }

    /// Asks for something else than before, and gives the answer's body.
    pub(crate) fn answer(&mut self, body: &str) -> io::Result<Vec<u8>> {
        self.out.clear();
        self.kept = Some(Vec::new());
        let told = self.exchange(&Request::alike(body.to_owned()));
        let kept = self.kept.take().unwrap_or_default();
        told.map(|_| kept)
    }

    /// Asks, and gives the length of the answer's body. All calls of one client that end here
    /// are the same, but for their numbers.
    pub(crate) fn exchange(&mut self, request: &Request) -> io::Result<u64> {
        self.written(request);
        self.stream.get_mut().write_all(&self.out)?;
        self.stream.get_mut().flush()?;
        let status = self.line()?;
        if status.split(' ').nth(1) != Some("200") {
            return Err(io::Error::other(format!("answered `{}`", status.trim_end())));
        }
        let mut length = None;
        for _ in 0..HEADER_LINES_MAX {
            let line = self.line()?.to_ascii_lowercase();
            match line.trim_end().split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse::<u64>().ok(),
                Some(_) => {}
                None => {
                    return match length {
                        Some(length) => self.skip(length),
                        None => self.chunks(),
                    };
                }
            }
        }
        Err(io::Error::other("a head without end"))
    }

    /// What is sent: written once.
    fn written(&mut self, request: &Request) -> &[u8] {
        if self.out.is_empty() {
            self.out = [request.head().as_bytes(), request.body.as_bytes()].concat();
        }
        &self.out
    }

    /// A body in chunks, as it is the only other way that keeps a connection.
    fn chunks(&mut self) -> io::Result<u64> {
        let mut total = 0;
        loop {
            let line = self.line()?;
            let bytes = u64::from_str_radix(line.trim_end(), 16).map_err(io::Error::other)?;
            total += self.skip(bytes)?;
            let after = self.line()?;
            if after.trim_end() != "" {
                return Err(io::Error::other("a chunk is longer than it says"));
            }
            if bytes == 0 {
                return Ok(total);
            }
        }
    }

    fn skip(&mut self, bytes: u64) -> io::Result<u64> {
        let mut missing = bytes;
        while missing > 0 {
            let got = self.stream.fill_buf()?;
            if got.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let taken = got.len().min(usize::try_from(missing).unwrap_or(usize::MAX));
            if let Some(kept) = &mut self.kept {
                kept.extend_from_slice(&got[..taken]);
            }
            self.stream.consume(taken);
            missing -= taken as u64;
        }
        Ok(bytes)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
        if line.ends_with('\n') { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}
