//! A forward proxy between wellhead and an endpoint: its address, and the tunnel through it
//! (CONNECT, RFC 9110, section 9.3.6).
//!
//! `https`, `ws` and `wss` go through a tunnel. Plain `http` is sent to the proxy itself with the
//! whole URL in the request line (RFC 9112, section 3.2.2): many proxies allow tunnels to port 443
//! alone.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wellhead_telemetry::{Secret, SecretUrl};
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

use crate::credential::basic_of;
use crate::endpoint_error::EndpointError;

/// The port of a proxy whose URL has none: that of its scheme.
const DEFAULT_PORT: u16 = 80;
/// Bytes of the head of a proxy's answer: more is no proxy.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// An HTTP proxy that connections are opened through. Prints no credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardProxy {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The value of `proxy-authorization`, where the URL has user info.
    pub(crate) authorization: Option<Secret>,
}

impl ForwardProxy {
    /// The proxy at this URL, whose user info becomes basic auth.
    ///
    /// # Errors
    ///
    /// Unless the scheme is `http` and the URL has neither path nor query.
    pub fn new(proxy: &SecretUrl) -> Result<Self, EndpointError> {
        let url = proxy.expose();
        if url.scheme() != "http" {
            return Err(EndpointError::Scheme(url.scheme().to_owned(), "http"));
        }
        if !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err(EndpointError::Path);
        }
        let host = url.host_str().ok_or(EndpointError::Host)?;
        let authorization = basic_of(proxy)?.map(|value| Secret::new(value.as_str()));
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(DEFAULT_PORT),
            authorization,
        })
    }

    /// What the proxy is sent as credentials, so that it can be kept out of records.
    pub fn credentials(&self) -> Option<&Secret> {
        self.authorization.as_ref()
    }

    /// Asks for a tunnel to `authority` over `tcp`, a fresh connection to the proxy.
    pub(crate) async fn open(
        &self,
        mut tcp: TcpStream,
        authority: &str,
    ) -> Result<TcpStream, TransportError> {
        let mut request = format!("CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n");
        if let Some(value) = &self.authorization {
            request.push_str(&format!("proxy-authorization: {}\r\n", value.expose()));
        }
        request.push_str("\r\n");
        let status = status_of(&mut tcp, request.as_bytes()).await.map_err(|error| {
            TransportError::new(TransportErrorKind::Connect, Sent::No, format!("proxy: {error}"))
        })?;
        if (200..300).contains(&status) {
            return Ok(tcp);
        }
        let detail = format!("the proxy refused the tunnel with status {status}");
        Err(TransportError::new(TransportErrorKind::Connect, Sent::No, detail))
    }
}

/// Sends the request and reads the head of the answer. Not a byte more: the next one belongs to
/// the endpoint.
async fn status_of(tcp: &mut TcpStream, request: &[u8]) -> io::Result<u16> {
    tcp.write_all(request).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEAD_BYTES_MAX {
            return Err(io::Error::other("the head of its answer is too long"));
        }
        head.push(tcp.read_u8().await?);
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let status = std::str::from_utf8(line).ok().and_then(|line| {
        let mut words = line.split(' ');
        words.next().filter(|version| version.starts_with("HTTP/1."))?;
        words.next()?.parse().ok()
    });
    status.ok_or_else(|| io::Error::other("its answer is not HTTP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<(String, u16, bool), EndpointError> {
        let proxy = ForwardProxy::new(&SecretUrl::parse(url).expect("a URL"))?;
        Ok((proxy.host, proxy.port, proxy.authorization.is_some()))
    }

    #[test]
    fn a_proxy_is_a_host_and_a_port() {
        let at = |host: &str, port, auth| Ok((host.to_owned(), port, auth));
        assert_eq!(parsed("http://proxy.example:3128"), at("proxy.example", 3128, false));
        assert_eq!(parsed("http://proxy.example"), at("proxy.example", DEFAULT_PORT, false));
        assert_eq!(parsed("http://me:PASS@[::1]:8080/"), at("::1", 8080, true));
        assert_eq!(
            parsed("https://proxy.example"),
            Err(EndpointError::Scheme("https".into(), "http"))
        );
        assert_eq!(parsed("http://proxy.example/path"), Err(EndpointError::Path));
        let url = SecretUrl::parse("http://me:PASSKEY@proxy.example").expect("a URL");
        let shown = format!("{:?}", ForwardProxy::new(&url));
        assert!(shown.contains("proxy.example") && !shown.contains("PASSKEY"), "{shown}");
    }
}
