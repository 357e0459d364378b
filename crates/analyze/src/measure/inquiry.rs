//! Experiments that look at what is answered, of all targets side by side.
//!
//! A plan (`plan`) asks for cells of calls and is told how many failed; an inquiry reads answers
//! and decides by them what to ask next. It asks through a [`Panel`](crate::measure::run::Panel), which
//! keeps to pace, budget and stop, and writes what it made of the answers into the factors of its
//! cells: no answer is kept in a record. What the cells mean is `verdict`'s business.

pub mod agree;
mod compare;
mod extent;
pub mod fresh;
mod material;
pub mod pushed;
pub mod reach;
mod smaller;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::measure::run::Finished;
use crate::record::factors;
use crate::work::WorkCall;

type Factors = BTreeMap<String, String>;

/// The result of a finished call as JSON, where it has one.
fn value(finished: &Finished) -> Option<Value> {
    serde_json::from_slice(&finished.last()?.result()?).ok()
}

/// A quantity such as `"0x1f"`.
fn quantity(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}

/// Whether a text is `0x` and digits, of this length in all.
fn is_hex(text: &str, length: usize) -> bool {
    let digits = text.strip_prefix("0x");
    text.len() == length
        && digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// A search for the logs of one contract; with this first topic, where there is one.
fn logs_of(from: u64, to: u64, address: &str, topic: Option<&str>) -> WorkCall {
    let mut filter =
        format!(r#""fromBlock":"0x{from:x}","toBlock":"0x{to:x}","address":"{address}""#);
    if let Some(topic) = topic {
        filter.push_str(&format!(r#","topics":["{topic}"]"#));
    }
    WorkCall { method: "eth_getLogs", params: format!("[{{{filter}}}]") }
}

/// A text from outside, fit for a record: short, on one line, and without what moves a cursor.
fn plain(text: &str, letters_max: usize) -> String {
    let mut letters = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    let mut out: String = letters.by_ref().take(letters_max).collect();
    let left = letters.count();
    if left > 0 {
        out.push_str(&format!("... ({left} more)"));
    }
    out
}
