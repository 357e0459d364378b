//! `eth_subscribe` and `eth_unsubscribe`, on a connection that can be told things.

use wellhead_dispatch::Job;
use wellhead_eth::MethodTable;
use wellhead_jsonrpc::raw;
use wellhead_subscribe::{LogCriteria, ReceiptCriteria, SubscriptionId};

use crate::answer::Refusal;
use crate::request::context::RequestContext;
use crate::request::result::CallResult;
use crate::state::streams::StreamTopic;
use crate::state::subscriber::{SUBSCRIPTIONS_MAX, SubscriberMessage, SubscriptionKind};
use crate::state::subscriptions::BlockPart;

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
    match kind {
        KindAsked::Blocks(kind) => begin_blocks(request, job, message, kind).await,
        KindAsked::Stream(topic) => {
            let id = request.worker.with_rng(SubscriptionId::draw);
            if !message.add_stream(id, request.chain.streams.join(topic)) {
                return Err(Refusal::too_many_subscriptions(SUBSCRIPTIONS_MAX));
            }
            Ok(format!("\"{id}\""))
        }
    }
}

/// Begins a subscription that reads the journal of blocks.
async fn begin_blocks(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    message: &SubscriberMessage<'_>,
    kind: BlocksAsked,
) -> Result<String, Refusal> {
    if let Some(method) = kind.needs() {
        let eligible = request.chain.eligible(MethodTable::standard().row(method), method);
        eligible.map_err(|why| Refusal::not_served(why, method, request.selected()))?;
    }
    let subscriptions = &request.chain.subscriptions;
    // Counted first: the journal is written while it is wanted.
    let demanded = subscriptions.begin();
    let written = tokio::time::timeout_at(job.deadline.into(), subscriptions.written()).await;
    written.map_err(|_elapsed| Refusal::no_head_yet())?;
    let kind = match kind {
        BlocksAsked::Heads => SubscriptionKind::Heads,
        BlocksAsked::Logs(criteria) => {
            let group = subscriptions.join(criteria).ok_or_else(Refusal::too_many_filters)?;
            SubscriptionKind::Logs { group, told: 0 }
        }
        BlocksAsked::Receipts(criteria) => {
            let demand = subscriptions.want(BlockPart::Receipts, criteria.bytes_held());
            let demand = demand.ok_or_else(Refusal::too_many_filters)?;
            SubscriptionKind::Receipts { criteria, _demand: demand }
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
    /// The journal of blocks.
    Blocks(BlocksAsked),
    /// A stream beside it.
    Stream(StreamTopic),
}

/// What a call wants to know of each block.
enum BlocksAsked {
    Heads,
    Logs(LogCriteria),
    Receipts(ReceiptCriteria),
}

impl BlocksAsked {
    /// The method without which it could not be told.
    fn needs(&self) -> Option<&'static str> {
        match self {
            // There is a second way to the logs of a block.
            Self::Heads | Self::Logs(_) => None,
            Self::Receipts(_) => Some("eth_getBlockReceipts"),
        }
    }
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
        "newHeads" => Ok(KindAsked::Blocks(BlocksAsked::Heads)),
        "logs" => LogCriteria::read(raw::item(params, 1))
            .map(|criteria| KindAsked::Blocks(BlocksAsked::Logs(criteria)))
            .map_err(|error| Refusal::invalid_params(&error.message(1))),
        "transactionReceipts" => ReceiptCriteria::read(raw::item(params, 1))
            .map(|criteria| KindAsked::Blocks(BlocksAsked::Receipts(criteria)))
            .map_err(|error| Refusal::invalid_params(&error.to_string())),
        "syncing" => Ok(KindAsked::Stream(StreamTopic::Syncing)),
        other => Err(Refusal::no_such_subscription(other)),
    }
}
