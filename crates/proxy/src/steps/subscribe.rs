//! `eth_subscribe` and `eth_unsubscribe`, on a connection that can be told things.

use wellhead_dispatch::Job;
use wellhead_jsonrpc::raw;
use wellhead_subscribe::{LogCriteria, SubscriptionId};

use crate::answer::Refusal;
use crate::request::context::RequestContext;
use crate::request::result::CallResult;
use crate::state::subscriber::{SUBSCRIPTIONS_MAX, SubscriptionKind};

/// Begins or ends a subscription.
pub(crate) async fn subscribe(request: &RequestContext<'_>, job: &Job<'_>) -> CallResult {
    let made = match job.row.name {
        "eth_subscribe" => begin(request, job).await,
        "eth_unsubscribe" => end(request, job),
        _ => Err(Refusal::no_such_subscription(job.method)),
    };
    made.map_or_else(CallResult::refused, CallResult::local)
}

async fn begin(request: &RequestContext<'_>, job: &Job<'_>) -> Result<String, Refusal> {
    let message = request.subscriber().ok_or_else(Refusal::notifications_unsupported)?;
    let kind = kind_of(job.params.unwrap_or(b"[]"))?;
    if message.subscriber().is_full() {
        return Err(Refusal::too_many_subscriptions(SUBSCRIPTIONS_MAX));
    }
    let subscriptions = &request.chain.subscriptions;
    // Counted first: the journal is written while it is wanted.
    let demanded = subscriptions.begin();
    let written = tokio::time::timeout_at(job.deadline.into(), subscriptions.written()).await;
    written.map_err(|_elapsed| Refusal::no_head_yet())?;
    let kind = match kind {
        KindAsked::Heads => SubscriptionKind::Heads,
        KindAsked::Logs(criteria) => {
            let group = subscriptions.join(criteria).ok_or_else(Refusal::too_many_filters)?;
            SubscriptionKind::Logs { group, told: 0 }
        }
    };
    let id = request.worker.with_rng(SubscriptionId::draw);
    if let Err(kind) = message.add(id, kind, subscriptions.reader().tip()) {
        if let SubscriptionKind::Logs { group, .. } = &kind {
            subscriptions.leave(group);
        }
        return Err(Refusal::too_many_subscriptions(SUBSCRIPTIONS_MAX));
    }
    demanded.keep();
    Ok(format!("\"{id}\""))
}

fn end(request: &RequestContext<'_>, job: &Job<'_>) -> Result<String, Refusal> {
    let id = job.params.and_then(|params| raw::item(params, 0));
    let id = id.ok_or_else(|| Refusal::invalid_params("missing value for required argument 0"))?;
    let id = raw::string(id).and_then(|text| SubscriptionId::parse(&text));
    let was_there = match (request.subscriber(), id) {
        (Some(message), Some(id)) => message.subscriber().remove(&id),
        (None, _) => return Err(Refusal::notifications_unsupported()),
        (Some(_), None) => false,
    };
    Ok(was_there.to_string())
}

/// What a call subscribes to.
enum KindAsked {
    Heads,
    Logs(LogCriteria),
}

/// What is subscribed to. An extra `{}` or `null`, which some clients send, says nothing.
fn kind_of(params: &[u8]) -> Result<KindAsked, Refusal> {
    let name = raw::item(params, 0);
    let name =
        name.ok_or_else(|| Refusal::invalid_params("missing value for required argument 0"))?;
    let name = raw::string(name).ok_or_else(|| {
        Refusal::invalid_params("invalid argument 0: the name of a subscription is a string")
    })?;
    match &*name {
        "newHeads" => Ok(KindAsked::Heads),
        "logs" => LogCriteria::read(raw::item(params, 1))
            .map(KindAsked::Logs)
            .map_err(|error| Refusal::invalid_params(&error.message(1))),
        other => Err(Refusal::no_such_subscription(other)),
    }
}
