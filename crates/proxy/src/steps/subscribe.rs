//! `eth_subscribe` and `eth_unsubscribe`, on a connection that can be told things.

use wellhead_dispatch::{Job, now};
use wellhead_eth::MethodTable;
use wellhead_jsonrpc::raw;
use wellhead_subscribe::{
    LogCriteria, MinedCriteria, PendingCriteria, ReceiptCriteria, RelayedKind, SubscriptionId,
};

use crate::answer::Refusal;
use crate::request::context::RequestContext;
use crate::request::result::CallResult;
use crate::state::relays::{PoolForm, RelayTold, RelayTopic, RelayUnavailable};
use crate::state::streams::StreamTicket;
use crate::state::subscriber::{SUBSCRIPTIONS_MAX, SubscriberMessage, SubscriptionKind};
use crate::state::subscriptions::BlockPart;
use crate::steps::charge;

/// Bytes of the parameters of a kind that is relayed: a filter of some hundred addresses.
const RELAYED_PARAMS_MAX: usize = 64 << 10;

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
    let message = request.subscriber.ok_or_else(Refusal::notifications_unsupported)?;
    let place = charge::hold_subscription(request)?;
    let id = begin_kind(request, job, message).await?;
    message.subscriber.hold(id, place);
    Ok(format!("\"{id}\""))
}

async fn begin_kind(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    message: &SubscriberMessage<'_>,
) -> Result<SubscriptionId, Refusal> {
    let kind = kind_of(job.params.unwrap_or(b"[]"))?;
    if !message.subscriber.is_of(request.chain) {
        return Err(Refusal::chain_replaced());
    }
    if message.subscriber.is_full() {
        return Err(Refusal::too_many_subscriptions(SUBSCRIPTIONS_MAX));
    }
    let ticket = match kind {
        KindAsked::Blocks(kind) => return begin_blocks(request, job, message, kind).await,
        KindAsked::Syncing => StreamTicket::Syncing(request.chain.streams.join_syncing()),
        KindAsked::Relay(topic) => relay(request, job, topic, RelayTold::All).await?,
        KindAsked::PendingMatching(criteria) => {
            let held = request.chain.subscriptions.hold(criteria.bytes_held());
            let held = held.ok_or_else(Refusal::too_many_filters)?;
            let told = RelayTold::Matching { criteria, _held: held };
            relay(request, job, RelayTopic::Pool(PoolForm::Whole), told).await?
        }
    };
    let id = request.worker.with_rng(SubscriptionId::draw);
    if !message.add_stream(id, ticket) {
        return Err(Refusal::too_many_subscriptions(SUBSCRIPTIONS_MAX));
    }
    Ok(id)
}

/// Waits until an upstream confirms what only upstreams can tell.
async fn relay(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    topic: RelayTopic,
    told: RelayTold,
) -> Result<StreamTicket, Refusal> {
    let name = match &topic {
        RelayTopic::Pool(_) => "newPendingTransactions",
        RelayTopic::Kind { kind, .. } => kind.name,
    };
    let refused = |why| match why {
        RelayUnavailable::TooMany => Refusal::too_many_filters(),
        RelayUnavailable::NotOffered => Refusal::not_offered(name),
    };
    let ticket = request.chain.streams.relays.join(topic, told, now()).map_err(refused)?;
    let confirmed = tokio::time::timeout_at(job.deadline.into(), ticket.confirmed()).await;
    match confirmed {
        Ok(confirmed) => confirmed.map_err(refused)?,
        Err(_elapsed) => return Err(Refusal::not_confirmed(name)),
    }
    Ok(StreamTicket::Relay(Box::new(ticket)))
}

/// Begins a subscription that reads the journal of blocks.
async fn begin_blocks(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    message: &SubscriberMessage<'_>,
    kind: BlocksAsked,
) -> Result<SubscriptionId, Refusal> {
    // There is a second way to the logs of a block, and without blocks there is nothing to follow.
    if let BlocksAsked::Receipts(_) = kind {
        let method = "eth_getBlockReceipts";
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
            let joined = subscriptions.join(criteria);
            let (group, held) = joined.ok_or_else(Refusal::too_many_filters)?;
            SubscriptionKind::Logs { group, _held: held }
        }
        BlocksAsked::Receipts(criteria) => {
            let held = subscriptions.want(BlockPart::Receipts, criteria.bytes_held());
            let held = held.ok_or_else(Refusal::too_many_filters)?;
            SubscriptionKind::Receipts { criteria, _held: held }
        }
        BlocksAsked::Mined(criteria) => {
            let held = subscriptions.want(BlockPart::Transactions, criteria.bytes_held());
            let held = held.ok_or_else(Refusal::too_many_filters)?;
            SubscriptionKind::Mined { criteria, _held: held }
        }
    };
    let id = request.worker.with_rng(SubscriptionId::draw);
    if !message.add(id, kind, demanded, subscriptions.reader.tip()) {
        return Err(Refusal::too_many_subscriptions(SUBSCRIPTIONS_MAX));
    }
    Ok(id)
}

fn end(request: &RequestContext<'_>, job: &Job<'_>) -> Result<String, Refusal> {
    let id = job.params.and_then(|params| raw::item(params, 0));
    let id = id.ok_or_else(Refusal::missing_argument)?;
    let id = raw::string(id).and_then(|text| SubscriptionId::parse(&text));
    let was_there = match (request.subscriber, id) {
        (Some(message), Some(id)) => message.subscriber.remove(&id),
        (None, _) => return Err(Refusal::notifications_unsupported()),
        (Some(_), None) => false,
    };
    Ok(was_there.to_string())
}

/// What a call subscribes to.
enum KindAsked {
    /// The journal of blocks.
    Blocks(BlocksAsked),
    /// Whether the chain is followed.
    Syncing,
    /// What upstreams push.
    Relay(RelayTopic),
    /// Those pending transactions that match.
    PendingMatching(PendingCriteria),
}

/// What a call wants to know of each block.
enum BlocksAsked {
    Heads,
    Logs(LogCriteria),
    Receipts(ReceiptCriteria),
    Mined(MinedCriteria),
}

/// What is subscribed to. An extra `{}` or `null`, which some clients send, says nothing.
fn kind_of(params: &[u8]) -> Result<KindAsked, Refusal> {
    let name = raw::item(params, 0).ok_or_else(Refusal::missing_argument)?;
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
        "syncing" => Ok(KindAsked::Syncing),
        "newPendingTransactions" => {
            Ok(KindAsked::Relay(RelayTopic::Pool(pool_form(raw::item(params, 1))?)))
        }
        "alchemy_minedTransactions" => MinedCriteria::read(raw::item(params, 1))
            .map(|criteria| KindAsked::Blocks(BlocksAsked::Mined(criteria)))
            .map_err(|error| Refusal::invalid_params(&error.to_string())),
        "alchemy_pendingTransactions" => PendingCriteria::read(raw::item(params, 1))
            .map(KindAsked::PendingMatching)
            .map_err(|error| Refusal::invalid_params(&error.to_string())),
        other => {
            let kind =
                RelayedKind::named(other).ok_or_else(|| Refusal::no_such_subscription(other))?;
            if params.len() > RELAYED_PARAMS_MAX {
                return Err(Refusal::invalid_params("invalid argument 1: it is too long"));
            }
            let params = String::from_utf8_lossy(&compact(params)).into();
            Ok(KindAsked::Relay(RelayTopic::Kind { kind, params }))
        }
    }
}

/// Whether hashes or whole transactions are told, by the second parameter as geth reads it.
fn pool_form(flag: Option<&[u8]>) -> Result<PoolForm, Refusal> {
    match flag.map(raw::trim) {
        None | Some(b"false" | b"null" | b"{}") => Ok(PoolForm::Hashes),
        Some(b"true") => Ok(PoolForm::Whole),
        Some(_) => Err(Refusal::invalid_params("invalid argument 1: it is not true or false")),
    }
}

/// JSON without the white space between its parts, so that equal parameters are one relay.
fn compact(json: &[u8]) -> Vec<u8> {
    let (mut is_in_string, mut is_escaped) = (false, false);
    let keep = |byte: &u8| {
        let is_space = !is_in_string && byte.is_ascii_whitespace();
        is_in_string ^= *byte == b'"' && !is_escaped;
        is_escaped = is_in_string && *byte == b'\\' && !is_escaped;
        !is_space
    };
    json.iter().copied().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_dropped_between_parts_alone() {
        let check = |json: &str, expected: &str| {
            assert_eq!(String::from_utf8_lossy(&compact(json.as_bytes())), expected);
        };
        check("[ \"a b\" ,\n true ]", "[\"a b\",true]");
        check(r#"["a\" b", { "c" : "\\" } ]"#, r#"["a\" b",{"c":"\\"}]"#);
    }
}
