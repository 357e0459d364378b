//! Between the listeners and the journey: the proxy, with the connections of one worker.

use std::sync::Arc;
use std::task::{Context, Poll};

use url::form_urlencoded;
use wellhead_access::Caller;
use wellhead_dispatch::now;
use wellhead_proxy::{
    Answer, Ctx, Proxy, Subscriber, SubscriberEvent, SubscriberMessage, Target, WorkerChains,
};
use wellhead_server::{
    AnswerBody, ClientHead, ClientSession, Handler, HttpAnswer, HttpRefusal, HttpRequest,
    Identified, OnQueued, RateLimitValues, RequestPath, SessionClose, SessionEvent,
};

use crate::access::CallerControl;

/// Hands requests of one worker to the proxy.
#[derive(Debug)]
pub(crate) struct WorkerHandler {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) worker: WorkerChains,
    /// `None` where clients are told apart by their addresses alone.
    pub(crate) callers: Option<Arc<CallerControl>>,
}

/// What a WebSocket connection is subscribed to; `None` where its path leads to no chain.
#[derive(Debug)]
pub(crate) struct SubscriberSession(Option<Subscriber>);

impl ClientSession for SubscriberSession {
    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<SessionEvent> {
        let Some(subscriber) = &self.0 else { return Poll::Pending };
        subscriber.poll_event(cx).map(|event| match event {
            SubscriberEvent::Notification(parts) => SessionEvent::Message(parts),
            SubscriberEvent::TooSlow => SessionEvent::Close(SessionClose::TooSlow),
            SubscriberEvent::Resync => SessionEvent::Close(SessionClose::Resync),
        })
    }
}

impl Handler for WorkerHandler {
    type Session = SubscriberSession;
    type Caller = Option<Caller>;

    fn identify(&self, head: &ClientHead<'_>) -> Result<Identified<Option<Caller>>, HttpRefusal> {
        match &self.callers {
            Some(callers) => callers.identify(head, now()),
            None => Ok(Identified::as_it_came(None)),
        }
    }

    fn open_session(&self, _caller: &Option<Caller>, path: &RequestPath) -> SubscriberSession {
        SubscriberSession(self.proxy.open_subscriber(&self.worker, path.chain()))
    }

    async fn handle_message(
        &self,
        session: &Arc<SubscriberSession>,
        request: HttpRequest<Option<Caller>>,
    ) -> HttpAnswer {
        let message = session.0.as_ref().map(SubscriberMessage::new);
        let mut answer = http_answer(self.answer(message.as_ref(), request).await);
        let subscribed = message.map_or_else(Vec::new, SubscriberMessage::into_subscribed);
        if !subscribed.is_empty() {
            let session = Arc::clone(session);
            answer.on_queued = Some(OnQueued(Box::new(move || {
                if let Some(subscriber) = &session.0 {
                    subscriber.activate(&subscribed);
                }
            })));
        }
        answer
    }

    fn note_cut(&self) {
        self.proxy.note_cut();
    }

    async fn handle(&self, request: HttpRequest<Option<Caller>>) -> HttpAnswer {
        http_answer(self.answer(None, request).await)
    }
}

impl WorkerHandler {
    async fn answer(
        &self,
        message: Option<&SubscriberMessage<'_>>,
        request: HttpRequest<Option<Caller>>,
    ) -> Answer {
        let HttpRequest { received_at, peer, caller, path, want_trail, may_stream, body } = request;
        let ctx = Ctx { received_at, peer, caller, want_trail, may_stream };
        // Its bytes are bounded with the head of the request; nearly every path has none.
        let query = path.query().unwrap_or_default();
        let select: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let target = Target { chain: path.chain(), select: &select };
        self.proxy.handle_message(&self.worker, message, ctx, target, body).await
    }
}

fn http_answer(answer: Answer) -> HttpAnswer {
    HttpAnswer {
        status: answer.status,
        body: AnswerBody::Many(answer.body),
        rest: answer.rest,
        upstream: answer.upstream,
        attempts: answer.attempts,
        cache: answer.cache,
        retry_after: answer.retry_after,
        rate_limit: answer
            .rate_limit
            .map(|fields| RateLimitValues { policy: fields.policy, state: fields.state }),
        warning: answer.warning,
        trail: answer.trail,
        on_queued: None,
    }
}
