//! JSON of tokens and key sets: a member that is named twice is an error, at any depth.
//!
//! Readers disagree on which of two members counts, and one that checks the first while another
//! acts on the last is a classic way around a check (RFC 7515, section 4; RFC 8725, section 2.6).

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// One JSON value and nothing after it.
///
/// `serde_json` refuses values nested deeper than 128, half surrogate pairs and numbers beyond `f64`.
pub(super) fn parse(text: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice::<UniqueMembers>(text).map(|value| value.0)
}

/// A JSON object and nothing after it.
pub(super) fn parse_object(text: &[u8]) -> Option<Map<String, Value>> {
    match parse(text) {
        Ok(Value::Object(object)) => Some(object),
        Ok(_) | Err(_) => None,
    }
}

struct UniqueMembers(Value);

impl<'de> Deserialize<'de> for UniqueMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(Self)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(UniqueMembers(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let UniqueMembers(value) = members.next_value()?;
            if object.insert(name, value).is_some() {
                // Without its name: the text may be a token's.
                return Err(A::Error::custom("a member is named twice"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn check(text: &str, valid: bool) {
        assert_eq!(parse(text.as_bytes()).is_ok(), valid, "{text}");
        if valid {
            let naive: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text.as_bytes()).unwrap(), naive, "{text}");
        }
    }

    #[test]
    fn values_are_what_serde_json_reads() {
        check(r#"{"a":1,"b":[-1,1.5,"x\u00e9",true,false,null,{}],"c":{"a":2}}"#, true);
        check(" [] ", true);
        check("18446744073709551615", true);
    }

    #[test]
    fn what_is_no_value_or_more_than_one_is_refused() {
        check("", false);
        check("{} {}", false);
        check(r#"{"a":1}x"#, false);
        check("1e999", false);
        check(r#""\ud800""#, false);
        check(&format!("{}{}", "[".repeat(127), "]".repeat(127)), true);
        check(&format!("{}{}", "[".repeat(128), "]".repeat(128)), false);
    }

    #[test]
    fn a_member_named_twice_is_refused_at_any_depth() {
        check(r#"{"a":1,"a":1}"#, false);
        check(r#"{"alg":1,"\u0061lg":2}"#, false);
        check(r#"[{"a":{"b":1,"c":2,"b":3}}]"#, false);
        check(r#"[{"a":1},{"a":1}]"#, true);
    }
}
