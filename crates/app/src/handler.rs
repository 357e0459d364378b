//! Between the listeners and the journey: one worker's proxy and lanes.

use std::sync::Arc;

use wellhead_proxy::{Ctx, Lanes, Proxy};
use wellhead_server::{Answer, AnswerBody, Handler, Request};

/// Hands requests of one worker to the proxy.
#[derive(Debug)]
pub(crate) struct WorkerHandler {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) lanes: Lanes,
}

impl Handler for WorkerHandler {
    async fn handle(&self, request: Request) -> Answer {
        let Request { received_at, peer, path, want_trail, body } = request;
        let ctx = Ctx { received_at, peer, want_trail };
        let answer = self.proxy.handle(&self.lanes, ctx, path.chain(), body).await;
        Answer {
            status: answer.status,
            body: AnswerBody::Many(answer.body),
            rest: answer.rest,
            upstream: answer.upstream,
            attempts: answer.attempts,
            cache: answer.cache,
            retry_after: answer.retry_after,
            trail: answer.trail,
        }
    }
}
