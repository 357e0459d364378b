//! A client that was told of a block can read it at once, on any connection: by its number, by its hash, and
//! what is in it.
//!
//! Judged are the reads that subscribers make when they hear of a block, while one upstream is well from
//! the head to the answer. Left out: a block that had been left when the answer came.

use serde_json::Value;

use super::Heard;
use super::stream::left_at;
use crate::check::{Finding, Reply, replies};
use crate::evidence::{At, Flow, PromptedRead, Request};
use crate::upstream::LOGS;

pub(super) fn check(heard: &Heard<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for read in &heard.evidence.prompted {
        let Some(request) = heard.evidence.requests.get(read.request) else { continue };
        let Some(answered) = request.answered.as_ref().filter(|it| it.flow != Flow::Cut) else {
            continue;
        };
        // It may have been left before it was told, which was not known yet.
        let left = left_at(heard.evidence, request.chain, read.hash, At::ZERO);
        if left.is_some_and(|left| left <= answered.at)
            || !heard.is_one_well(request.chain, request.at, answered.at)
        {
            continue;
        }
        // What cannot be read is told by `answers`.
        let Ok(replies) = replies(&answered.body, false) else { continue };
        let found = match replies.first().map(Reply::outcome) {
            Some(Ok(result)) if is_of_the_block(heard, request, read, result) => continue,
            Some(Ok(result)) => result.get(..80).unwrap_or(result),
            Some(Err(error)) => error,
            None => "nothing",
        };
        let asked = request.items[0].key();
        findings.push((answered.at, format!("told of block {}; {asked} is {found}", read.number)));
    }
    findings
}

fn is_of_the_block(
    heard: &Heard<'_>,
    request: &Request,
    read: &PromptedRead,
    result: &str,
) -> bool {
    let Ok(result) = serde_json::from_str::<Value>(result) else { return false };
    let hash = read.hash.to_string();
    match &result {
        Value::Object(block) => block.get("hash").and_then(Value::as_str) == Some(&*hash),
        Value::Array(items) if items.is_empty() => {
            let world = heard.evidence.worlds.get(request.chain);
            let block = world.and_then(|world| world.chain().by_hash(&read.hash).cloned());
            block.and_then(|block| block.body.clone()).is_none_or(|body| {
                match request.items[0].method.as_str() {
                    LOGS => body.receipts.iter().all(|receipt| receipt.envelope.logs().is_empty()),
                    _ => body.txs.is_empty(),
                }
            })
        }
        Value::Array(items) => items.iter().all(|item| item["blockHash"].as_str() == Some(&*hash)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::sample::{block, evidence, heads};
    use super::*;
    use crate::check::sample::{answered, read, request};
    use crate::evidence::Replaced;

    /// A read of block `9a`, which is left so many milliseconds after it was sent; the answer comes after two.
    fn check(result: &str, left: Option<u64>, found: usize) {
        let (number, hash) = block("9a");
        let mut request = request(vec![read("1")]);
        let result = result.replace("HASH", &hash.to_string());
        request.answered = Some(answered(&format!(r#"{{"id":1,{result}}}"#)));
        let mut evidence = evidence(vec![heads("9a")]);
        let left = left.map(|after| request.at + Duration::from_millis(after));
        evidence.reorgs[0].extend(left.map(|at| Replaced {
            at,
            head: (number, hash),
            dropped: vec![hash],
        }));
        evidence.requests = vec![request];
        evidence.prompted = vec![PromptedRead { request: 0, number, hash }];
        let findings = super::check(&Heard::of(&evidence));
        assert_eq!(findings.len(), found, "{result}: {findings:?}");
    }

    #[test]
    fn what_was_told_can_be_read() {
        check(r#""result":{"hash":"HASH"}"#, None, 0);
        check(r#""result":[{"blockHash":"HASH"}]"#, None, 0);
        check(r#""result":null"#, None, 1);
        check(r#""result":{"hash":"0x00"}"#, None, 1);
        check(r#""result":[{"blockHash":"0x00"}]"#, None, 1);
        check(r#""error":{"code":-32000,"message":"unknown block"}"#, None, 1);
    }

    #[test]
    fn a_block_that_was_left_is_owed_to_none() {
        check(r#""result":null"#, Some(1), 0);
        check(r#""result":null"#, Some(3), 1);
    }
}
