//! Lies that can be told again: whether and where follows from the call.

use alloy_primitives::keccak256;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use super::dial::Falsehood;
use crate::rpc::is_named;

impl Falsehood {
    /// Whether this call is answered with a lie, provided that its answer holds a value
    /// to be wrong about. For checkers that know what was planted.
    pub fn is_told(&self, method: &str, params: Option<&Value>) -> bool {
        self.chance(method, params).is_some()
    }

    /// What is said instead of the true answer of a call; the true one where no lie is told.
    pub fn instead_of(&self, method: &str, params: Option<&Value>, mut answer: Value) -> Value {
        self.bend(method, params, &mut answer);
        answer
    }

    /// Where the lie of this call comes from, if it gets one.
    fn chance(&self, method: &str, params: Option<&Value>) -> Option<SmallRng> {
        if !self.methods.iter().any(|name| is_named(name, method)) {
            return None;
        }
        let params = params.map(Value::to_string).unwrap_or_default();
        let call = [&self.seed.to_be_bytes()[..], method.as_bytes(), b"\n", params.as_bytes()];
        let mut rng = SmallRng::from_seed(keccak256(call.concat()).0);
        (rng.random::<f64>() * 100.0 < self.percent).then_some(rng)
    }

    /// Bends the true answer of a call; false when it is left as it was.
    pub(super) fn bend(&self, method: &str, params: Option<&Value>, answer: &mut Value) -> bool {
        let Some(mut rng) = self.chance(method, params) else { return false };
        let values = count(answer);
        values > 0 && bend_nth(answer, &mut rng.random_range(0..values))
    }
}

/// Values that can be wrong.
fn count(value: &Value) -> usize {
    match value {
        Value::Bool(_) => 1,
        Value::String(text) => usize::from(is_hex(text)),
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        Value::Null | Value::Number(_) => 0,
    }
}

fn is_hex(text: &str) -> bool {
    text.len() > 2
        && text.starts_with("0x")
        && text.ends_with(|last: char| last.is_ascii_hexdigit())
}

/// Bends the value with this number among those that [`count`] counts.
fn bend_nth(value: &mut Value, left: &mut usize) -> bool {
    match value {
        Value::Bool(truth) => turn(left, || *truth = !*truth),
        Value::String(text) if is_hex(text) => turn(left, || other_digit(text)),
        Value::Array(items) => items.iter_mut().any(|item| bend_nth(item, left)),
        Value::Object(members) => members.values_mut().any(|member| bend_nth(member, left)),
        Value::Null | Value::Number(_) | Value::String(_) => false,
    }
}

fn turn(left: &mut usize, bend: impl FnOnce()) -> bool {
    let here = *left == 0;
    if here {
        bend();
    } else {
        *left -= 1;
    }
    here
}

/// The last digit becomes another one. A quantity stays one: "0x0" becomes "0x1", and
/// nothing becomes "0x0" with zeros before it.
fn other_digit(text: &mut String) {
    let last = text.pop().and_then(|digit| digit.to_digit(16)).unwrap_or_default();
    let other = char::from_digit(last ^ 1, 16).unwrap_or('0');
    text.push(other);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn always() -> Falsehood {
        Falsehood { methods: vec!["eth_get*".to_owned()], percent: 100.0, seed: 7 }
    }

    fn bent(answer: Value) -> Value {
        let mut bent = answer;
        assert!(always().bend("eth_getBlockByNumber", None, &mut bent));
        bent
    }

    #[test]
    fn a_quantity_is_one_off() {
        assert_eq!(bent(json!("0x10")), json!("0x11"));
        assert_eq!(bent(json!("0x0")), json!("0x1"));
        assert_eq!(bent(json!("0xaf")), json!("0xae"));
    }
    #[test]
    fn one_value_of_many_differs() {
        let honest = json!({"number": "0x1", "hash": "0xabcd", "transactions": [{"value": "0x2"}]});
        let bent = bent(honest.clone());
        assert_ne!(bent, honest);
        let same = |path: &str| usize::from(bent.pointer(path) == honest.pointer(path));
        assert_eq!(same("/number") + same("/hash") + same("/transactions"), 2);
    }
    #[test]
    fn nothing_to_be_wrong_about() {
        for mut answer in [json!(null), json!([]), json!("Geth"), json!("0x")] {
            assert!(!always().bend("eth_getLogs", None, &mut answer), "{answer}");
        }
    }
    #[test]
    fn other_methods_are_told_the_truth() {
        assert!(!always().bend("eth_call", None, &mut json!("0x1")));
    }
    #[test]
    fn the_share_is_kept_and_the_same_calls_are_lied_to() {
        let some = Falsehood { percent: 10.0, ..always() };
        let told = |number: u64| some.is_told("eth_getBalance", Some(&json!(["0xa", number])));
        let first: Vec<u64> = (0..2000).filter(|number| told(*number)).collect();
        assert!((150..250).contains(&first.len()), "{}", first.len());
        assert_eq!(first, (0..2000).filter(|number| told(*number)).collect::<Vec<_>>());
        let other = Falsehood { seed: 8, ..some.clone() };
        assert!(first.iter().any(|n| !other.is_told("eth_getBalance", Some(&json!(["0xa", n])))));
    }
}
