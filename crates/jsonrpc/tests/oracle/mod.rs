//! A second, slow reading of the same texts, with `serde_json`, for the property
//! tests and the fuzz targets to compare with. Each `check_*` panics where the
//! two disagree.
//!
//! Where we mean to differ from `serde_json`'s types it is written down here:
//! numbers beyond `f64` are numbers, depth has a bound of ours, and half
//! surrogate pairs are refused from clients but not from upstreams.

#![allow(dead_code, reason = "each test and fuzz target uses its part")]
#![allow(unreachable_pub, reason = "included as a module by several crates")]

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use wellhead_jsonrpc::{
    Call, Envelope, Malformed, MalformedReason, Packet, ParseError, ParseLimits, ReplyHead,
    ReplyOutcome, ScanError, Span, parse, raw, scan, scan_batch, scan_error, scan_head, scan_id,
    write,
};

/// The bound on replies that `scan` documents.
const REPLY_DEPTH_MAX: usize = 4096;

// --- what a client sent ---

/// Compares `parse` with the slow reading.
pub fn check_parse(body: &[u8], limits: ParseLimits) {
    let body = Bytes::copy_from_slice(body);
    let ours = parse(&body, limits);
    let Some(text) = valid(&body).filter(|text| strings(text).all(decodes)) else {
        match ours {
            Err(_) => return,
            Ok(packet) => panic!("accepted {:?} as {packet:?}", lossy(&body)),
        }
    };
    let ours = match ours {
        Ok(packet) => packet,
        Err(error) => return check_refusal(text, limits, error),
    };
    assert!(depth(text) <= limits.depth_max, "too deep: {text}");
    match ours {
        Packet::Single(ours) => {
            assert!(!text.trim_start().starts_with('['), "{text}");
            check_item(text.trim_matches(WHITE_SPACE), ours);
        }
        Packet::Batch(ours) => {
            let items: Vec<&RawValue> = serde_json::from_str(text).expect("an array");
            assert_eq!(items.len(), ours.len(), "{text}");
            for (item, ours) in items.into_iter().zip(ours) {
                check_item(item.get(), ours);
            }
        }
    }
}

fn check_refusal(text: &str, limits: ParseLimits, error: ParseError) {
    let items = serde_json::from_str::<Vec<&RawValue>>(text).ok().map(|items| items.len());
    let fair = match error {
        ParseError::TooDeep { max } => max == limits.depth_max && depth(text) > max,
        ParseError::EmptyBatch => items == Some(0),
        ParseError::BatchTooLarge { max } => {
            max == limits.batch_items_max && items.is_some_and(|items| items > max)
        }
        ParseError::Empty | ParseError::NotJson { .. } | ParseError::TooLarge => false,
    };
    assert!(fair, "refused {text:?} with {error:?}");
}

fn check_item(text: &str, ours: Result<Call, Malformed>) {
    match (slow_item(text), ours) {
        (Ok((id, method, params)), Ok(ours)) => {
            assert_eq!(ours.id(), id.map(str::as_bytes), "id of {text}");
            assert_eq!(ours.method(), method, "method of {text}");
            assert_eq!(ours.params(), params.map(str::as_bytes), "params of {text}");
            assert_eq!(ours.raw(), text.as_bytes(), "the whole of {text}");
            assert_eq!(ours.is_notification(), id.is_none(), "{text}");
            check_round_trip(&ours);
        }
        (Err((id, reason)), Err(ours)) => {
            assert_eq!(ours.reason, reason, "{text}");
            assert_eq!(ours.id.as_deref(), id.map(str::as_bytes), "id of {text}");
        }
        (slow, ours) => panic!("{text}: {slow:?} against {ours:?}"),
    }
}

/// What we send for a call reads as that call.
fn check_round_trip(call: &Call) {
    let mut out = Vec::new();
    write::call(&mut out, 77, call.method(), call.params());
    let limits = ParseLimits { depth_max: usize::MAX, ..ParseLimits::default() };
    match parse(&Bytes::from(out), limits) {
        Ok(Packet::Single(Ok(again))) => {
            assert_eq!(again.id(), Some(&b"77"[..]));
            assert_eq!(again.method(), call.method());
            assert_eq!(again.params(), Some(call.params().unwrap_or(b"[]")));
        }
        other => panic!("our own call came back as {other:?}"),
    }
}

type SlowCall<'a> = (Option<&'a str>, String, Option<&'a str>);
type SlowMalformed<'a> = (Option<&'a str>, MalformedReason);

fn slow_item(text: &str) -> Result<SlowCall<'_>, SlowMalformed<'_>> {
    let Some(members) = members(text) else {
        return Err((None, MalformedReason::NotAnObject));
    };
    let all = |key: &str| -> Vec<&str> {
        members.iter().filter(|(name, _)| name == key.as_bytes()).map(|(_, raw)| *raw).collect()
    };
    let ids = all("id");
    let id = ids.first().copied();
    let scalar = |id: &str| !id.starts_with(['{', '[', 't', 'f']);
    let malformed = |reason| Err((id.filter(|id| ids.len() == 1 && scalar(id)), reason));
    let mut names: Vec<_> = members.iter().map(|(name, _)| name).collect();
    names.sort();
    let keys = names.len();
    names.dedup();
    if names.len() < keys {
        return malformed(MalformedReason::DuplicateKey);
    }
    let version = all("jsonrpc").first().map(|raw| serde_json::from_str::<String>(raw).ok());
    if version.is_some_and(|version| version.as_deref() != Some("2.0")) {
        return malformed(MalformedReason::WrongVersion);
    }
    if id.is_some_and(|id| !scalar(id)) {
        return malformed(MalformedReason::IdNotScalar);
    }
    let Some(method) = all("method").first().copied() else {
        return malformed(MalformedReason::MethodMissing);
    };
    let Ok(method) = serde_json::from_str::<String>(method) else {
        return malformed(MalformedReason::MethodNotAString);
    };
    let params = all("params").first().copied().filter(|&params| params != "null");
    if params.is_some_and(|params| !params.starts_with(['[', '{'])) {
        return malformed(MalformedReason::ParamsNotStructured);
    }
    Ok((id, method, params))
}

// --- what an upstream answered ---

/// Compares `scan` and `scan_batch` with the slow reading.
pub fn check_scan(body: &[u8]) {
    let ours = scan(body);
    let batch = scan_batch(body, 16);
    let Some(text) = valid(body) else {
        assert!(
            matches!(
                ours,
                Err(ScanError::NotJson { .. }
                    | ScanError::Truncated
                    | ScanError::Empty
                    | ScanError::TooDeep)
            ),
            "{:?} read as {ours:?}",
            lossy(body)
        );
        assert!(batch.is_err(), "{:?} read as {batch:?}", lossy(body));
        return;
    };
    if depth(text) > REPLY_DEPTH_MAX {
        assert_eq!(ours, Err(ScanError::TooDeep));
        assert!(batch.is_err());
        return;
    }
    let slow = slow_envelope(text);
    if let Ok(envelope) = &ours {
        assert_eq!(scan_id(body), envelope.id, "the id of {text}");
    }
    assert_eq!(pieces(body, ours), slow, "{text}");
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text) else {
        assert_eq!(batch, Err(ScanError::NotAnArray), "{text}");
        return;
    };
    let slow: Result<Vec<_>, _> = items.iter().map(|item| slow_envelope(item.get())).collect();
    match batch {
        Err(ScanError::TooManyItems) => assert!(items.len() > 16, "{text}"),
        Ok(ours) => {
            let ours: Vec<_> =
                ours.into_iter().filter_map(|ours| pieces(body, Ok(ours)).ok()).collect();
            assert_eq!(Ok(ours), slow, "{text}");
        }
        Err(error) => assert_eq!(Err(error), slow, "{text}"),
    }
}

/// Id, then result or error, each as written.
type Pieces<'a> = (Option<&'a str>, Result<&'a str, &'a str>);

fn pieces(body: &[u8], ours: Result<Envelope, ScanError>) -> Result<Pieces<'_>, ScanError> {
    let text = |span: Span| std::str::from_utf8(span.of(body)).expect("scan checks the encoding");
    ours.map(|envelope| {
        let outcome = match envelope.outcome {
            ReplyOutcome::Result(span) => Ok(text(span)),
            ReplyOutcome::Error(span) => Err(text(span)),
        };
        (envelope.id.map(text), outcome)
    })
}

fn slow_envelope(text: &str) -> Result<Pieces<'_>, ScanError> {
    let members = members(text).ok_or(ScanError::NotAnObject)?;
    let mut found = [None; 3];
    for (name, value) in members {
        let place = match name.as_slice() {
            b"id" => 0,
            b"result" => 1,
            b"error" => 2,
            _ => continue,
        };
        if found[place].replace(value).is_some() {
            found = [Some("twice"); 3];
            break;
        }
    }
    match found {
        [Some("twice"), ..] => Err(ScanError::DuplicateKey),
        [id, Some(result), None | Some("null")] => Ok((id, Ok(result))),
        [id, None | Some("null"), Some(error)] if error != "null" => Ok((id, Err(error))),
        [_, None, None | Some("null")] => Err(ScanError::NoOutcome),
        [_, _, _] => Err(ScanError::BothOutcomes),
    }
}

/// Compares `scan_head` on every prefix (of at most `prefixes_max`) with `scan` on the whole.
pub fn check_head(body: &[u8], prefixes_max: usize) {
    let whole = scan(body);
    let mut known = None;
    for end in 0..=body.len().min(prefixes_max) {
        let head = scan_head(&body[..end]);
        match (head, whole) {
            (ReplyHead::NeedMore, Ok(_)) => {
                assert!(end < body.len(), "a whole reply needs more: {:?}", lossy(body));
                assert!(known.is_none(), "known, then not: {:?}", lossy(&body[..end]));
            }
            (ReplyHead::Unknown, Ok(_)) => panic!("unknown at {end}: {:?}", lossy(body)),
            (ReplyHead::Result { id, value_at }, Ok(envelope)) => {
                let ReplyOutcome::Result(span) = envelope.outcome else {
                    panic!("not a result: {:?}", lossy(body));
                };
                assert_eq!(span.start, value_at, "{:?}", lossy(body));
                check_head_id(id, value_at, envelope, body);
            }
            (ReplyHead::Error { id, value_at }, Ok(envelope)) => {
                let ReplyOutcome::Error(span) = envelope.outcome else {
                    panic!("not an error: {:?}", lossy(body));
                };
                assert_eq!(span.start, value_at, "{:?}", lossy(body));
                check_head_id(id, value_at, envelope, body);
            }
            // What `scan` refuses as a whole may well have begun as a reply,
            // but the head must not change its mind about it.
            (_, Err(_)) => {}
        }
        match (known, head) {
            (Some(known), head) => assert_eq!(known, head, "{:?}", lossy(&body[..end])),
            (None, ReplyHead::NeedMore) => {}
            (None, head) => known = Some(head),
        }
    }
}

fn check_head_id(id: Option<Span>, value_at: u32, envelope: Envelope, body: &[u8]) {
    match id {
        Some(_) => assert_eq!(id, envelope.id, "{:?}", lossy(body)),
        None => assert!(
            envelope.id.is_none_or(|id| id.start > value_at),
            "the id came before: {:?}",
            lossy(body)
        ),
    }
}

// --- values ---

/// Looks into any bytes as if they were a value, and compares where they are one.
pub fn check_raw(bytes: &[u8]) {
    // Never a panic, whatever the bytes.
    let items: Vec<_> = raw::items(bytes).collect();
    let found: Vec<_> = raw::members(bytes).collect();
    let string = raw::string(bytes);
    let error = scan_error(bytes);
    let _ = (raw::quantity(bytes), raw::is_null(bytes), raw::field(bytes, "id"));
    let Some(text) = valid(bytes).filter(|text| strings(text).all(decodes)) else { return };
    if depth(text) > REPLY_DEPTH_MAX {
        return;
    }
    let slow: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    let slow: Vec<_> = slow.into_iter().map(|item| item.get().as_bytes()).collect();
    assert_eq!(items, slow, "{text}");
    for (index, item) in slow.iter().enumerate() {
        assert_eq!(raw::item(bytes, index), Some(*item), "{text}");
    }
    assert_eq!(raw::item(bytes, slow.len()), None, "{text}");
    let slow = members(text).unwrap_or_default();
    assert_eq!(found.len(), slow.len(), "{text}");
    for ((name, value), (slow_name, slow_value)) in found.iter().zip(&slow) {
        assert_eq!((name.as_bytes(), *value), (&slow_name[..], slow_value.as_bytes()), "{text}");
        let last = slow.iter().rfind(|(slow_name, _)| slow_name == name.as_bytes());
        assert_eq!(raw::field(bytes, name), last.map(|(_, value)| value.as_bytes()), "{text}");
    }
    assert_eq!(string.as_deref(), serde_json::from_str::<String>(text).ok().as_deref(), "{text}");
    let is_error = text.trim_start().starts_with(['{', '"']);
    assert_eq!(error.is_some(), is_error, "{text}");
    if let Some(text) = string {
        let mut out = Vec::new();
        write::string(&mut out, &text);
        assert_eq!(out, serde_json::to_vec(&text).expect("a string"), "{text:?}");
    }
}

// --- the slow reading itself ---

const WHITE_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// The text, if it is JSON in UTF-8.
pub fn valid(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    serde_json::from_str::<IgnoredAny>(text).ok().map(|_| text)
}

/// The strings of a valid text, keys as well, quotes included.
fn strings(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let string = &rest[rest.find('"')?..];
        let mut escaped = false;
        let end = string.bytes().skip(1).position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        })?;
        let (string, after) = string.split_at(end + 2);
        rest = after;
        Some(string)
    })
}

fn decodes(string: &str) -> bool {
    serde_json::from_str::<String>(string).is_ok()
}

/// How deep a valid text is nested.
fn depth(text: &str) -> usize {
    let mut outside = text.to_owned();
    for string in strings(text) {
        outside = outside.replacen(string, "", 1);
    }
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in outside.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Keys (escapes undone, half surrogates as they fall) and values as written, in
/// order, equal keys and all. `None` when it is no object.
fn members(text: &str) -> Option<Vec<(Vec<u8>, &str)>> {
    serde_json::from_str::<Members<'_>>(text).ok().map(|members| members.0)
}

struct Members<'a>(Vec<(Vec<u8>, &'a str)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(KeyBytes(key)) = map.next_key()? {
                    members.push((key, map.next_value::<&RawValue>()?.get()));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// A key as bytes, so that half surrogates do not make `serde_json` give up.
struct KeyBytes(Vec<u8>);

impl<'de> Deserialize<'de> for KeyBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl Visitor<'_> for Collect {
            type Value = KeyBytes;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a key")
            }
            fn visit_bytes<E>(self, key: &[u8]) -> Result<KeyBytes, E> {
                Ok(KeyBytes(key.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Collect)
    }
}

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
