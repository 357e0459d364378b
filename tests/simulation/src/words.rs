//! The words of providers: refusals, error pages, envelopes. Made up after what they are
//! known to say; the recorded bodies are the rules' own tests.

use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

/// How a provider says that there were too many calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Plain text with 429, and a `Retry-After` in seconds if any.
    Plain(Option<u8>),
    /// A gateway's page with 429.
    Html,
    /// -32005 with 429.
    Infura,
    /// -32005 inside a 200, with a pause in its data.
    InfuraInside(u8),
    /// Code 429 with 429.
    Alchemy,
    /// Code 429 inside a 200.
    AlchemyInside,
    /// -32007 inside a 200.
    QuickNode,
}

/// A whole HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// HTTP status.
    pub status: u16,
    /// `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The body.
    pub body: String,
}

impl Said {
    pub(crate) fn new(status: u16, body: String) -> Self {
        Self { status, retry_after: None, body }
    }
}

/// A rest after a refusal that names none; see `THROTTLE_REST` in `upstream`.
const UNNAMED_PAUSE: Duration = Duration::from_secs(1);

impl Dialect {
    /// Draws one.
    pub fn draw(rng: &mut SmallRng) -> Self {
        match rng.random_range(0..8) {
            0 => Self::Plain(None),
            1 => Self::Plain(Some(rng.random_range(0..8))),
            2 => Self::Html,
            3 => Self::Infura,
            4 => Self::InfuraInside(rng.random_range(0..6)),
            5 => Self::Alchemy,
            6 => Self::AlchemyInside,
            _ => Self::QuickNode,
        }
    }

    /// The pause that it asks for.
    pub fn asks_for(self) -> Option<Duration> {
        match self {
            Self::Plain(after) => after.map(|after| Duration::from_secs(after.into())),
            Self::InfuraInside(after) => Some(Duration::from_secs(after.into())),
            Self::Html | Self::Infura | Self::Alchemy | Self::AlchemyInside | Self::QuickNode => {
                None
            }
        }
    }

    /// The pause that it is given.
    pub fn pause(self) -> Duration {
        self.asks_for().unwrap_or(UNNAMED_PAUSE).max(UNNAMED_PAUSE)
    }

    /// The refusal of a call sent under `id`, or of a batch.
    pub fn refusal(self, id: Option<&str>) -> Said {
        let id = id.unwrap_or("null");
        let error = |status, error: &str| {
            Said::new(status, format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
        };
        let infura = |after: u8| {
            format!(
                r#"{{"code":-32005,"message":"project ID request rate exceeded","data":{{"rate":{{"allowed_rps":1,"backoff_seconds":{after},"current_rps":1.5}},"see":"https://provider.invalid/dashboard"}}}}"#
            )
        };
        let alchemy = r#"{"code":429,"message":"Your app has exceeded its compute units per second capacity. Retry later."}"#;
        match self {
            Self::Plain(_) => Said {
                retry_after: self.asks_for(),
                ..Said::new(429, "Too Many Requests\n".to_owned())
            },
            Self::Html => Said::new(429, page(429, "/")),
            Self::Infura => error(429, &infura(0)),
            Self::InfuraInside(after) => error(200, &infura(after)),
            Self::Alchemy => error(429, alchemy),
            Self::AlchemyInside => error(200, alchemy),
            Self::QuickNode => {
                error(200, r#"{"code":-32007,"message":"15/second request limit reached"}"#)
            }
        }
    }
}

/// A gateway's page that quotes the path.
pub fn page(status: u16, path: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html><head><title>{status}</title></head><body><h1>{status}</h1>\n<pre>Cannot POST {path}</pre></body></html>\n"
    )
}

/// The refusal of a key, which quotes it.
pub fn auth(rng: &mut SmallRng, id: &str, api_key: &str) -> Said {
    match rng.random_range(0..4) {
        0 => Said::new(401, format!(r#"{{"error":"invalid api key {api_key}"}}"#)),
        1 => Said::new(403, page(403, &format!("/v2/{api_key}"))),
        2 => error(id, -32600, &format!("Must be authenticated! {api_key} is not")),
        _ => error(id, -32000, &format!("invalid api key: {api_key}")),
    }
}

/// An error inside a 200.
fn error(id: &str, code: i32, message: &str) -> Said {
    let error = format!(r#"{{"code":{code},"message":"{message}"}}"#);
    Said::new(200, Envelope::IdFirst.write(id, &Err(error)))
}

/// The refusal of an account, which quotes its key.
pub fn billing(rng: &mut SmallRng, id: &str, api_key: &str) -> Said {
    match rng.random_range(0..2) {
        0 => Said::new(402, format!("Payment Required: {api_key}\n")),
        _ => {
            let what = format!("Monthly capacity limit exceeded for {api_key}.");
            let visit = "Visit https://provider.invalid/settings/billing";
            error(id, -32600, &format!("{what} {visit}"))
        }
    }
}

/// An error of the upstream's own, which quotes its URL.
pub fn internal(rng: &mut SmallRng, api_key: &str) -> String {
    let code = [-32603, -32000, -32099][rng.random_range(0..3)];
    format!(
        r#"{{"code":{code},"message":"internal error","data":"POST https://provider.invalid/v2/{api_key}: EOF"}}"#
    )
}

/// An error that no rule knows, which quotes the URL.
pub fn unknown(api_key: &str) -> String {
    format!(r#"{{"code":-32077,"message":"flux capacitor at /v2/{api_key} is cold"}}"#)
}

/// How an upstream writes its envelopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Envelope {
    /// `jsonrpc`, `id`, `result`, as geth.
    #[default]
    IdFirst,
    /// `jsonrpc`, `result`, `id`.
    IdLast,
    /// Over several lines, `id` before `jsonrpc`.
    Airy,
}

impl Envelope {
    /// Draws one.
    pub fn draw(rng: &mut SmallRng) -> Self {
        [Self::IdFirst, Self::IdFirst, Self::IdLast, Self::Airy][rng.random_range(0..4)]
    }

    /// A reply.
    pub fn write(self, id: &str, outcome: &Result<String, String>) -> String {
        let (member, value) = match outcome {
            Ok(result) => ("result", result),
            Err(error) => ("error", error),
        };
        match self {
            Self::IdFirst => format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{value}}}"#),
            Self::IdLast => format!(r#"{{"jsonrpc":"2.0","{member}":{value},"id":{id}}}"#),
            Self::Airy => {
                format!(
                    "{{\n  \"id\": {id},\n  \"jsonrpc\": \"2.0\",\n  \"{member}\": {value}\n}}\n"
                )
            }
        }
    }
}

/// What is left of a long `body` that was cut anywhere and framed as if it were whole.
pub fn cut(rng: &mut SmallRng, body: &str, at_least: usize) -> Vec<u8> {
    // At least its last brace is gone.
    let whole = body.trim_ascii_end().len();
    let end = rng.random_range(at_least..body.len()).min(whole - 1);
    body.as_bytes()[..end].to_vec()
}

/// What is left of `body` when it was spoilt.
pub fn garbled(rng: &mut SmallRng, body: &str) -> Vec<u8> {
    let bytes = body.trim_ascii_end().as_bytes();
    let middle = rng.random_range(0..bytes.len().max(1));
    match rng.random_range(0..6) {
        // Cut, and framed as if it were whole.
        0 => bytes[..middle].to_vec(),
        1 => Vec::new(),
        // A closing brace too many, or none.
        2 => [bytes, b"}"].concat(),
        3 => bytes.strip_suffix(b"}").unwrap_or(b"{").to_vec(),
        // A byte that is nothing in JSON, in the first half.
        4 => {
            let mut spoilt = bytes.to_vec();
            if let Some(byte) = spoilt.get_mut(middle / 2) {
                *byte = 0;
            }
            spoilt
        }
        _ => br#"{"jsonrpc":"2.0","id":1}"#.to_vec(),
    }
}

/// `result` with one value changed that a hash or a bloom in it commits to; `None` where there
/// is none, as in a block that is pending.
pub fn lie(method: &str, result: &str) -> Option<String> {
    let mut told: Value = serde_json::from_str(result).ok()?;
    let (place, lie) = match method {
        "eth_getBlockByNumber" | "eth_getBlockByHash" => {
            told.get("hash").filter(|hash| !hash.is_null())?;
            ("/gasUsed", json!("0xbad"))
        }
        "eth_getTransactionByHash" => ("/value", json!("0xbad")),
        "eth_getTransactionReceipt" => ("/logsBloom", full_bloom()),
        "eth_getBlockReceipts" => ("/0/logsBloom", full_bloom()),
        _ => return None,
    };
    *told.pointer_mut(place)? = lie;
    Some(told.to_string())
}

fn full_bloom() -> Value {
    json!(format!("0x{}", "ff".repeat(256)))
}

/// Another value than `result`, which is a quantity or data; `None` where it is neither.
pub fn misleading(result: &str) -> Option<String> {
    let head = result.strip_suffix('"')?;
    let last = head.chars().last().filter(char::is_ascii_hexdigit)?;
    let other = if last == '7' { '8' } else { '7' };
    Some(format!("{}{other}\"", &head[..head.len() - 1]))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn what_is_garbled_is_never_a_reply() {
        let mut rng = SmallRng::seed_from_u64(1);
        for envelope in [Envelope::IdFirst, Envelope::IdLast, Envelope::Airy].repeat(200) {
            let reply = envelope.write("1", &Ok("\"0x1\"".to_owned()));
            let spoilt = garbled(&mut rng, &reply);
            let value = serde_json::from_slice::<serde_json::Value>(&spoilt);
            let is_reply = value.is_ok_and(|value| value.get("result").is_some());
            assert!(!is_reply, "{}", String::from_utf8_lossy(&spoilt));
        }
    }

    #[test]
    fn every_envelope_is_json() {
        for envelope in [Envelope::IdFirst, Envelope::IdLast, Envelope::Airy] {
            let text = envelope.write("7", &Err("{\"code\":1,\"message\":\"m\"}".to_owned()));
            let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!((&value["id"], &value["error"]["code"]), (&7.into(), &1.into()));
        }
    }
}
