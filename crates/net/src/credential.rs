//! User names and passwords as HTTP carries them (RFC 7617).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use zeroize::Zeroizing;

use crate::endpoint_error::EndpointError;

/// The value of a header with basic auth.
pub(crate) fn basic(user: &str, password: &str) -> Zeroizing<String> {
    let pair = Zeroizing::new(format!("{user}:{password}"));
    Zeroizing::new(format!("Basic {}", BASE64.encode(pair.as_bytes())))
}

/// User info arrives with `%` escapes; the header carries the plain text.
pub(crate) fn percent_decoded(text: &str) -> Result<Zeroizing<String>, EndpointError> {
    let mut out = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(EndpointError::Credentials);
        };
        out.push((high * 16 + low) as u8);
    }
    match std::str::from_utf8(&out) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(EndpointError::Credentials),
    }
}
