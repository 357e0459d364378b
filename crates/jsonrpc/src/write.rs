//! Making calls and replies, appended to a buffer of the caller's.
//!
//! Ids, params, results and errors are copied unchanged: bytes that are not JSON result
//! in text that is not JSON. Nothing is sent from here.

const VERSION_AND_ID: &[u8] = br#"{"jsonrpc":"2.0","id":"#;

/// A call to an upstream: `{"jsonrpc":"2.0","id":1,"method":"..","params":[..]}`.
///
/// Without params, `"params":[]` is written: not every node takes a call that has none.
pub fn call(out: &mut Vec<u8>, id: u64, method: &str, params: Option<&[u8]>) {
    let params = params.unwrap_or(b"[]");
    out.reserve(VERSION_AND_ID.len() + method.len() + params.len() + 48);
    out.extend_from_slice(VERSION_AND_ID);
    integer(out, id);
    out.extend_from_slice(br#","method":"#);
    string(out, method);
    out.extend_from_slice(br#","params":"#);
    out.extend_from_slice(params);
    out.push(b'}');
}

/// A reply with a result. Without an id, `null` is written.
pub fn result(out: &mut Vec<u8>, id: Option<&[u8]>, result: &[u8]) {
    out.reserve(VERSION_AND_ID.len() + id.map_or(4, <[u8]>::len) + result.len() + 16);
    head(out, id);
    out.extend_from_slice(br#","result":"#);
    out.extend_from_slice(result);
    out.push(b'}');
}

/// A reply with an error of our own making.
pub fn error(out: &mut Vec<u8>, id: Option<&[u8]>, code: i64, message: &str, data: Option<&[u8]>) {
    head(out, id);
    out.extend_from_slice(br#","error":{"code":"#);
    integer(out, code);
    out.extend_from_slice(br#","message":"#);
    string(out, message);
    if let Some(data) = data {
        out.extend_from_slice(br#","data":"#);
        out.extend_from_slice(data);
    }
    out.extend_from_slice(b"}}");
}

/// A reply with an error as an upstream wrote it.
pub fn error_raw(out: &mut Vec<u8>, id: Option<&[u8]>, error_object: &[u8]) {
    head(out, id);
    out.extend_from_slice(br#","error":"#);
    out.extend_from_slice(error_object);
    out.push(b'}');
}

/// Text as a JSON string, quoted. Only what must be escaped is.
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| needs_escape(byte)) {
        out.extend_from_slice(&rest[..at]);
        escape(out, rest[at]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn head(out: &mut Vec<u8>, id: Option<&[u8]>) {
    out.extend_from_slice(VERSION_AND_ID);
    out.extend_from_slice(id.unwrap_or(b"null"));
}

const fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

#[cold]
fn escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x8 => b'b',
        0xC => b'f',
        _ => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 0xF)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Decimal digits without going through the formatting machinery: ids are
/// written once per attempt.
pub fn integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(write: impl FnOnce(&mut Vec<u8>), expected: &str) {
        let mut out = b"before:".to_vec();
        write(&mut out);
        let out = String::from_utf8(out).expect("we write UTF-8");
        assert_eq!(out.strip_prefix("before:"), Some(expected));
    }

    #[test]
    fn calls() {
        check(
            |out| call(out, 0, "eth_blockNumber", None),
            r#"{"jsonrpc":"2.0","id":0,"method":"eth_blockNumber","params":[]}"#,
        );
        check(
            |out| call(out, u64::MAX, "a\"b", Some(br#"{"x": 1}"#)),
            r#"{"jsonrpc":"2.0","id":18446744073709551615,"method":"a\"b","params":{"x": 1}}"#,
        );
    }
    #[test]
    fn results() {
        check(|out| result(out, None, b"null"), r#"{"jsonrpc":"2.0","id":null,"result":null}"#);
        check(
            |out| result(out, Some(b"1.50"), b"\"0x\""),
            r#"{"jsonrpc":"2.0","id":1.50,"result":"0x"}"#,
        );
    }
    #[test]
    fn errors() {
        check(
            |out| error(out, Some(b"\"a\""), -32600, "no", None),
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32600,"message":"no"}}"#,
        );
        check(
            |out| error(out, None, 3, "reverted", Some(b"\"0x08c379a0\"")),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":3,"message":"reverted","data":"0x08c379a0"}}"#,
        );
        check(
            |out| error(out, None, i64::MIN, "", None),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-9223372036854775808,"message":""}}"#,
        );
        check(
            |out| error_raw(out, Some(b"7"), br#"{ "code" : 1 }"#),
            r#"{"jsonrpc":"2.0","id":7,"error":{ "code" : 1 }}"#,
        );
    }
    #[test]
    fn strings() {
        check(|out| string(out, ""), r#""""#);
        check(
            |out| string(out, "a\"\\\n\r\t\u{8}\u{c}\0\u{1f}\u{7f}é😀/"),
            concat!(r#""a\"\\\n\r\t\b\f\u0000\u001f"#, "\u{7f}", r#"é😀/""#),
        );
    }
}
