//! Many calls in one request: whether they are answered as many.

use std::sync::Arc;

use bytes::Bytes;
use wellhead_eth::MethodTable;
use wellhead_jsonrpc::scan_batch;
use wellhead_transport::{Timing, WireReply};
use wellhead_upstream::{Judge, VerdictClass};

use super::{ClientPool, FinishedCall, TargetClient};
use crate::work::WorkCall;

/// What a record calls a batch of calls of several methods.
const SEVERAL: &str = "batch";

impl TargetClient {
    /// Sends one call `calls` times in one request, see [`TargetClient::send`].
    pub fn batch(
        &self,
        ask: &WorkCall,
        calls: u64,
    ) -> impl Future<Output = FinishedCall> + Send + use<> {
        let asks = (0..calls).map(|_| ask.clone()).collect();
        ClientPool::counted(self.emptiest(), move |line| line.batch(asks))
    }

    /// Sends these calls in one request: alone, or as a batch with ids from 1. The class of a
    /// batch is that of an answer where each of its calls was answered, else the class of the
    /// first one that was not, or of the refusal of the whole.
    pub fn send(&self, asks: Vec<WorkCall>) -> impl Future<Output = FinishedCall> + Send + use<> {
        ClientPool::counted(self.emptiest(), move |line| async move {
            match <[WorkCall; 1]>::try_from(asks) {
                Ok([ask]) => line.call(ask).await,
                Err(asks) => line.batch(asks).await,
            }
        })
    }
}

impl ClientPool {
    async fn batch(self: Arc<Self>, asks: Vec<WorkCall>) -> FinishedCall {
        asks.iter().for_each(|ask| self.meter(ask));
        let calls = asks.len() as u64;
        let items: Vec<String> = (1..).zip(&asks).map(|(id, ask)| ask.body(id)).collect();
        let first = asks.first().map_or(SEVERAL, |ask| ask.method);
        let is_one = asks.iter().all(|ask| ask.method == first);
        // Answers may come in any order: those to several methods are judged by no method's rules.
        let method = if is_one { first } else { SEVERAL };
        let body = Bytes::from(format!("[{}]", items.join(",")));
        let mut done = self.carry(method, body).await;
        if done.call.error.is_none() {
            judge(&mut done, method, calls);
        }
        done
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
