//! The opening handshake as a server sees it (RFC 6455, section 4.2).
//!
//! Extensions that a client offers are declined by not naming them in the answer, so their fields are
//! not read. [`select_protocol`] finds a subprotocol. The path, the origin and access are the caller's
//! business.

use std::fmt;
use std::str::from_utf8;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use sha1::{Digest as _, Sha1};

/// What is hashed behind the key.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The one version there is.
const VERSION: &[u8] = b"13";
/// Bytes of a key.
const KEY_BYTES: usize = 16;
/// A key as base64.
const KEY_DIGITS: usize = 24;
/// The longest subprotocol that is selected; names in use have a third of it.
pub const PROTOCOL_BYTES_MAX: usize = 64;
/// A SHA-1 as base64.
const ACCEPT_DIGITS: usize = 28;

/// The digits after the sixteenth byte of a key are not compared: most servers do not, so
/// clients that make keys of random digits work with them.
const KEY_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// What a server has of an upgrade request.
#[derive(Debug, Clone, Copy)]
pub struct UpgradeRequest<'a, F> {
    /// As it came: methods are case-sensitive.
    pub method: &'a str,
    /// HTTP/1.1, not 1.0.
    pub newest: bool,
    /// All fields, name and value, in any case and order.
    pub fields: F,
}

/// Whether a request names WebSocket in an `Upgrade` field: then [`accept`] judges it. Any other
/// request is one of plain HTTP.
pub fn asks_for_websocket<'a>(fields: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> bool {
    fields
        .into_iter()
        .any(|(name, value)| name.eq_ignore_ascii_case("upgrade") && has_token(value, b"websocket"))
}

/// Judges an upgrade request, and returns what to answer with: a status of 101, the fields
/// `Upgrade: websocket` and `Connection: upgrade`, and the key.
///
/// The bytes behind the head of an accepted request belong to frames, so it may not have a body.
pub fn accept<'a>(
    request: UpgradeRequest<'a, impl IntoIterator<Item = (&'a str, &'a [u8])>>,
) -> Result<AcceptKey, HandshakeError> {
    if request.method != "GET" {
        return Err(HandshakeError::MethodNotGet);
    }
    if !request.newest {
        return Err(HandshakeError::HttpTooOld);
    }
    let mut said = HandshakeFields::default();
    for (name, value) in request.fields {
        said.read(name, value.trim_ascii());
    }
    if !said.upgrades {
        return Err(HandshakeError::NoUpgrade);
    }
    if !said.connection_upgrades {
        return Err(HandshakeError::ConnectionWithoutUpgrade);
    }
    if said.has_body {
        return Err(HandshakeError::HasBody);
    }
    match said.version {
        FieldValue::Missing => return Err(HandshakeError::VersionMissing),
        FieldValue::Repeated => return Err(HandshakeError::VersionRepeated),
        FieldValue::Once(VERSION) => {}
        FieldValue::Once(_) => return Err(HandshakeError::VersionOther),
    }
    match said.key {
        FieldValue::Missing => Err(HandshakeError::KeyMissing),
        FieldValue::Repeated => Err(HandshakeError::KeyRepeated),
        FieldValue::Once(key) if is_key(key) => Ok(AcceptKey::new(key)),
        FieldValue::Once(_) => Err(HandshakeError::KeyMalformed),
    }
}

/// The first of the subprotocols that a client offers which `may_select` allows. Named in the answer, as
/// it was offered, it is agreed on; an answer without one declines them all.
///
/// Browsers fail a connection that offered some and got none; all clients must fail one that got what
/// they did not offer (RFC 6455, section 4.1). What is no name of at most [`PROTOCOL_BYTES_MAX`] is
/// never selected.
pub fn select_protocol<'a>(
    fields: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    may_select: impl Fn(&str) -> bool,
) -> Option<&'a str> {
    fields
        .into_iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-protocol"))
        .flat_map(|(_, list)| list.split(|byte| *byte == b','))
        .filter_map(|name| protocol_name(name.trim_ascii()))
        .find(|name| may_select(name))
}

/// A name as it may stand in an answer: a token (RFC 9110, section 5.6.2) that is not too long.
fn protocol_name(name: &[u8]) -> Option<&str> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let fits = (1..=PROTOCOL_BYTES_MAX).contains(&name.len()) && name.iter().all(is_token);
    from_utf8(name).ok().filter(|_| fits)
}

/// The value of `Sec-WebSocket-Accept`, which proves that the key was read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AcceptKey([u8; ACCEPT_DIGITS]);

impl AcceptKey {
    /// Hashes a key as it was sent. A client compares the answer with it.
    pub fn new(key: &[u8]) -> Self {
        let mut hash = Sha1::new();
        hash.update(key);
        hash.update(GUID);
        let mut digits = [0; ACCEPT_DIGITS];
        let written = STANDARD.encode_slice(hash.finalize(), &mut digits);
        debug_assert_eq!(written, Ok(ACCEPT_DIGITS), "20 bytes are 28 digits");
        Self(digits)
    }

    /// The 28 digits.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The 28 digits as text.
    pub fn as_str(&self) -> &str {
        from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for AcceptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AcceptKey({})", self.as_str())
    }
}

/// Why an upgrade is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// A method other than GET.
    #[error("the method of a WebSocket upgrade is GET")]
    MethodNotGet,
    /// HTTP/1.0.
    #[error("a WebSocket upgrade needs HTTP/1.1")]
    HttpTooOld,
    /// No `Upgrade` names `websocket`.
    #[error("no `Upgrade` field names `websocket`")]
    NoUpgrade,
    /// No `Connection` names `upgrade`.
    #[error("no `Connection` field names `upgrade`")]
    ConnectionWithoutUpgrade,
    /// A body, whose bytes could be taken for frames.
    #[error("a WebSocket upgrade has no body")]
    HasBody,
    /// No `Sec-WebSocket-Version`.
    #[error("there is no `Sec-WebSocket-Version`; 13 is served")]
    VersionMissing,
    /// More than one `Sec-WebSocket-Version`.
    #[error("there is more than one `Sec-WebSocket-Version`")]
    VersionRepeated,
    /// A version other than 13.
    #[error("`Sec-WebSocket-Version` is not 13")]
    VersionOther,
    /// No `Sec-WebSocket-Key`.
    #[error("there is no `Sec-WebSocket-Key`")]
    KeyMissing,
    /// More than one `Sec-WebSocket-Key`.
    #[error("there is more than one `Sec-WebSocket-Key`")]
    KeyRepeated,
    /// A key that is not 16 bytes as base64.
    #[error("`Sec-WebSocket-Key` is not 16 bytes as base64")]
    KeyMalformed,
}

impl HandshakeError {
    /// The HTTP status that fits.
    pub fn status(self) -> u16 {
        match self {
            Self::MethodNotGet => 405,
            Self::VersionMissing | Self::VersionOther => 426,
            Self::HttpTooOld
            | Self::NoUpgrade
            | Self::ConnectionWithoutUpgrade
            | Self::HasBody
            | Self::VersionRepeated
            | Self::KeyMissing
            | Self::KeyRepeated
            | Self::KeyMalformed => 400,
        }
    }

    /// The fields that the answer must have because of its status: those that say what would be
    /// accepted.
    pub fn fields(self) -> &'static [(&'static str, &'static str)] {
        match self.status() {
            405 => &[("allow", "GET")],
            426 => &[
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-version", "13"),
            ],
            _ => &[],
        }
    }
}

/// What the fields of a request say about the upgrade.
#[derive(Default)]
struct HandshakeFields<'a> {
    upgrades: bool,
    connection_upgrades: bool,
    has_body: bool,
    version: FieldValue<'a>,
    key: FieldValue<'a>,
}

/// The value of a field that may be there once.
#[derive(Default)]
enum FieldValue<'a> {
    #[default]
    Missing,
    Once(&'a [u8]),
    Repeated,
}

impl<'a> FieldValue<'a> {
    fn add(&mut self, value: &'a [u8]) {
        *self = match self {
            Self::Missing => Self::Once(value),
            Self::Once(_) | Self::Repeated => Self::Repeated,
        };
    }
}

impl<'a> HandshakeFields<'a> {
    fn read(&mut self, name: &str, value: &'a [u8]) {
        let is = |lower: &str| name.eq_ignore_ascii_case(lower);
        match name.len() {
            7 if is("upgrade") => self.upgrades |= has_token(value, b"websocket"),
            10 if is("connection") => self.connection_upgrades |= has_token(value, b"upgrade"),
            14 if is("content-length") => self.has_body |= value.iter().any(|digit| *digit != b'0'),
            17 if is("transfer-encoding") => self.has_body = true,
            17 if is("sec-websocket-key") => self.key.add(value),
            21 if is("sec-websocket-version") => self.version.add(value),
            _ => {}
        }
    }
}

/// Whether a list of tokens has one, in any case.
fn has_token(list: &[u8], lower: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|token| token.trim_ascii().eq_ignore_ascii_case(lower))
}

/// Whether a key is 16 bytes as base64.
fn is_key(key: &[u8]) -> bool {
    // The room that the decoder wants for 24 digits, of which two are padding.
    let mut bytes = [0; KEY_DIGITS / 4 * 3];
    key.len() == KEY_DIGITS && KEY_BASE64.decode_slice(key, &mut bytes) == Ok(KEY_BYTES)
}
