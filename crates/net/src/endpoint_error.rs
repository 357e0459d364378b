//! Why an endpoint, or the proxy on the way to it, cannot be used.

/// Why an endpoint cannot be used. Never quotes a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The scheme is none of ours.
    #[error("scheme `{0}` is not supported: use {1}")]
    Scheme(String, &'static str),
    /// The host is neither a name nor an address.
    #[error("the host is neither a DNS name nor an IP address")]
    Host,
    /// The path or query cannot be sent over HTTP.
    #[error("path or query cannot be sent over HTTP")]
    Path,
    /// Not a header name.
    #[error("`{0}` is not a valid header name")]
    HeaderName(String),
    /// The value of this header has characters that HTTP forbids.
    #[error("the value of header `{0}` has characters that HTTP forbids")]
    HeaderValue(String),
    /// This header belongs to the connection, not to the request.
    #[error("header `{0}` is set by the transport and cannot be configured")]
    HeaderReserved(String),
    /// The credentials cannot be written into a header.
    #[error("the credentials have characters that HTTP forbids")]
    Credentials,
}
