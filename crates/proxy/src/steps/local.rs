//! Calls that are answered here, of what the upstreams told when they were verified.

use std::time::Instant;

use wellhead_eth::MethodRow;

use crate::answer::Refusal;
use crate::request::result::CallResult;
use crate::state::chain::ServedChain;
use crate::steps::startup::chain_id;
use crate::steps::version::client_version;

/// The answer, within the deadline.
pub(crate) async fn local(chain: &ServedChain, row: &MethodRow, deadline: Instant) -> CallResult {
    if row.name == "web3_clientVersion" {
        return CallResult::local(client_version(chain, deadline).await);
    }
    let Some(id) = chain_id(chain, deadline).await else {
        return CallResult::refused(Refusal::chain_id_unknown(&chain.roster));
    };
    match row.name {
        "net_version" => CallResult::local(format!("\"{}\"", id.network_id())),
        _ => CallResult::local(format!("\"0x{:x}\"", id.0)),
    }
}
