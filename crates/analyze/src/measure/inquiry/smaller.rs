//! Smaller calls that may show the same difference: one transaction instead of its block, one
//! log instead of a search.

use serde_json::Value;

use super::compare::{JsonStep, Parting};
use super::{is_hex, logs_of};
use crate::work::WorkCall;

/// Calls to try instead of `ask`, the smallest first; `values` are the two answers that part.
pub(super) fn smaller(
    ask: &WorkCall,
    parting: &Parting,
    values: [Option<&Value>; 2],
) -> Vec<WorkCall> {
    let item = item(parting, values);
    let hash = |name: &str| item.and_then(|item| hex(item, name, 66));
    let mut asks = Vec::new();
    match ask.method {
        "eth_getBlockByNumber" | "eth_getBlockByHash" => {
            // The item is a hash where the call asks for no more.
            let own = item.and_then(Value::as_str).map(str::to_owned);
            if let Some(hash) = hash("hash").or(own).filter(|_| is_within(parting, "transactions"))
            {
                asks.push(WorkCall {
                    method: "eth_getTransactionByHash",
                    params: format!(r#"["{hash}"]"#),
                });
            }
            if let Some(block) = ask.params.strip_suffix(",true]") {
                asks.push(WorkCall { method: ask.method, params: format!("{block},false]") });
            }
        }
        "eth_getBlockReceipts" => {
            if let Some(hash) = hash("transactionHash") {
                let params = format!(r#"["{hash}"]"#);
                asks.push(WorkCall { method: "eth_getTransactionReceipt", params });
            }
        }
        "eth_getLogs" => asks.extend(item.and_then(one_log)),
        "eth_feeHistory" => {
            let params: Option<Value> = serde_json::from_str(&ask.params).ok();
            let newest = params.as_ref().and_then(|params| params.get(1)?.as_str());
            if let Some(newest) = newest {
                let params = format!(r#"["0x1","{newest}",[]]"#);
                asks.push(WorkCall { method: ask.method, params });
            }
        }
        _ => {}
    }
    asks.retain(|smaller| smaller != ask);
    asks
}

/// The item of the first list on the way to where they part.
fn item<'a>(parting: &Parting, values: [Option<&'a Value>; 2]) -> Option<&'a Value> {
    let find = |mut value: &'a Value| {
        for step in &parting.path {
            match step {
                JsonStep::Name(name) => value = value.get(name)?,
                JsonStep::Place(place) => return value.get(*place),
            }
        }
        None
    };
    // The longer list has what the other one lacks; its item at that place is another one.
    let lacking = parting.here.is_none() && parting.path.iter().filter(is_place).count() == 1;
    let [here, there] = if lacking { [values[1], values[0]] } else { values };
    here.and_then(find).or_else(|| there.and_then(find))
}

fn is_place(step: &&JsonStep) -> bool {
    matches!(step, JsonStep::Place(_))
}

fn is_within(parting: &Parting, list: &str) -> bool {
    parting.path.iter().any(|step| matches!(step, JsonStep::Name(name) if name == list))
}

/// A search for this log and its like in its own block.
fn one_log(log: &Value) -> Option<WorkCall> {
    let number = super::quantity(log.get("blockNumber")?)?;
    let address = hex(log, "address", 42)?;
    let topic = log.get("topics").and_then(|topics| topics.get(0)).and_then(Value::as_str);
    Some(logs_of(number, number, &address, topic.filter(|topic| is_hex(topic, 66))))
}

fn hex(value: &Value, name: &str, length: usize) -> Option<String> {
    let text = value.get(name)?.as_str()?;
    is_hex(text, length).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::compare::{ComparedAnswers, TargetReply};
    use super::*;

    #[track_caller]
    fn check(method: &'static str, params: &str, here: &Value, there: &Value, expected: &[&str]) {
        let told = |result: &Value| TargetReply::Told(json!({ "result": result }));
        let compared = ComparedAnswers::of(method, &[told(here), told(there)]);
        let parting = compared.parting(0, 1).expect("they differ");
        let ask = WorkCall { method, params: params.to_owned() };
        let found = smaller(&ask, &parting, [compared.value(0), compared.value(1)]);
        let found: Vec<String> =
            found.iter().map(|ask| format!("{} {}", ask.method, ask.params)).collect();
        assert_eq!(found, expected);
    }

    fn hash(n: u8) -> String {
        format!("0x{n:064x}")
    }

    #[test]
    fn a_transaction_of_a_block() {
        let block = |value: &str| json!({ "transactions": [{ "hash": hash(1), "value": value }] });
        let whole = "eth_getBlockByNumber";
        let one = format!(r#"eth_getTransactionByHash ["{}"]"#, hash(1));
        let without = r#"eth_getBlockByNumber ["0x1",false]"#;
        check(whole, r#"["0x1",true]"#, &block("0x1"), &block("0x2"), &[&one, without]);
        let none = json!({ "transactions": [] });
        check(whole, r#"["0x1",true]"#, &none, &block("0x2"), &[&one, without]);
        let (hashes, none) = (json!({ "transactions": [hash(1)] }), json!({ "transactions": [] }));
        check(whole, r#"["0x1",false]"#, &none, &hashes, &[&one]);
    }
    #[test]
    fn a_header() {
        let block = |root: &str| json!({ "stateRoot": root });
        let without = r#"eth_getBlockByHash ["0x1",false]"#;
        check("eth_getBlockByHash", r#"["0x1",true]"#, &block("1"), &block("2"), &[without]);
        check("eth_getBlockByHash", r#"["0x1",false]"#, &block("1"), &block("2"), &[]);
    }
    #[test]
    fn a_receipt_of_a_block() {
        let all = |status: &str| json!([{ "transactionHash": hash(2), "status": status }]);
        let one = format!(r#"eth_getTransactionReceipt ["{}"]"#, hash(2));
        check("eth_getBlockReceipts", r#"["0x1"]"#, &all("0x1"), &all("0x0"), &[&one]);
    }
    #[test]
    fn a_log_that_one_has_not() {
        let address = format!("0x{:040x}", 9);
        let log = json!({ "blockNumber": "0x7", "address": address, "topics": [hash(3)] });
        let one = format!(
            r#"eth_getLogs [{{"fromBlock":"0x7","toBlock":"0x7","address":"{address}","topics":["{}"]}}]"#,
            hash(3)
        );
        check("eth_getLogs", "[{}]", &json!([]), &json!([log]), &[&one]);
    }
    #[test]
    fn a_balance_is_small_enough() {
        check("eth_getBalance", "[]", &json!("0x1"), &json!("0x2"), &[]);
    }
}
