//! The one table of what the listeners refuse: situation, HTTP status, JSON-RPC code, words.
//!
//! Bodies are written once, when the server is built, so that a flood of bad
//! requests costs no formatting. What the proxy refuses has its own table there.

use bytes::Bytes;
use http::StatusCode;

use crate::Settings;

/// Declares the refusals, so that everything about each of them stands in one place.
macro_rules! refusals {
    ($($(#[$doc:meta])* $refusal:ident = $status:ident, $code:literal, $end:ident, $message:literal;)+) => {
        /// Why a request or a connection was turned away before any handler saw it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::VariantArray, strum::VariantNames)]
        #[strum(serialize_all = "snake_case")]
        pub enum HttpRefusal { $($(#[$doc])* $refusal,)+ }

        impl HttpRefusal {
            /// The HTTP status it is answered with.
            pub fn status(self) -> StatusCode {
                match self { $(Self::$refusal => StatusCode::$status),+ }
            }

            /// The JSON-RPC error code it is answered with.
            pub fn code(self) -> i64 {
                match self { $(Self::$refusal => $code),+ }
            }

            /// Whether the rest of the request cannot be told from the next one, so
            /// that an HTTP/1.1 connection has to end with the answer.
            pub(crate) fn ends_connection(self) -> bool {
                match self { $(Self::$refusal => $end),+ }
            }

            /// For people, with the names of settings in braces where their values belong.
            fn message(self) -> &'static str {
                match self { $(Self::$refusal => $message),+ }
            }
        }
    };
}

/// Whether the connection ends with the answer.
const ENDS: bool = true;
const GOES_ON: bool = false;

// Codes: -32600 the request is wrong whatever is in it, -32700 the body cannot
// be read as JSON, -32005 a limit (try again later), -32603 a fault of ours.
refusals! {
    /// The bytes are not HTTP/1, or could be understood in two ways.
    NotHttp = BAD_REQUEST, -32600, ENDS,
        "this is not an HTTP request, or one that could be understood in two ways";
    /// The head is longer than `head_bytes_max`, or has more than 100 lines.
    HeadTooLong = REQUEST_HEADER_FIELDS_TOO_LARGE, -32600, ENDS,
        "the head of the request is longer than {head_bytes_max} bytes or has more than 100 headers";
    /// The path has more than one segment, or one that cannot name a chain.
    NotFound = NOT_FOUND, -32600, GOES_ON,
        "no such path: send calls to / or to /CHAIN, where CHAIN is a name or a chain id";
    /// The name in `Host` is not one that the listener answers to.
    WrongHost = FORBIDDEN, -32600, GOES_ON,
        "the name in the Host header is not one that this address answers to: the setting `hosts` lists them";
    /// No key, and the setting `access.anonymous` allows none.
    NoKey = UNAUTHORIZED, -32001, GOES_ON,
        "a key is needed: send it in the path, as x-api-key or as Authorization: Bearer";
    /// There is no such key or token, or it is not valid at this time.
    BadKey = UNAUTHORIZED, -32001, GOES_ON,
        "no valid key: it is unknown, expired or revoked";
    /// Two different keys.
    ManyKeys = UNAUTHORIZED, -32001, GOES_ON,
        "the request carries two different keys: send one";
    /// The client may not call: its address, or the key from this address or web page.
    CallerDenied = FORBIDDEN, -32001, GOES_ON,
        "this client may not call from its address or web page";
    /// The keys were not heard of for too long.
    KeysUnknown = SERVICE_UNAVAILABLE, -32001, GOES_ON,
        "keys cannot be checked now: try again later";
    /// Anything but POST (and OPTIONS, when CORS is on).
    MethodNotAllowed = METHOD_NOT_ALLOWED, -32600, GOES_ON,
        "this is a JSON-RPC endpoint: send calls with POST";
    /// A browser asks whether a page may call that is not listed.
    OriginRefused = FORBIDDEN, -32600, GOES_ON,
        "web pages of this origin may not call: the setting `cors.origins` lists those that may";
    /// An upgrade to WebSocket where there is none: over HTTP/2 or HTTP/1.0.
    NoUpgrade = BAD_REQUEST, -32600, GOES_ON,
        "a WebSocket connection begins with an upgrade over HTTP/1.1";
    /// An upgrade to WebSocket that RFC 6455 does not allow.
    // Sent with the reason instead.
    BadUpgrade = BAD_REQUEST, -32600, GOES_ON,
        "this is not an upgrade to WebSocket as RFC 6455 describes it";
    /// The content type is not JSON.
    NotJson = UNSUPPORTED_MEDIA_TYPE, -32600, GOES_ON,
        "the content type must be application/json, in UTF-8";
    /// What `x-wellhead-block` says is no number.
    BadBlock = BAD_REQUEST, -32600, GOES_ON,
        "the header x-wellhead-block must be a decimal number: 0, or what an answer said";
    /// A content encoding other than gzip.
    UnsupportedEncoding = UNSUPPORTED_MEDIA_TYPE, -32600, GOES_ON,
        "the content encoding must be gzip or none";
    /// More than `body_bytes_max`, as announced, as sent or as inflated.
    BodyTooLarge = PAYLOAD_TOO_LARGE, -32600, ENDS,
        "the body is larger than {body_bytes_max} bytes";
    /// Not complete within `body_timeout`.
    BodySlow = REQUEST_TIMEOUT, -32600, ENDS,
        "the body did not arrive within {body_timeout}";
    /// Ended early, or is not what its content encoding says.
    BodyBroken = BAD_REQUEST, -32700, ENDS,
        "the body ended early or is not what its content encoding says";
    /// `connections_max` connections are open.
    ConnectionsFull = SERVICE_UNAVAILABLE, -32005, ENDS,
        "too many open connections: try again later";
    /// The client's address has `connections_per_peer_max` connections open.
    PeerFull = TOO_MANY_REQUESTS, -32005, ENDS,
        "too many open connections from this address: close some, or try again later";
    /// `requests_max` requests are under way.
    RequestsFull = SERVICE_UNAVAILABLE, -32005, GOES_ON,
        "too many requests under way: try again later";
    /// Bodies under way hold `bodies_bytes_max`.
    BodiesFull = SERVICE_UNAVAILABLE, -32005, ENDS,
        "too much request data under way: try again later";
    /// The handler panicked.
    HandlerFailed = INTERNAL_SERVER_ERROR, -32603, GOES_ON,
        "internal error";
}

wellhead_word::words!(HttpRefusal);

impl HttpRefusal {
    /// Whether the same request may succeed a little later.
    pub fn passes(self) -> bool {
        matches!(self.status(), StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS)
    }
}

/// A refusal in words without a character that JSON would escape.
pub(crate) fn refusal_body(code: i64, message: &str) -> Bytes {
    debug_assert!(!message.contains(['"', '\\']) && !message.contains(char::is_control));
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{code},"message":"{message}"}}}}"#
    ))
}

/// The bodies of all refusals, ready to send.
#[derive(Debug)]
pub(crate) struct RefusalBodies([Bytes; HttpRefusal::ALL.len()]);

impl RefusalBodies {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self(HttpRefusal::ALL.map(|refusal| {
            let message = refusal
                .message()
                .replace("{head_bytes_max}", &settings.head_bytes_max.to_string())
                .replace("{body_bytes_max}", &settings.body_bytes_max.to_string())
                .replace("{body_timeout}", &format!("{:?}", settings.body_timeout));
            refusal_body(refusal.code(), &message)
        }))
    }

    pub(crate) fn of(&self, refusal: HttpRefusal) -> Bytes {
        self.0[refusal as usize].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_is_a_json_rpc_error() {
        let bodies = RefusalBodies::new(&Settings::default());
        for refusal in HttpRefusal::ALL {
            let body: serde_json::Value = serde_json::from_slice(&bodies.of(refusal)).unwrap();
            assert_eq!(body["jsonrpc"], "2.0");
            assert!(body["id"].is_null() && body.as_object().unwrap().contains_key("id"));
            assert_eq!(body["error"]["code"], refusal.code());
            let message = body["error"]["message"].as_str().unwrap();
            assert!(!message.is_empty() && !message.contains('{'), "{message}");
        }
    }

    #[test]
    fn only_overload_passes() {
        let passing: Vec<_> = HttpRefusal::ALL
            .into_iter()
            .filter(|refusal| refusal.passes())
            .map(HttpRefusal::word)
            .collect();
        assert_eq!(
            passing,
            ["keys_unknown", "connections_full", "peer_full", "requests_full", "bodies_full"]
        );
    }
}
