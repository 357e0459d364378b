//! Where an upstream is and what every request to it carries.
//!
//! [`Endpoint`] is as written by a person; [`Prepared`] is as meant: checked
//! once and turned into ready-made request parts, so that an exchange parses
//! nothing. Neither can print a path, a query, a header value or a credential.

use std::fmt;

use ::http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use ::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use rustls_pki_types::ServerName;
use wellhead_telemetry::{Secret, SecretUrl};
use zeroize::Zeroizing;

use crate::credential::{basic, basic_of};
pub use crate::endpoint_error::EndpointError;
use crate::hpack::Blocks;
use crate::tunnel::ForwardProxy;

const AGENT: &str = concat!("wellhead/", env!("CARGO_PKG_VERSION"));

/// One upstream's address, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Where to send to: `http`, `https`, `ws` or `wss`. User info in it becomes
    /// basic auth, unless `auth` says otherwise.
    pub url: SecretUrl,
    /// Headers sent with every request, over our own ones of the same name.
    pub headers: Vec<(String, Secret)>,
    /// The credentials of wellhead.
    pub auth: Auth,
    /// Which HTTP to speak.
    pub version: HttpVersion,
    /// The proxy to go through; over plain `http` it speaks HTTP/1.1.
    pub proxy: Option<ForwardProxy>,
}

impl Endpoint {
    /// An endpoint without extra headers, whose protocol is found out.
    pub fn new(url: SecretUrl) -> Self {
        let (auth, version) = (Auth::Url, HttpVersion::Auto);
        Self { url, headers: Vec::new(), auth, version, proxy: None }
    }
}

/// The credentials of wellhead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Auth {
    /// With the user info of the URL as basic auth, if there is one.
    #[default]
    Url,
    /// With a user name and a password.
    Basic {
        /// The user name.
        user: Secret,
        /// The password.
        password: Secret,
    },
    /// With a token.
    Bearer(Secret),
}

/// Which HTTP to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpVersion {
    /// HTTP/2 when the peer speaks it (ALPN over TLS, the preface in plain text), else HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1 only.
    H1,
    /// HTTP/2 only, in plain text by prior knowledge.
    H2,
}

/// Request parts made once and cloned per exchange.
pub(crate) struct Prepared {
    pub(crate) secure: bool,
    /// For look-up; without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) server_name: ServerName<'static>,
    pub(crate) version: HttpVersion,
    /// The head of an HTTP/1.1 request as it is written. One with a body ends before the value of
    /// `content-length`, which comes last; one without before its last line end.
    pub(crate) h1_head: Zeroizing<Vec<u8>>,
    /// Whether its requests have bodies.
    pub(crate) has_body: bool,
    /// The headers of an HTTP/2 request but for `content-length`, packed.
    pub(crate) h2_head: Blocks,
    /// For [`Purpose::Feed`] only: a map of headers takes a kilobyte or more, and every worker has one of
    /// these for each upstream.
    pub(crate) handshake: Option<FeedRequest>,
    /// The proxy that connections are opened to, and whether they are tunnels through it.
    pub(crate) proxy: Option<ProxyRoute>,
}

/// How a proxy carries requests to an endpoint.
#[derive(Debug, Clone)]
pub(crate) struct ProxyRoute {
    pub(crate) proxy: ForwardProxy,
    /// `host:port` to ask a tunnel to; `None` where requests go to the proxy itself.
    pub(crate) tunnel_to: Option<String>,
}

/// What a WebSocket handshake is made of.
pub(crate) struct FeedRequest {
    /// The whole URI.
    pub(crate) uri: Uri,
    /// Without `host`.
    pub(crate) headers: HeaderMap,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("secure", &self.secure)
            .field("host", &self.host)
            .field("port", &self.port)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// What the request parts are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// POST of JSON; `compression` as in the settings.
    Calls { compression: Option<bool> },
    /// One GET of JSON on a connection of its own.
    Document,
    /// A WebSocket handshake.
    Feed,
}

impl Prepared {
    pub(crate) fn new(endpoint: &Endpoint, purpose: Purpose) -> Result<Self, EndpointError> {
        let url = endpoint.url.expose();
        let secure = is_secure(purpose, url.scheme())?;
        let url_host = url.host_str().ok_or(EndpointError::Host)?;
        let host = url_host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = url.port().unwrap_or(if secure { 443 } else { 80 });
        let server_name = ServerName::try_from(host.clone()).map_err(|_| EndpointError::Host)?;

        let mut headers = headers(endpoint, purpose, secure)?;
        let proxy = proxy_route(endpoint, secure || purpose == Purpose::Feed, url_host, port);
        let direct = proxy.as_ref().filter(|route| route.tunnel_to.is_none());
        if let Some(value) = direct.and_then(|route| route.proxy.authorization.as_ref()) {
            headers.insert(PROXY_AUTHORIZATION, sensitive(value.expose())?);
        }
        // Rebuilt from its parts, so that user info and fragment cannot slip in.
        let mut authority = url_host.to_owned();
        if let Some(port) = url.port() {
            authority.push_str(&format!(":{port}"));
        }
        let place = format!("{}://{authority}", url.scheme());
        let written = match headers.remove(HOST) {
            Some(host) => host.to_str().map_err(|_| EndpointError::Host)?.to_owned(),
            None => authority,
        };
        let mut path = Zeroizing::new(url.path().to_owned());
        if let Some(query) = url.query() {
            path.push('?');
            path.push_str(query);
        }
        let target = match direct {
            Some(_) => Zeroizing::new(format!("{place}{}", path.as_str())),
            None => path.clone(),
        };
        let h1_uri = Uri::try_from(target.as_str()).map_err(|_| EndpointError::Path)?;
        // Checks the authority as well, which HTTP/1.1 only carries as a header.
        let uri = Uri::builder()
            .scheme(url.scheme())
            .authority(written.as_str())
            .path_and_query(path.as_str())
            .build()
            .map_err(|_| EndpointError::Host)?;
        let fields = headers.iter();
        let fields = fields.map(|(name, v)| (name.as_str(), v.as_bytes(), v.is_sensitive()));
        let h2_head = Blocks::new(secure, &written, path.as_str(), fields);
        let host_header = HeaderValue::from_str(&written).map_err(|_| EndpointError::Host)?;
        Ok(Self {
            h1_head: h1_head(purpose, &h1_uri, &host_header, &headers),
            has_body: purpose != Purpose::Document,
            secure,
            host,
            port,
            server_name,
            version: if direct.is_some() { HttpVersion::H1 } else { endpoint.version },
            h2_head,
            handshake: (purpose == Purpose::Feed).then_some(FeedRequest { uri, headers }),
            proxy,
        })
    }
}

fn proxy_route(endpoint: &Endpoint, tunnels: bool, host: &str, port: u16) -> Option<ProxyRoute> {
    let proxy = endpoint.proxy.clone()?;
    Some(ProxyRoute { proxy, tunnel_to: tunnels.then(|| format!("{host}:{port}")) })
}

/// Credentials as the value of a header.
fn sensitive(text: &str) -> Result<HeaderValue, EndpointError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| EndpointError::Credentials)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Whether the scheme of a URL asks for TLS.
fn is_secure(purpose: Purpose, scheme: &str) -> Result<bool, EndpointError> {
    let unsupported = |known| EndpointError::Scheme(scheme.to_owned(), known);
    match (purpose, scheme) {
        (Purpose::Calls { .. } | Purpose::Document, "http") | (Purpose::Feed, "ws") => Ok(false),
        (Purpose::Calls { .. } | Purpose::Document, "https") | (Purpose::Feed, "wss") => Ok(true),
        (Purpose::Calls { .. } | Purpose::Document, _) => Err(unsupported("http or https")),
        (Purpose::Feed, _) => Err(unsupported("ws or wss")),
    }
}

/// The headers of all requests, those of the settings included; `host` only where these set it.
fn headers(
    endpoint: &Endpoint,
    purpose: Purpose,
    secure: bool,
) -> Result<HeaderMap, EndpointError> {
    let mut headers = HeaderMap::with_capacity(8 + endpoint.headers.len());
    match purpose {
        Purpose::Calls { compression } => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
            if compression.unwrap_or(secure) {
                headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate"));
            }
        }
        Purpose::Document => {
            headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*;q=0.5"));
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        Purpose::Feed => {}
    }
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    if let Some(value) = authorization(endpoint)? {
        headers.insert(AUTHORIZATION, value);
    }
    for (name, value) in &endpoint.headers {
        let (name, value) = header(name, value)?;
        headers.insert(name, value);
    }
    Ok(headers)
}

const HTTP_1_1: &[u8] = b" HTTP/1.1\r\n";

fn h1_head(
    purpose: Purpose,
    uri: &Uri,
    host: &HeaderValue,
    headers: &HeaderMap,
) -> Zeroizing<Vec<u8>> {
    let (method, last) = match purpose {
        Purpose::Document => ("GET ", "connection: close"),
        Purpose::Calls { .. } | Purpose::Feed => ("POST ", "content-length: "),
    };
    // One that grew would leave credentials behind in what it grew out of.
    let lines = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let uri = uri.to_string();
    let fixed = method.len() + uri.len() + HTTP_1_1.len() + HOST.as_str().len() + host.len() + 4;
    let bytes = fixed + lines.sum::<usize>() + last.len();
    let mut head = Zeroizing::new(Vec::with_capacity(bytes));
    head.extend_from_slice(method.as_bytes());
    head.extend_from_slice(uri.as_bytes());
    head.extend_from_slice(HTTP_1_1);
    for (name, value) in std::iter::once((&HOST, host)).chain(headers) {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(last.as_bytes());
    debug_assert_eq!(head.len(), bytes, "the room was counted");
    head
}

fn authorization(endpoint: &Endpoint) -> Result<Option<HeaderValue>, EndpointError> {
    let value = match &endpoint.auth {
        Auth::Url => basic_of(&endpoint.url)?,
        Auth::Basic { user, password } => Some(basic(user.expose(), password.expose())),
        Auth::Bearer(token) => Some(Zeroizing::new(format!("Bearer {}", token.expose()))),
    };
    value.map(|value| sensitive(&value)).transpose()
}

fn header(name: &str, value: &Secret) -> Result<(HeaderName, HeaderValue), EndpointError> {
    let parsed = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| EndpointError::HeaderName(name.to_owned()))?;
    const RESERVED: [HeaderName; 6] =
        [CONNECTION, CONTENT_LENGTH, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
    let websocket = parsed.as_str().starts_with("sec-websocket-");
    if RESERVED.contains(&parsed) || websocket {
        return Err(EndpointError::HeaderReserved(name.to_owned()));
    }
    let mut value = HeaderValue::from_str(value.expose())
        .map_err(|_| EndpointError::HeaderValue(name.to_owned()))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

    use super::*;

    const CALLS: Purpose = Purpose::Calls { compression: None };

    fn endpoint(url: &str) -> Endpoint {
        Endpoint::new(SecretUrl::parse(url).expect("a good URL"))
    }

    /// The value of `name` as an HTTP/1.1 request carries it.
    fn written(prepared: &Prepared, name: &str) -> Option<String> {
        let head = std::str::from_utf8(&prepared.h1_head).expect("text");
        assert!(head.ends_with("\r\ncontent-length: "));
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(n, _)| *n == name).map(|(_, value)| value.to_owned())
    }

    fn check(url: &str, place: &str, host: &str, path: &str) {
        let prepared = Prepared::new(&endpoint(url), CALLS).expect("usable");
        let tls = if prepared.secure { "tls" } else { "tcp" };
        assert_eq!(format!("{tls} {} {}", prepared.host, prepared.port), place, "{url}");
        assert_eq!(written(&prepared, "host").as_deref(), Some(host), "{url}");
        let line = format!("POST {path} HTTP/1.1\r\n");
        assert!(prepared.h1_head.starts_with(line.as_bytes()), "{url}");
    }

    #[test]
    fn a_handshake_names_its_host_once() {
        let prepared = Prepared::new(&endpoint("wss://user:pass@a.b/ws"), Purpose::Feed);
        let handshake = prepared.expect("usable").handshake.expect("for a feed");
        assert_eq!(handshake.uri, "wss://a.b/ws");
        assert!(!handshake.headers.contains_key(HOST));
        assert!(handshake.headers[AUTHORIZATION].is_sensitive());
    }

    #[test]
    fn place_host_and_path_come_from_the_url() {
        check("http://geth", "tcp geth 80", "geth", "/");
        check("http://geth:8545", "tcp geth 8545", "geth:8545", "/");
        check("https://a.b/v2/KEY?x=1#f", "tls a.b 443", "a.b", "/v2/KEY?x=1");
        check("http://[::1]:8545/", "tcp ::1 8545", "[::1]:8545", "/");
        check("http://10.0.0.1/rpc", "tcp 10.0.0.1 80", "10.0.0.1", "/rpc");
        check("https://user:pass@a.b/", "tls a.b 443", "a.b", "/");
    }

    fn auth(url: &str, auth: Auth) -> Option<String> {
        let mut endpoint = endpoint(url);
        endpoint.auth = auth;
        let prepared = Prepared::new(&endpoint, CALLS).expect("usable");
        written(&prepared, "authorization")
    }

    #[test]
    fn credentials_become_one_header() {
        let basic = || Some("Basic dXNlcjpwYXNz".to_owned());
        assert_eq!(auth("http://a/", Auth::Url), None);
        assert_eq!(auth("http://user:pass@a/", Auth::Url), basic());
        let given = Auth::Basic { user: Secret::new("user"), password: Secret::new("pass") };
        assert_eq!(auth("http://other:one@a/", given), basic());
        assert_eq!(auth("http://a/", Auth::Bearer(Secret::new("T"))), Some("Bearer T".to_owned()));
        // `p@ss` must be escaped in a URL and plain in the header.
        let escaped = auth("http://user:p%40ss@a/", Auth::Url);
        assert_eq!(escaped, Some(format!("Basic {}", BASE64.encode("user:p@ss"))));
    }

    #[test]
    fn compression_is_offered_over_tls_or_when_asked() {
        let offered = |url, compression| {
            let prepared = Prepared::new(&endpoint(url), Purpose::Calls { compression });
            written(&prepared.expect("usable"), "accept-encoding").is_some()
        };
        assert!(offered("https://a/", None));
        assert!(!offered("http://a/", None));
        assert!(offered("http://a/", Some(true)));
        assert!(!offered("https://a/", Some(false)));
    }

    fn refused(name: &str, value: &str) -> EndpointError {
        let mut endpoint = endpoint("http://a/");
        endpoint.headers.push((name.to_owned(), Secret::new(value)));
        let error = Prepared::new(&endpoint, CALLS).expect_err("refused");
        assert!(!error.to_string().contains("KEY"));
        error
    }

    #[test]
    fn bad_headers_are_refused_without_their_value() {
        assert_eq!(refused("a b", "KEY"), EndpointError::HeaderName("a b".to_owned()));
        assert_eq!(refused("x-key", "KEY\n"), EndpointError::HeaderValue("x-key".to_owned()));
        let reserved = EndpointError::HeaderReserved("Content-Length".to_owned());
        assert_eq!(refused("Content-Length", "1"), reserved);
    }

    #[test]
    fn a_host_header_names_another_virtual_host() {
        let mut endpoint = endpoint("http://10.0.0.1:8545/");
        endpoint.headers.push(("Host".to_owned(), Secret::new("eth.example")));
        let prepared = Prepared::new(&endpoint, CALLS).expect("usable");
        assert_eq!(prepared.host, "10.0.0.1");
        assert_eq!(written(&prepared, "host").as_deref(), Some("eth.example"));
    }

    #[test]
    fn schemes_must_fit_the_purpose() {
        let scheme = |url, purpose| Prepared::new(&endpoint(url), purpose).err();
        assert!(matches!(scheme("ws://a/", CALLS), Some(EndpointError::Scheme(..))));
        assert!(matches!(scheme("http://a/", Purpose::Feed), Some(EndpointError::Scheme(..))));
        assert!(scheme("wss://a/ws", Purpose::Feed).is_none());
    }

    #[test]
    fn debug_output_holds_no_secret() {
        let mut endpoint = endpoint("https://user:KEY@a/KEY?k=KEY");
        endpoint.headers.push(("x-api-key".to_owned(), Secret::new("KEY")));
        endpoint.auth = Auth::Bearer(Secret::new("KEY"));
        let prepared = Prepared::new(&endpoint, CALLS).expect("usable");
        for text in [format!("{endpoint:?}"), format!("{prepared:?}")] {
            assert!(!text.contains("KEY"), "{text}");
        }
    }
}
