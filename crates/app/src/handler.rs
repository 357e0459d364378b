//! Between the listeners and the journey: the proxy, with the connections of one worker.

use std::sync::Arc;

use url::form_urlencoded;
use wellhead_proxy::{Ctx, Proxy, Target, WorkerChains};
use wellhead_server::{AnswerBody, Handler, HttpAnswer, HttpRequest};

/// Hands requests of one worker to the proxy.
#[derive(Debug)]
pub(crate) struct WorkerHandler {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) worker: WorkerChains,
}

impl Handler for WorkerHandler {
    fn note_cut(&self) {
        self.proxy.note_cut();
    }

    async fn handle(&self, request: HttpRequest) -> HttpAnswer {
        let HttpRequest { received_at, peer, path, want_trail, body } = request;
        let ctx = Ctx { received_at, peer, want_trail };
        // Its bytes are bounded with the head of the request; nearly every path has none.
        let query = path.query().unwrap_or_default();
        let select: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let target = Target { chain: path.chain(), select: &select };
        let answer = self.proxy.handle(&self.worker, ctx, target, body).await;
        HttpAnswer {
            status: answer.status,
            body: AnswerBody::Many(answer.body),
            rest: answer.rest,
            upstream: answer.upstream,
            attempts: answer.attempts,
            cache: answer.cache,
            retry_after: answer.retry_after,
            warning: answer.warning,
            trail: answer.trail,
        }
    }
}
