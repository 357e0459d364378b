//! Whether the answers of several targets to one call mean the same, and where they differ.
//!
//! Answers are brought to one form first: what is known to be written differently
//! (`differences`) is settled among them and named, then each is compared in the canonical form
//! that the proxy has as well (`wellhead_eth::canonical`). Errors are answers too, by their
//! class; the words of an error are never compared. An answer that says only that this target
//! has not got it, or will not tell, is not compared at all.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wellhead_eth::{canonical, keccak256};
use wellhead_jsonrpc::{ReplyOutcome, scan, scan_error};
use wellhead_upstream::VerdictClass;

use super::plain;
use crate::difference::{DifferenceKind, known_differences, majority};
use crate::measure::run::Finished;

/// Letters of a value that a record holds.
const SHOWN_MAX: usize = 100;

/// What one target said.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TargetReply {
    /// `{"result": ..}`, or `{"error": {"class": ..}}` where the target should say so.
    Told(Value),
    /// It has not got it, will not tell, or failed.
    Untold(VerdictClass),
}

impl TargetReply {
    pub(super) fn of(finished: &Finished) -> Self {
        let class = finished.class();
        let told = match class {
            VerdictClass::Answer | VerdictClass::Null => {
                super::value(finished).map(|result| json!({ "result": result }))
            }
            VerdictClass::Reverted => {
                let class = class.word();
                Some(json!({ "error": { "class": class, "data": data(finished) } }))
            }
            VerdictClass::CallerFault => Some(json!({ "error": { "class": class.word() } })),
            VerdictClass::TransactionKnown
            | VerdictClass::TransactionRejected
            | VerdictClass::MissingData
            | VerdictClass::RangeTooLarge
            | VerdictClass::FilterTooLarge
            | VerdictClass::Throttled
            | VerdictClass::Billing
            | VerdictClass::Auth
            | VerdictClass::Unsupported
            | VerdictClass::Fault
            | VerdictClass::Void
            | VerdictClass::Unknown => None,
        };
        told.map_or(Self::Untold(class), Self::Told)
    }

    /// The result, where there is one.
    pub(super) fn result(&self) -> Option<&Value> {
        match self {
            Self::Told(value) => value.get("result"),
            Self::Untold(_) => None,
        }
    }
}

/// What a contract said when it reverted.
fn data(finished: &Finished) -> Value {
    let Some(done) = finished.last() else { return Value::Null };
    let raw = match scan(&done.body).map(|envelope| envelope.outcome) {
        Ok(ReplyOutcome::Error(span)) => {
            scan_error(span.of(&done.body)).and_then(|error| error.data)
        }
        Ok(ReplyOutcome::Result(_)) | Err(_) => None,
    };
    // Some write bytes, others words before them; only bytes are compared.
    raw.and_then(|raw| serde_json::from_slice(raw).ok())
        .filter(|data: &Value| data.as_str().is_some_and(|text| text.starts_with("0x")))
        .unwrap_or(Value::Null)
}

/// The answers to one call, beside each other.
#[derive(Debug)]
pub(super) struct ComparedAnswers {
    /// Settled; in the order of the replies.
    values: Vec<Option<Value>>,
    /// Of each that told something: equal where they mean the same.
    pub(super) digests: Vec<Option<String>>,
    /// Members in which they differ and mean the same.
    pub(super) known: BTreeSet<&'static str>,
}

/// Where two answers part.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parting {
    /// From `result` or `error` on.
    pub(super) path: Vec<JsonStep>,
    /// Absent where this one has no such thing.
    pub(super) here: Option<Value>,
    /// Likewise.
    pub(super) there: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JsonStep {
    Name(String),
    Place(usize),
}

impl Parting {
    /// Such as `result.logs[3].data`.
    pub(super) fn path_text(&self) -> String {
        let mut out = String::new();
        for step in &self.path {
            match step {
                JsonStep::Name(name) if out.is_empty() => out.push_str(name),
                JsonStep::Name(name) => out.push_str(&format!(".{name}")),
                JsonStep::Place(place) => out.push_str(&format!("[{place}]")),
            }
        }
        plain(&out, SHOWN_MAX)
    }
}

/// A value as a record holds it.
pub(super) fn shown(value: Option<&Value>) -> String {
    value.map_or("nothing".to_owned(), |value| plain(&value.to_string(), SHOWN_MAX))
}

impl ComparedAnswers {
    pub(super) fn of(method: &str, replies: &[TargetReply]) -> Self {
        let mut values: Vec<Option<Value>> = replies
            .iter()
            .map(|reply| match reply {
                TargetReply::Told(value) => Some(value.clone()),
                TargetReply::Untold(_) => None,
            })
            .collect();
        let mut settling = Settling { method, path: Vec::new(), known: BTreeSet::new() };
        let mut told: Vec<&mut Value> = values.iter_mut().flatten().collect();
        if told.len() > 1 {
            settling.settle(&mut told);
        }
        let known = settling.known;
        let digests = values.iter().map(|value| value.as_ref().map(digest)).collect();
        Self { values, digests, known }
    }

    /// The digest of more than half of the targets that told something.
    pub(super) fn majority(&self) -> Option<&str> {
        majority(self.digests.iter().flatten().map(String::as_str))
    }

    /// Those that say something else than most, or, where no answer has a majority, something
    /// else than any other; each with one that contradicts it.
    pub(super) fn apart(&self) -> Vec<(usize, usize)> {
        let majority = self.majority();
        let contradicts = |own: &str| {
            let mut others = self.digests.iter().enumerate();
            others.find_map(|(seat, other)| {
                let other = other.as_deref()?;
                let counts = majority.is_none_or(|most| most == other);
                (other != own && counts).then_some(seat)
            })
        };
        let mut apart = Vec::new();
        for (seat, digest) in self.digests.iter().enumerate() {
            let Some(own) = digest.as_deref() else { continue };
            if majority != Some(own)
                && let Some(against) = contradicts(own)
            {
                apart.push((seat, against));
            }
        }
        apart
    }

    /// Where these two part first.
    pub(super) fn parting(&self, here: usize, there: usize) -> Option<Parting> {
        let (here, there) = (self.values[here].as_ref()?, self.values[there].as_ref()?);
        let mut path = Vec::new();
        let (here, there) = part(Some(here), Some(there), &mut path)?;
        Some(Parting { path, here, there })
    }

    pub(super) fn value(&self, seat: usize) -> Option<&Value> {
        self.values[seat].as_ref()
    }
}

fn digest(value: &Value) -> String {
    let hash = keccak256(&form(value));
    hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn form(value: &Value) -> Vec<u8> {
    canonical(value.to_string().as_bytes())
}

/// Goes through several values at once and takes out what is known to differ.
struct Settling<'a> {
    method: &'a str,
    /// Names only.
    path: Vec<String>,
    known: BTreeSet<&'static str>,
}

impl Settling<'_> {
    fn rule(&self, kind: DifferenceKind) -> Option<&'static str> {
        let about = known_differences()
            .iter()
            .find(|known| known.kind == kind && known.is_about(self.method, &self.path));
        about.map(|known| known.member)
    }

    fn settle(&mut self, values: &mut [&mut Value]) {
        if values.iter().all(|value| value.is_object()) {
            self.objects(values);
        } else if let Some(length) = equal_lengths(values) {
            for place in 0..length {
                let mut items: Vec<&mut Value> =
                    values.iter_mut().filter_map(|value| value.get_mut(place)).collect();
                self.settle(&mut items);
            }
        } else if values.iter().all(|value| value.is_string()) {
            self.padded(values);
        } else if values.iter().all(|value| value.is_number()) {
            self.digits(values);
        }
    }

    fn objects(&mut self, values: &mut [&mut Value]) {
        let mut names = BTreeSet::new();
        for object in values.iter_mut().filter_map(|value| value.as_object_mut()) {
            // Nothing and `null` are the same.
            object.retain(|_, member| !member.is_null());
            names.extend(object.keys().cloned());
        }
        for name in names {
            self.path.push(name);
            let name = &self.path[self.path.len() - 1].clone();
            let all = values.iter().all(|value| value.get(name).is_some());
            let rule = match all {
                true if alike(values, name) => None,
                true => self.rule(DifferenceKind::Apart),
                false => {
                    self.rule(DifferenceKind::Apart).or_else(|| self.rule(DifferenceKind::Absent))
                }
            };
            if let Some(rule) = rule {
                self.known.insert(rule);
                for object in values.iter_mut().filter_map(|value| value.as_object_mut()) {
                    object.remove(name);
                }
            }
            let mut members: Vec<&mut Value> =
                values.iter_mut().filter_map(|value| value.get_mut(name)).collect();
            if members.len() > 1 {
                self.settle(&mut members);
            }
            self.path.pop();
        }
    }

    fn padded(&mut self, values: &mut [&mut Value]) {
        if values.iter().all(|value| *value == values[0]) {
            return;
        }
        let Some(rule) = self.rule(DifferenceKind::Padded) else { return };
        let forms: Vec<Option<String>> = values.iter().map(|value| stripped(value)).collect();
        if forms.iter().any(Option::is_none) {
            return;
        }
        let texts: BTreeSet<&str> = values.iter().filter_map(|value| value.as_str()).collect();
        let numbers: BTreeSet<&str> = forms.iter().flatten().map(String::as_str).collect();
        if numbers.len() < texts.len() {
            self.known.insert(rule);
        }
        for (value, form) in values.iter_mut().zip(&forms) {
            **value = json!(form);
        }
    }

    fn digits(&mut self, values: &mut [&mut Value]) {
        let Some(rule) = self.rule(DifferenceKind::Digits) else { return };
        let Some(first) = values[0].as_f64() else { return };
        let base = values[0].clone();
        for value in values.iter_mut() {
            let near = value.as_f64().is_some_and(|it| (it - first).abs() <= NEAR);
            if near && **value != base {
                // `1` and `1.0` are the same, and worth no word.
                if value.as_f64() != Some(first) {
                    self.known.insert(rule);
                }
                **value = base.clone();
            }
        }
    }
}

/// Shares that differ by less are rounded differently.
const NEAR: f64 = 1e-6;

fn alike(values: &[&mut Value], name: &str) -> bool {
    let mut members = values.iter().map(|value| value.get(name));
    let first = members.next().flatten();
    members.all(|member| member == first)
}

fn equal_lengths(values: &[&mut Value]) -> Option<usize> {
    let length = values.first()?.as_array()?.len();
    let same = |value: &&mut Value| value.as_array().is_some_and(|list| list.len() == length);
    values.iter().all(same).then_some(length)
}

/// A hex number without zeros in front.
fn stripped(value: &Value) -> Option<String> {
    let text = value.as_str()?;
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0').to_ascii_lowercase();
    Some(if digits.is_empty() { "0x0".to_owned() } else { format!("0x{digits}") })
}

type Sides = (Option<Value>, Option<Value>);

/// The first place in which they differ; `path` leads there.
fn part(here: Option<&Value>, there: Option<&Value>, path: &mut Vec<JsonStep>) -> Option<Sides> {
    let (Some(one), Some(other)) = (here, there) else {
        let told = here.or(there).is_some_and(|value| !value.is_null());
        return told.then(|| (here.cloned(), there.cloned()));
    };
    if form(one) == form(other) {
        return None;
    }
    match (one, other) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
            for name in names {
                path.push(JsonStep::Name(name.clone()));
                // In the form of an object that has this member alone, it may be nothing.
                let alone = |value: Option<&Value>| form(&json!({ name.as_str(): value }));
                let (ours, theirs) = (ours.get(name), theirs.get(name));
                if alone(ours) != alone(theirs)
                    && let Some(found) = part(ours, theirs, path)
                {
                    return Some(found);
                }
                path.pop();
            }
            Some((here.cloned(), there.cloned()))
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (place, (one, other)) in ours.iter().zip(theirs).enumerate() {
                path.push(JsonStep::Place(place));
                if let Some(found) = part(Some(one), Some(other), path) {
                    return Some(found);
                }
                path.pop();
            }
            Some((here.cloned(), there.cloned()))
        }
        (Value::Array(ours), Value::Array(theirs)) => Some(missing(ours, theirs, path)),
        (_, _) => Some((here.cloned(), there.cloned())),
    }
}

/// Of two lists of different length: what the longer one has and the shorter one has not.
fn missing(ours: &[Value], theirs: &[Value], path: &mut Vec<JsonStep>) -> Sides {
    let (long, short) = if ours.len() > theirs.len() { (ours, theirs) } else { (theirs, ours) };
    let forms: BTreeSet<Vec<u8>> = short.iter().map(form).collect();
    let lost = long.iter().position(|item| !forms.contains(&form(item)));
    // Else an item is there twice: the last one is too much.
    let place = lost.unwrap_or(long.len() - 1);
    path.push(JsonStep::Place(place));
    let item = Some(long[place].clone());
    if ours.len() > theirs.len() { (item, None) } else { (None, item) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(value: &Value) -> TargetReply {
        TargetReply::Told(json!({ "result": value }))
    }

    /// Which target differs from which, where, and what is known.
    #[track_caller]
    fn check(method: &str, answers: &[Value], apart: &[(usize, usize, &str)], known: &[&str]) {
        let replies: Vec<TargetReply> = answers.iter().map(told).collect();
        let compared = ComparedAnswers::of(method, &replies);
        let seen: Vec<(usize, usize, String)> = compared
            .apart()
            .into_iter()
            .map(|(here, there)| {
                let parting = compared.parting(here, there).expect("they differ");
                let told =
                    format!("{} / {}", shown(parting.here.as_ref()), shown(parting.there.as_ref()));
                (here, there, format!("{}: {told}", parting.path_text()))
            })
            .collect();
        let seen: Vec<(usize, usize, &str)> =
            seen.iter().map(|(here, there, text)| (*here, *there, text.as_str())).collect();
        assert_eq!(seen, apart, "{answers:?}");
        assert_eq!(compared.known.iter().copied().collect::<Vec<_>>(), known);
    }

    #[test]
    fn the_same_in_other_words() {
        check("eth_getCode", &[json!("0xAb"), json!("0xab")], &[], &[]);
        let one = json!({ "a": "0x1", "to": null, "size": "0x9", "logs": [{ "removed": false }] });
        let other = json!({ "a": "0x1", "logs": [{}] });
        check("eth_getTransactionReceipt", &[one, other], &[], &["removed", "size"]);
        check("eth_getStorageAt", &[json!("0x0"), json!("0X0000")], &[], &["result"]);
        check(
            "eth_feeHistory",
            &[json!({ "gasUsedRatio": [0.25, 1] }), json!({ "gasUsedRatio": [0.250_000_01, 1.0] })],
            &[],
            &["gasUsedRatio"],
        );
    }
    #[test]
    fn zeros_in_front_matter_elsewhere() {
        let apart = [(0, 1, r#"result: "0x1" / "0x01""#), (1, 0, r#"result: "0x01" / "0x1""#)];
        check("eth_getBalance", &[json!("0x1"), json!("0x01")], &apart, &[]);
    }
    #[test]
    fn one_of_three_is_in_the_minority() {
        let lie = json!({ "logs": [{ "data": "0x2" }] });
        let truth = json!({ "logs": [{ "data": "0x1" }] });
        check(
            "eth_getTransactionReceipt",
            &[truth.clone(), lie, truth],
            &[(1, 0, r#"result.logs[0].data: "0x2" / "0x1""#)],
            &[],
        );
    }
    #[test]
    fn where_no_answer_has_a_majority_all_are_told() {
        let apart = [(0, 1, "result: 1 / 2"), (1, 0, "result: 2 / 1"), (2, 0, "result: 3 / 1")];
        check("eth_getLogs", &[json!(1), json!(2), json!(3)], &apart, &[]);
    }
    #[test]
    fn what_is_left_out_of_a_list_is_named() {
        let all = json!({ "transactions": ["0xa", "0xb", "0xc"] });
        let few = json!({ "transactions": ["0xa", "0xc"] });
        let path = r#"result.transactions[1]: nothing / "0xb""#;
        check("eth_getBlockByHash", &[all.clone(), few, all], &[(1, 0, path)], &[]);
    }
    #[test]
    fn a_member_that_is_known_to_be_absent_is_compared_where_both_have_it() {
        let root = |root: &str| json!({ "withdrawalsRoot": root });
        let path = r#"result.withdrawalsRoot: "0x2" / "0x1""#;
        check("eth_getBlockByHash", &[root("0x1"), root("0x2"), root("0x1")], &[(1, 0, path)], &[]);
        check("eth_getBlockByHash", &[root("0x1"), json!({})], &[], &["withdrawalsRoot"]);
    }
    #[test]
    fn nothing_is_not_something() {
        let path = r#"result: nothing / "0x1""#;
        check("eth_getLogs", &[json!(null), json!("0x1"), json!("0x1")], &[(0, 1, path)], &[]);
        check("eth_getLogs", &[json!(null), json!(null)], &[], &[]);
    }
    #[test]
    fn errors_are_compared_by_class() {
        let error = |class: &str| TargetReply::Told(json!({ "error": { "class": class } }));
        let compared = ComparedAnswers::of("eth_call", &[error("reverted"), error("reverted")]);
        assert_eq!(compared.apart(), []);
        let compared = ComparedAnswers::of("eth_call", &[error("reverted"), told(&json!("0x"))]);
        let parting = compared.parting(0, 1).expect("they differ");
        assert_eq!(parting.path_text(), "error");
    }
    #[test]
    fn a_target_that_says_nothing_is_left_out() {
        let untold = TargetReply::Untold(VerdictClass::MissingData);
        let compared = ComparedAnswers::of("eth_call", &[untold, told(&json!(1)), told(&json!(1))]);
        assert_eq!((compared.apart(), compared.digests[0].as_ref()), (Vec::new(), None));
    }
}
