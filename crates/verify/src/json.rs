//! Reading answers: objects as a handful of borrowed values, arrays item by item.
//!
//! One pass over the text; what no check needs is walked over and not kept, and an array
//! never becomes a list in memory, so that a small answer cannot ask for a large one.
//! Depth costs no stack: values that are not looked into are skipped by `serde_json`
//! without recursion.
//!
//! Clients do not agree on a key that stands there twice, nor on one in other letters
//! (Go takes `HASH` for `hash`): an answer with such a key is refused, because what we
//! verified might not be what the client reads.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use alloy_primitives::hex::decode_to_array;
use alloy_primitives::{Address, B256, U256};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer as _, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use wellhead_eth::hex;

use crate::finding::{Check, InvalidAnswer};

/// Most of a value that is quoted in a finding, in bytes.
const QUOTE_BYTES_MAX: usize = 80;

/// A JSON value as written, without white space around it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value<'a>(&'a str);

impl<'a> Value<'a> {
    /// The text of a whole answer or parameter; `None` when it is not UTF-8.
    pub(crate) fn new(raw: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(wellhead_jsonrpc::raw::trim(raw)).ok()?;
        Some(Self(text))
    }

    pub(crate) fn is_null(self) -> bool {
        self.0 == "null"
    }

    pub(crate) fn is_true(self) -> bool {
        self.0 == "true"
    }

    /// What a string says. One with escapes is not read: no hexadecimal needs them.
    fn text(self) -> Option<&'a str> {
        let text = self.0.strip_prefix('"')?.strip_suffix('"')?;
        if text.contains(['\\', '"']) { None } else { Some(text) }
    }

    fn digits(self) -> Option<&'a str> {
        let text = self.text()?;
        text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
    }

    /// Data of a known length.
    pub(crate) fn fixed<const N: usize>(self) -> Option<[u8; N]> {
        hex::decode_array(self.text()?).ok()
    }

    pub(crate) fn hash(self) -> Option<B256> {
        self.fixed().map(B256::new)
    }

    pub(crate) fn address(self) -> Option<Address> {
        self.fixed().map(Address::new)
    }

    /// Data of any length.
    pub(crate) fn data(self) -> Option<Vec<u8>> {
        hex::decode(self.text()?).ok()
    }

    /// A quantity below 2^64; leading zeros are forgiven.
    pub(crate) fn quantity(self) -> Option<u64> {
        let digits = self.digits()?;
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        u64::from_str_radix(digits, 16).ok()
    }

    /// A quantity below 2^256; leading zeros are forgiven.
    pub(crate) fn big(self) -> Option<U256> {
        let digits = self.digits()?;
        if digits.is_empty() || digits.len() > 64 {
            return None;
        }
        let mut padded = [b'0'; 64];
        padded[64 - digits.len()..].copy_from_slice(digits.as_bytes());
        decode_to_array(padded).ok().map(U256::from_be_bytes::<32>)
    }

    /// Reads an object.
    pub(crate) fn read<T: Deserialize<'a>>(self) -> Result<T, InvalidAnswer> {
        serde_json::from_str(self.0).map_err(|error| unreadable(self, &error))
    }

    /// Reads the items of an array one by one, until `visit` finds something.
    pub(crate) fn each<T: Deserialize<'a>>(
        self,
        visit: impl FnMut(usize, T) -> Result<(), InvalidAnswer>,
    ) -> Result<(), InvalidAnswer> {
        let mut found = None;
        let mut reader = serde_json::Deserializer::from_str(self.0);
        let items = Items { visit, found: &mut found, item: PhantomData };
        let end = reader.deserialize_seq(items).and_then(|()| reader.end());
        match (found, end) {
            (Some(void), _) => Err(void),
            (None, Ok(())) => Ok(()),
            (None, Err(error)) => Err(unreadable(self, &error)),
        }
    }
}

/// As much of it as a finding may quote.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(QUOTE_BYTES_MAX) {
            None => f.write_str(self.0),
            Some((end, _)) => write!(f, "{}...", &self.0[..end]),
        }
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn unreadable(value: Value<'_>, error: &serde_json::Error) -> InvalidAnswer {
    InvalidAnswer::new(Check::Shape, format!("{error}, in `{value}`"))
}

impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        <&'de RawValue>::deserialize(reader).map(|raw| Self(raw.get()))
    }
}

/// A member's name, with escapes undone.
#[derive(serde::Deserialize)]
pub(crate) struct MemberName<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

struct Items<'f, T, F> {
    visit: F,
    found: &'f mut Option<InvalidAnswer>,
    item: PhantomData<T>,
}

impl<'de, T, F> Visitor<'de> for Items<'_, T, F>
where
    T: Deserialize<'de>,
    F: FnMut(usize, T) -> Result<(), InvalidAnswer>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0;
        while let Some(item) = items.next_element()? {
            if let Err(void) = (self.visit)(index, item) {
                *self.found = Some(void);
                return Err(A::Error::custom("stopped"));
            }
            index += 1;
        }
        Ok(())
    }
}

/// Something that is written either as a hash or as a whole object.
pub(crate) enum HashOrObject<'a, T> {
    Hash(&'a str),
    Whole(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for HashOrObject<'de, T> {
    fn deserialize<D: serde::Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = HashOrObject<'de, T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a hash or an object")
            }
            fn visit_borrowed_str<E: Error>(
                self,
                text: &'de str,
            ) -> Result<HashOrObject<'de, T>, E> {
                Ok(HashOrObject::Hash(text))
            }
            fn visit_map<A: MapAccess<'de>>(
                self,
                map: A,
            ) -> Result<HashOrObject<'de, T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(HashOrObject::Whole)
            }
        }
        reader.deserialize_any(Either(PhantomData))
    }
}

/// The hash that `text` writes, which stood in quotes.
pub(crate) fn hash_of(text: &str) -> Option<B256> {
    hex::decode_array(text).ok().map(B256::new)
}

/// Puts a member where it belongs.
pub(crate) fn put<'a, E: Error>(
    slot: &mut Option<Value<'a>>,
    value: Value<'a>,
    key: &str,
) -> Result<(), E> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::custom(format_args!("`{key}` is there twice"))),
    }
}

/// Declares an object by the members that are of interest. All are optional, `null` is
/// absent, and `other` is the first member with another name whose value is not `null`.
macro_rules! object {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $key:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        pub(crate) struct $name<'a> {
            $(pub(crate) $field: Option<$crate::json::Value<'a>>,)+
            #[allow(dead_code, reason = "of interest for headers only")]
            pub(crate) other: Option<std::borrow::Cow<'a, str>>,
        }

        impl<'de> serde::Deserialize<'de> for $name<'de> {
            fn deserialize<D: serde::Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
                struct Members;
                impl<'de> serde::de::Visitor<'de> for Members {
                    type Value = $name<'de>;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<$name<'de>, A::Error> {
                        let mut object = $name::default();
                        while let Some($crate::json::MemberName(key)) = map.next_key()? {
                            let value = map.next_value::<$crate::json::Value<'de>>()?;
                            match &*key {
                                $($key => $crate::json::put(&mut object.$field, value, $key)?,)+
                                other => {
                                    if [$($key),+].iter().any(|key| key.eq_ignore_ascii_case(other)) {
                                        return Err(serde::de::Error::custom(
                                            "a key in other letters than its own",
                                        ));
                                    }
                                    if object.other.is_none() && !value.is_null() {
                                        object.other = Some(key);
                                    }
                                }
                            }
                        }
                        $(object.$field = object.$field.filter(|value| !value.is_null());)+
                        Ok(object)
                    }
                }
                reader.deserialize_map(Members)
            }
        }
    };
}

pub(crate) use object;

#[cfg(test)]
mod tests {
    use super::*;

    object! { Pair { left: "left", right: "right", } }

    type Members<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a str>);

    #[track_caller]
    fn pair(text: &str, want: Result<Members<'_>, &str>) {
        let value = Value::new(text.as_bytes()).unwrap();
        let read = value.read::<Pair<'_>>();
        match want {
            Ok((left, right, other)) => {
                let pair = read.unwrap();
                assert_eq!(pair.left.map(|value| value.0), left, "{text}");
                assert_eq!(pair.right.map(|value| value.0), right, "{text}");
                assert_eq!(pair.other.as_deref(), other, "{text}");
            }
            Err(words) => {
                let void = read.unwrap_err();
                assert!(void.detail.contains(words), "{text}: {}", void.detail);
            }
        }
    }

    #[test]
    fn members_are_found_and_null_is_absent() {
        pair("{}", Ok((None, None, None)));
        pair(r#" {"right": [1, {}] ,"left":null} "#, Ok((None, Some("[1, {}]"), None)));
        pair(r#"{"l\u0065ft":1,"up":null,"down":2,"in":3}"#, Ok((Some("1"), None, Some("down"))));
    }

    #[test]
    fn what_two_clients_would_read_differently_is_refused() {
        pair(r#"{"left":1,"left":2}"#, Err("twice"));
        pair(r#"{"left":null,"left":2}"#, Err("twice"));
        pair(r#"{"left":1,"LEFT":2}"#, Err("other letters"));
        pair("[]", Err("an object"));
        pair(r#"{"left":1"#, Err("EOF"));
        pair(r#"{"left":1} 2"#, Err("trailing"));
    }

    #[test]
    fn depth_costs_no_stack() {
        let depth = 1_000_000;
        let text = format!(r#"{{"up":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        pair(&text, Ok((None, None, Some("up"))));
    }

    #[test]
    fn numbers_and_data() {
        let value = |text: &'static str| Value::new(text.as_bytes()).unwrap();
        assert_eq!(value(r#""0x1b4""#).quantity(), Some(436));
        assert_eq!(value(r#""0x0001""#).quantity(), Some(1));
        assert_eq!(value(r#""0x1b4""#).big(), Some(U256::from(436)));
        assert_eq!(value(r#""0x00fF""#).data(), Some(vec![0, 255]));
        assert_eq!(value(r#""0x""#).data(), Some(vec![]));
        assert_eq!(value(r#""0x0102""#).fixed(), Some([1, 2]));
        for bad in ["1", "null", r#""""#, r#""0x""#, r#""0x+1""#, r#""0xg""#, r#""0\u00781""#, "\""]
        {
            assert_eq!((value(bad).quantity(), value(bad).big()), (None, None), "{bad}");
        }
        for bad in [r#""0x1""#, r#""0102""#, r#""0x0x""#, r#""0x0x01""#, r#""0xéé""#] {
            assert_eq!((value(bad).data(), value(bad).fixed::<2>()), (None, None), "{bad}");
        }
        assert_eq!(value(r#""0x10000000000000000""#).quantity(), None);
        assert_eq!(Value::new(&[b'"', 0xff, b'"']), None);
    }

    #[test]
    fn findings_quote_little() {
        let text = "é".repeat(500);
        assert_eq!(Value(&text).to_string().chars().count(), QUOTE_BYTES_MAX + 3);
    }
}
