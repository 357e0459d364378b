//! User names and passwords as HTTP carries them (RFC 7617).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use wellhead_telemetry::SecretUrl;
use zeroize::Zeroizing;

use crate::endpoint_error::EndpointError;

/// The value of a header with basic auth.
pub(crate) fn basic(user: &str, password: &str) -> Zeroizing<String> {
    let pair = Zeroizing::new(format!("{user}:{password}"));
    Zeroizing::new(format!("Basic {}", BASE64.encode(pair.as_bytes())))
}

/// The value of such a header for the user info of a URL, if it has any.
pub(crate) fn basic_of(url: &SecretUrl) -> Result<Option<Zeroizing<String>>, EndpointError> {
    let url = url.expose();
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let user = percent_decoded(url.username())?;
    let password = percent_decoded(url.password().unwrap_or_default())?;
    Ok(Some(basic(&user, &password)))
}

/// User info arrives with `%` escapes; the header carries the plain text.
fn percent_decoded(text: &str) -> Result<Zeroizing<String>, EndpointError> {
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
