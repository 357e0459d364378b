//! The number of the newest block, as this client is told it.

use bytes::Bytes;
use wellhead_dispatch::now;
use wellhead_eth::BlockNumber;
use wellhead_jsonrpc::raw;

use crate::request::context::RequestContext;
use crate::state::sessions::Newest;

/// The method that asks which block is the newest.
pub(crate) const BLOCK_NUMBER: &str = "eth_blockNumber";

/// The number of the newest block for this client, while the view is fresh: what `latest`
/// means in the calls that follow, or more while no upstream can be called there. Parameters are for an upstream to refuse.
pub(crate) fn known_height(request: &RequestContext<'_>, params: Option<&[u8]>) -> Option<String> {
    let is_plain = params
        .is_none_or(|params| params.iter().filter(|byte| !byte.is_ascii_whitespace()).eq(b"[]"));
    if !request.chain.pins || !is_plain {
        return None;
    }
    let number = request.look(|view| request.newest(view).map(Newest::number))?;
    Some(format!("\"0x{:x}\"", number.0))
}

/// The height that an upstream returned, corrected by the agreed height and by what this client has
/// seen: a client never gets a height that its next answer would take back.
pub(crate) fn agreed_height(request: &RequestContext<'_>, result: Bytes) -> Bytes {
    let chain = request.chain;
    let Some(told) = raw::quantity(&result).filter(|_| chain.pins) else { return result };
    let agreed = chain.heads.look(|view| {
        let agreed = view.latest?.number;
        let shown = request.chain.sessions.above(
            request.ctx.client(),
            agreed,
            view,
            request.ctx.received_at,
        );
        let latest = shown.unwrap_or(agreed).0;
        (view.is_fresh(now()) || told < latest).then_some(latest)
    });
    match agreed.filter(|latest| *latest != told) {
        Some(latest) => format!("\"0x{latest:x}\"").into(),
        None => {
            request.show(BlockNumber(told));
            result
        }
    }
}
