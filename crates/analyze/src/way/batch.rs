//! Many calls in one request: whether they are answered as many.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use wellhead_eth::MethodTable;
use wellhead_jsonrpc::scan_batch;
use wellhead_transport::{Timing, WireReply};
use wellhead_upstream::{Judge, VerdictClass};

use super::{FinishedCall, Leave, Way};
use crate::work::WorkCall;

impl Way {
    /// Sends one call `calls` times in one request, with ids from 1. Its class is that of an
    /// answer where each of them was answered, else the class of the first one that was not, or
    /// of the refusal of the whole.
    pub fn batch(
        &self,
        ask: &WorkCall,
        calls: u64,
    ) -> impl Future<Output = FinishedCall> + Send + use<> {
        let line = self.lines.iter().min_by_key(|line| line.under_way.load(Relaxed));
        let line = Arc::clone(line.expect("a way has at least one line"));
        let items: Vec<String> = (1..=calls).map(|id| ask.body(id)).collect();
        let (method, body) = (ask.method, Bytes::from(format!("[{}]", items.join(","))));
        line.under_way.fetch_add(1, Relaxed);
        async move {
            let _leave = Leave(&line.under_way);
            let mut done = Arc::clone(&line).carry(method, body).await;
            if done.call.error.is_none() {
                judge(&mut done, method, calls);
            }
            done
        }
    }
}

fn judge(done: &mut FinishedCall, method: &str, calls: u64) {
    let most = usize::try_from(calls).unwrap_or(usize::MAX);
    // What is no list was judged already, as the answer to a call.
    let Ok(items) = scan_batch(&done.body, most) else { return };
    let row = MethodTable::standard().row(method);
    let status = done.call.status.unwrap_or(200);
    let reply = WireReply::whole(status, done.body.clone(), Timing::default());
    let verdicts = items.iter().map(|item| Judge::standard().item(row, &reply, item));
    let worst = verdicts.into_iter().find(|verdict| verdict.class != VerdictClass::Answer);
    (done.call.class, done.call.rule) = match worst {
        Some(verdict) => (verdict.class.word().to_owned(), verdict.rule.to_owned()),
        None if items.len() as u64 == calls => {
            (VerdictClass::Answer.word().to_owned(), "batch-whole".to_owned())
        }
        None => (VerdictClass::Fault.word().to_owned(), "batch-items-missing".to_owned()),
    };
}
