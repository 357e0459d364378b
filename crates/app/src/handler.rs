//! Between the listeners and the journey: the proxy, with the connections of one worker.

use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use url::form_urlencoded;
use wellhead_access::{Caller, HeldPlace, LimitDenied};
use wellhead_dispatch::now;
use wellhead_proxy::{
    Answer, Ctx, ProxyWorker, Subscriber, SubscriberEvent, SubscriberMessage, Target,
};
use wellhead_server::{
    AnswerBody, ClientHead, ClientSession, Handler, HttpAnswer, HttpRefusal, HttpRequest,
    Identified, OnQueued, RateLimitValues, RequestPath, SessionClose, SessionEvent,
};

use crate::access::CallerControl;

/// Hands requests of one worker to the proxy.
#[derive(Debug)]
pub(crate) struct WorkerHandler {
    /// A request looks once, and goes on with what it saw when the settings change.
    pub(crate) current: Arc<ArcSwap<ProxyWorker>>,
    /// `None` where clients are told apart by their addresses alone.
    pub(crate) callers: Option<Arc<CallerControl>>,
}

/// What a WebSocket connection keeps between its messages.
#[derive(Debug)]
pub(crate) struct SubscriberSession {
    /// What it is subscribed to; `None` where its path leads to no chain.
    subscriber: Option<Subscriber>,
    /// What its calls come from, as the keys were when it was last looked at.
    caller: Option<SessionCaller>,
    /// Its place among the connections of its caller, or none because there is no more.
    place: Result<HeldPlace, LimitDenied>,
}

/// The caller of a connection, which may outlive its key.
#[derive(Debug)]
struct SessionCaller {
    callers: Arc<CallerControl>,
    current: Mutex<Option<Caller>>,
}

impl SessionCaller {
    /// The caller as it is now; `None`, and from then on, when its key or token has ended.
    fn renewed(&self) -> Option<Caller> {
        let mut current = self.current.lock();
        *current = current.take().and_then(|caller| self.callers.renewed(caller, now()));
        current.clone()
    }
}

impl ClientSession for SubscriberSession {
    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<SessionEvent> {
        if self.place.is_err() {
            return Poll::Ready(SessionEvent::Close(SessionClose::OverLimit));
        }
        if self.caller.as_ref().is_some_and(|caller| caller.renewed().is_none()) {
            return Poll::Ready(SessionEvent::Close(SessionClose::KeyEnded));
        }
        let Some(subscriber) = &self.subscriber else { return Poll::Pending };
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

    fn open_session(&self, caller: &Option<Caller>, path: &RequestPath) -> SubscriberSession {
        let current = self.current.load();
        let place = match caller {
            Some(caller) => HeldPlace::connection(caller.meters().cloned())
                .inspect_err(|denied| current.proxy.note_denied(denied)),
            None => Ok(HeldPlace::default()),
        };
        let session_caller = |callers: &Arc<CallerControl>| SessionCaller {
            callers: Arc::clone(callers),
            current: Mutex::new(caller.clone()),
        };
        SubscriberSession {
            subscriber: current.proxy.open_subscriber(&current.chains, path.chain()),
            caller: self.callers.as_ref().map(session_caller),
            place,
        }
    }

    async fn handle_message(
        &self,
        session: &Arc<SubscriberSession>,
        mut request: HttpRequest<Option<Caller>>,
    ) -> HttpAnswer {
        if let Some(caller) = &session.caller {
            request.caller = caller.renewed();
            // The connection is closed next: nothing that its key allowed is done any more.
            if request.caller.is_none() {
                return HttpAnswer::default();
            }
        }
        let message = session.subscriber.as_ref().map(SubscriberMessage::new);
        let mut answer = http_answer(self.answer(message.as_ref(), request).await);
        let subscribed = message.map_or_else(Vec::new, SubscriberMessage::into_subscribed);
        if !subscribed.is_empty() {
            let session = Arc::clone(session);
            answer.on_queued = Some(OnQueued(Box::new(move || {
                if let Some(subscriber) = &session.subscriber {
                    subscriber.activate(&subscribed);
                }
            })));
        }
        answer
    }

    fn note_cut(&self) {
        self.current.load().proxy.note_cut();
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
        let HttpRequest {
            received_at,
            peer,
            caller,
            path,
            want_trail,
            may_stream,
            trace_parent,
            body,
        } = request;
        let ctx = Ctx { received_at, peer, caller, want_trail, may_stream, trace_parent };
        // Its bytes are bounded with the head of the request; nearly every path has none.
        let query = path.query().unwrap_or_default();
        let select: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let target = Target { chain: path.chain(), select: &select };
        let ProxyWorker { proxy, chains } = &*self.current.load_full();
        proxy.handle_message(chains, message, ctx, target, body).await
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
