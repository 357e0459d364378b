//! The proxy, with the connections of one worker.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use url::form_urlencoded;
use wellhead_access::{Caller, HeldPlace, LastingHead};
use wellhead_dispatch::now;
use wellhead_proxy::{Answer, Ctx, ProxyWorker, SubscriberMessage, Target};
use wellhead_server::{
    AnswerBody, ClientHead, Drained, Handler, HeldUntilSent, HttpAnswer, HttpRefusal, HttpRequest,
    Identified, Listener, OnQueued, Server, SessionHead, Shutdown,
};

use crate::control::{CallerControl, certificate_name};
use crate::session::{SessionCaller, SubscriberSession};

/// Hands requests of one worker to the proxy.
#[derive(Debug)]
pub struct WorkerHandler {
    /// A request looks once, and goes on with what it saw when the settings change.
    pub current: Arc<ArcSwap<ProxyWorker>>,
    /// `None` where clients are told apart by their addresses alone.
    pub callers: Option<Arc<CallerControl>>,
}

/// Serves one worker's connections, on its runtime, until `shutdown`; see [`Server::serve`].
///
/// # Errors
///
/// If the listener cannot be registered with the runtime.
pub async fn serve(
    server: &Arc<Server>,
    listener: Listener,
    handler: Arc<WorkerHandler>,
    shutdown: &Shutdown,
) -> io::Result<Drained> {
    server.serve(listener, handler, shutdown).await
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

    fn open_session(&self, caller: &Option<Caller>, head: SessionHead<'_>) -> SubscriberSession {
        let current = self.current.load();
        let place = match caller {
            Some(caller) => HeldPlace::connection(caller.meters().cloned())
                .inspect_err(|denied| current.proxy.note_denied(denied)),
            None => Ok(HeldPlace::default()),
        };
        let session_caller = self.callers.as_ref().zip(caller.as_ref()).map(|(callers, caller)| {
            let names = head.names.iter().map(certificate_name).collect();
            let head = LastingHead::new(head.origin, names);
            SessionCaller::new(Arc::clone(callers), caller.clone(), head)
        });
        SubscriberSession {
            subscriber: current.proxy.open_subscriber(&current.chains, head.path.chain()),
            caller: session_caller,
            place,
        }
    }

    async fn handle_message(
        &self,
        session: &Arc<SubscriberSession>,
        mut request: HttpRequest<Option<Caller>>,
    ) -> HttpAnswer {
        match session.renewed() {
            Ok(caller) => request.caller = caller,
            // Nothing that its key allowed is done any more.
            Err(_) => return HttpAnswer::default(),
        }
        let caller = request.caller.clone();
        let message = session.subscriber.as_ref().map(SubscriberMessage::new);
        let mut answer = http_answer(self.answer(message.as_ref(), request).await);
        let subscribed = message.map_or_else(Vec::new, SubscriberMessage::into_subscribed);
        if !subscribed.is_empty() {
            session.recheck(caller.as_ref());
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
            known_block,
            may_stream,
            trace_parent,
            body,
        } = request;
        let ctx =
            Ctx { received_at, peer, caller, want_trail, known_block, may_stream, trace_parent };
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
        rate_limit: answer.rate_limit,
        block: answer.block,
        warning: answer.warning,
        trail: answer.trail,
        on_queued: None,
        held: (!answer.held.is_empty()).then(|| HeldUntilSent::new(answer.held)),
    }
}
