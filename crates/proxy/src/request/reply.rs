//! What a call is answered with, and how that becomes bytes under the client's id.

use bytes::Bytes;
use wellhead_access::LimitDenied;
use wellhead_jsonrpc::{Malformed, write};
use wellhead_transport::Rest;

use crate::answer::{INVALID_REQUEST, Refusal};

/// Larger results are not copied behind their envelope's head but follow it as a
/// piece of their own: a copy of 16 KiB costs less than handling a second piece.
const COPY_MAX: usize = 16 * 1024;

/// What there is to say to a client.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A raw result.
    Result(Bytes),
    /// The beginning of a large result; what follows ends the envelope as well.
    Flowing(Bytes, Box<dyn Rest>),
    /// A raw error object that an upstream wrote.
    Error(Bytes),
    /// In our own words.
    Refused(Refusal),
}

impl Reply {
    /// Appends the whole reply. A flowing one has no place in a batch and is not
    /// asked for there.
    pub(crate) fn write(&self, id: Option<&[u8]>, out: &mut Vec<u8>) {
        match self {
            Self::Result(result) | Self::Flowing(result, _) => {
                out.reserve(result.len() + 64);
                write::result(out, id, result);
            }
            Self::Error(error) => write::error_raw(out, id, error),
            Self::Refused(refusal) => refusal.write(out, id),
        }
    }

    /// Appends the reply, or all of it that comes before its result where that is better not copied:
    /// the result follows then, and a brace.
    pub(crate) fn write_around(&mut self, id: Option<&[u8]>, out: &mut Vec<u8>) -> Option<Bytes> {
        match self {
            Self::Result(result) if result.len() > COPY_MAX => {
                write::result(out, id, b"");
                // The brace that closes the envelope comes after the result.
                out.pop();
                Some(std::mem::take(result))
            }
            reply => {
                reply.write(id, out);
                None
            }
        }
    }

    /// Bytes of an upstream, its envelope and what flows apart.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Result(bytes) | Self::Error(bytes) | Self::Flowing(bytes, _) => bytes.len(),
            Self::Refused(_) => 0,
        }
    }

    /// Whether these are our own words.
    pub(crate) fn is_refused(&self) -> bool {
        match self {
            Self::Refused(_) => true,
            Self::Result(_) | Self::Flowing(..) | Self::Error(_) => false,
        }
    }

    /// The limit that refused the call, if one did.
    pub(crate) fn rate_limit(&self) -> Option<Box<LimitDenied>> {
        match self {
            Self::Refused(refusal) => refusal.limit.clone(),
            Self::Result(_) | Self::Flowing(..) | Self::Error(_) => None,
        }
    }

    /// The reply in pieces that follow each other, and what follows them.
    pub(crate) fn into_pieces(self, id: Option<&[u8]>) -> (Vec<Bytes>, Option<Box<dyn Rest>>) {
        match self {
            Self::Result(result) if result.len() > COPY_MAX => {
                (vec![head(id), result, Bytes::from_static(b"}")], None)
            }
            Self::Flowing(first, rest) => (vec![head(id), first], Some(rest)),
            Self::Result(_) | Self::Error(_) | Self::Refused(_) => {
                let mut out = Vec::new();
                self.write(id, &mut out);
                (vec![Bytes::from(out)], None)
            }
        }
    }
}

/// `{"jsonrpc":"2.0","id":1,"result":`
fn head(id: Option<&[u8]>) -> Bytes {
    let mut out = Vec::new();
    write::result(&mut out, id, b"");
    // The brace that closes the envelope comes after the result.
    out.pop();
    Bytes::from(out)
}

/// Appends what is said to an item that is no call.
pub(crate) fn write_malformed(out: &mut Vec<u8>, malformed: &Malformed) {
    write::error(
        out,
        malformed.id.as_deref(),
        INVALID_REQUEST,
        &malformed.reason.to_string(),
        None,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reply: Reply, expected: &str) {
        let (pieces, rest) = reply.into_pieces(Some(b"7"));
        assert_eq!(String::from_utf8_lossy(&pieces.concat()), expected);
        assert!(rest.is_none());
    }

    #[test]
    fn small_and_large_results_read_the_same() {
        check(
            Reply::Result(Bytes::from_static(b"\"0x1\"")),
            r#"{"jsonrpc":"2.0","id":7,"result":"0x1"}"#,
        );
        let large = format!("\"{}\"", "0".repeat(COPY_MAX));
        let expected = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{large}}}"#);
        check(Reply::Result(Bytes::from(large)), &expected);
    }

    #[test]
    fn an_error_goes_out_as_it_came() {
        let error = Bytes::from_static(br#"{"code": 3,"data":"0x08c379a0"}"#);
        check(
            Reply::Error(error),
            r#"{"jsonrpc":"2.0","id":7,"error":{"code": 3,"data":"0x08c379a0"}}"#,
        );
    }
}
