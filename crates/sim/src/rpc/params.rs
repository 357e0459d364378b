//! Reading parameters, and refusing them as geth's decoder does.

use alloy_primitives::{Address, B256, Bytes, U256, hex};
use serde_json::Value;

use super::error::RpcError;

/// The positional parameters of one call.
#[derive(Debug, Clone, Copy)]
pub struct Params<'a> {
    items: &'a [Value],
}

/// Where on the chain a parameter points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockSelector {
    /// A height.
    Number(u64),
    /// The first block.
    Earliest,
    /// The newest block.
    Latest,
    /// The newest block a third of the stake would hardly undo.
    Safe,
    /// The newest block that cannot be undone.
    Finalized,
    /// The block being made.
    Pending,
    /// A block by hash (EIP-1898).
    Hash {
        /// Which.
        hash: B256,
        /// Refuse it when it is not on the canonical chain.
        require_canonical: bool,
    },
}

impl<'a> Params<'a> {
    /// Takes the `params` member: an array, null, or nothing.
    pub fn new(params: Option<&'a Value>) -> Result<Self, RpcError> {
        match params {
            None | Some(Value::Null) => Ok(Self { items: &[] }),
            Some(Value::Array(items)) => Ok(Self { items }),
            Some(_) => Err(RpcError::invalid_params("non-array args")),
        }
    }

    /// Refuses more than `count` parameters.
    pub fn at_most(self, count: usize) -> Result<Self, RpcError> {
        if self.items.len() > count {
            let words = format!("too many arguments, want at most {count}");
            return Err(RpcError::invalid_params(words));
        }
        Ok(self)
    }

    /// The parameter, when present and not null.
    pub fn optional(self, index: usize) -> Option<&'a Value> {
        self.items.get(index).filter(|value| !value.is_null())
    }

    /// The parameter, which must be there.
    pub fn required(self, index: usize) -> Result<&'a Value, RpcError> {
        self.optional(index).ok_or_else(|| {
            let words = format!("missing value for required argument {index}");
            RpcError::invalid_params(words)
        })
    }

    /// 20 bytes.
    pub fn address(self, index: usize) -> Result<Address, RpcError> {
        address(self.required(index)?).map_err(|why| RpcError::invalid_argument(index, &why))
    }

    /// 32 bytes.
    pub fn hash(self, index: usize) -> Result<B256, RpcError> {
        hash(self.required(index)?).map_err(|why| RpcError::invalid_argument(index, &why))
    }

    /// Any bytes.
    pub fn bytes(self, index: usize) -> Result<Bytes, RpcError> {
        bytes(self.required(index)?).map_err(|why| RpcError::invalid_argument(index, &why))
    }

    /// A number in hex.
    pub fn quantity(self, index: usize) -> Result<u64, RpcError> {
        quantity(self.required(index)?)
            .map_err(|why| RpcError::invalid_argument(index, &typed(&why, "hexutil.Uint64")))
    }

    /// True or false; absent means false.
    pub fn flag(self, index: usize) -> Result<bool, RpcError> {
        match self.optional(index) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => {
                let words =
                    format!("json: cannot unmarshal {} into Go value of type bool", kind_of(other));
                Err(RpcError::invalid_argument(index, &words))
            }
        }
    }

    /// A storage slot: up to 32 bytes, odd digits and short forms allowed.
    pub fn slot(self, index: usize) -> Result<B256, RpcError> {
        let text = self.required(index)?.as_str().unwrap_or_default();
        let digits = text.strip_prefix("0x").unwrap_or(text);
        if digits.len() > 64 {
            let words = "unable to decode storage key: hex string too long, want at most 32 bytes";
            return Err(RpcError::new(-32602, words));
        }
        let padded = format!("{digits:0>64}");
        hex::decode(&padded)
            .map(|bytes| B256::from_slice(&bytes))
            .map_err(|_| RpcError::new(-32602, "unable to decode storage key: hex string invalid"))
    }

    /// A block by tag, number, hash or EIP-1898 object; `None` when absent.
    pub fn point(self, index: usize) -> Result<Option<BlockSelector>, RpcError> {
        let Some(value) = self.optional(index) else { return Ok(None) };
        point_or_hash(value).map(Some).map_err(|why| RpcError::invalid_argument(index, &why))
    }

    /// As [`Self::point`]; the newest block when absent.
    pub fn point_or_latest(self, index: usize) -> Result<BlockSelector, RpcError> {
        Ok(self.point(index)?.unwrap_or(BlockSelector::Latest))
    }

    /// A block by tag or number alone, required.
    pub fn height(self, index: usize) -> Result<BlockSelector, RpcError> {
        height(self.required(index)?).map_err(|why| RpcError::invalid_argument(index, &why))
    }
}

/// A tag or a number.
pub fn height(value: &Value) -> Result<BlockSelector, String> {
    let Value::String(text) = value else {
        return match value.as_u64() {
            Some(number) => Ok(BlockSelector::Number(number)),
            None => Err("hex string without 0x prefix".to_owned()),
        };
    };
    Ok(match text.as_str() {
        "earliest" => BlockSelector::Earliest,
        "latest" | "" => BlockSelector::Latest,
        "safe" => BlockSelector::Safe,
        "finalized" => BlockSelector::Finalized,
        "pending" => BlockSelector::Pending,
        digits => {
            let number = quantity_text(digits)?;
            if number > i64::MAX as u64 {
                return Err("block number larger than int64".to_owned());
            }
            BlockSelector::Number(number)
        }
    })
}

fn point_or_hash(value: &Value) -> Result<BlockSelector, String> {
    match value {
        Value::Object(object) => {
            let require_canonical =
                object.get("requireCanonical").and_then(Value::as_bool).unwrap_or(false);
            match (object.get("blockHash"), object.get("blockNumber")) {
                (Some(_), Some(_)) => {
                    Err("cannot specify both BlockHash and BlockNumber, choose one or the other"
                        .to_owned())
                }
                (Some(text), None) => {
                    Ok(BlockSelector::Hash { hash: hash(text)?, require_canonical })
                }
                (None, Some(number)) => height(number),
                (None, None) => {
                    Err("invalid arguments; neither block nor hash specified".to_owned())
                }
            }
        }
        Value::String(text) if text.len() == 66 => {
            Ok(BlockSelector::Hash { hash: hash(value)?, require_canonical: false })
        }
        _ => height(value),
    }
}

/// 20 bytes; the error is geth's reason.
pub fn address(value: &Value) -> Result<Address, String> {
    fixed::<20>(value, "common.Address").map(Address::from)
}

/// 32 bytes; the error is geth's reason.
pub fn hash(value: &Value) -> Result<B256, String> {
    fixed::<32>(value, "common.Hash").map(B256::from)
}

/// Any bytes; the error is geth's reason.
pub fn bytes(value: &Value) -> Result<Bytes, String> {
    data(value).map(Bytes::from).map_err(|why| typed(&why, "hexutil.Bytes"))
}

/// A 64-bit number in hex; the error is geth's reason without the type.
pub fn quantity(value: &Value) -> Result<u64, String> {
    quantity_text(value.as_str().ok_or("non-string")?)
}

/// A 256-bit number in hex.
pub fn big(value: &Value) -> Result<U256, String> {
    let text = value.as_str().ok_or_else(|| typed("non-string", "hexutil.Big"))?;
    let digits = quantity_digits(text).map_err(|why| typed(why, "hexutil.Big"))?;
    U256::from_str_radix(digits, 16).map_err(|_| typed("hex number > 256 bits", "hexutil.Big"))
}

fn quantity_text(text: &str) -> Result<u64, String> {
    let digits = quantity_digits(text)?;
    if digits.len() > 16 {
        return Err("hex number > 64 bits".to_owned());
    }
    u64::from_str_radix(digits, 16).map_err(|_| "invalid hex string".to_owned())
}

fn quantity_digits(text: &str) -> Result<&str, &'static str> {
    if text.is_empty() {
        return Err("empty hex string");
    }
    let digits = text.strip_prefix("0x").ok_or("hex string without 0x prefix")?;
    match digits {
        "" => Err("hex string \"0x\""),
        "0" => Ok(digits),
        _ if digits.starts_with('0') => Err("hex number with leading zero digits"),
        _ if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => Err("invalid hex string"),
        _ => Ok(digits),
    }
}

fn data(value: &Value) -> Result<Vec<u8>, String> {
    let text = value.as_str().ok_or("non-string")?;
    if text.is_empty() {
        return Err("empty hex string".to_owned());
    }
    let digits = text.strip_prefix("0x").ok_or("hex string without 0x prefix")?;
    if digits.len() % 2 == 1 {
        return Err("hex string of odd length".to_owned());
    }
    hex::decode(digits).map_err(|_| "invalid hex string".to_owned())
}

fn fixed<const N: usize>(value: &Value, name: &str) -> Result<[u8; N], String> {
    let bytes = data(value).map_err(|why| typed(&why, name))?;
    let length = bytes.len() * 2;
    bytes
        .try_into()
        .map_err(|_| format!("hex string has length {length}, want {} for {name}", N * 2))
}

/// How Go's JSON decoder wraps a reason.
fn typed(why: &str, name: &str) -> String {
    format!("json: cannot unmarshal {why} into Go value of type {name}")
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn heights_are_read_and_refused_as_geth_does() {
        let check = |value: Value, expected: Result<BlockSelector, &str>| {
            assert_eq!(height(&value), expected.map_err(str::to_owned), "{value}");
        };
        check(json!("latest"), Ok(BlockSelector::Latest));
        check(json!("0x0"), Ok(BlockSelector::Number(0)));
        check(json!("0x1b4"), Ok(BlockSelector::Number(436)));
        check(json!("436"), Err("hex string without 0x prefix"));
        check(json!("0x"), Err("hex string \"0x\""));
        check(json!("0x01"), Err("hex number with leading zero digits"));
        check(json!("0xzz"), Err("invalid hex string"));
        check(json!("0x8000000000000000"), Err("block number larger than int64"));
        check(json!("0x10000000000000000"), Err("hex number > 64 bits"));
    }

    #[test]
    fn addresses_are_refused_in_geths_words() {
        let check = |value: Value, words: &str| {
            let params = [value];
            let params = Params { items: &params };
            assert_eq!(params.address(0).unwrap_err().message, words);
        };
        check(
            json!("0x12"),
            "invalid argument 0: hex string has length 2, want 40 for common.Address",
        );
        check(
            json!("12"),
            "invalid argument 0: json: cannot unmarshal hex string without 0x prefix into Go value of type common.Address",
        );
        check(
            json!(5),
            "invalid argument 0: json: cannot unmarshal non-string into Go value of type common.Address",
        );
        check(Value::Null, "missing value for required argument 0");
    }
}
