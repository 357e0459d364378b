//! Filter ids that name their upstream.
//!
//! A filter for pending transactions lives in the upstream that made it; others are
//! [virtual](crate::steps::virtual_filters). The id that we hand out is
//! `0x`, eight hex digits that stand for the upstream's name, and the upstream's
//! own digits: any replica with the same settings can route it, and nothing has
//! to be remembered.

use std::time::Instant;

use wellhead_dispatch::Job;
use wellhead_eth::{MethodRow, StickyRole};
use wellhead_jsonrpc::raw;
use wellhead_route::Roster;
use wellhead_upstream::{Slot, UpstreamId, UpstreamSet, VerdictClass};

use crate::answer::Refusal;
use crate::request::result::CallResult;
use crate::state::chain::ServedChain;

const TAG_DIGITS: usize = 8;

/// FNV-1a: the same on every replica and in every version, which a seeded hash is not.
fn tag(id: &UpstreamId) -> u32 {
    id.as_str()
        .bytes()
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The id to hand out for the raw JSON `own` that `upstream` gave its filter.
/// `None` when that is not a hex string.
fn hand_out(upstream: &UpstreamId, own: &[u8]) -> Option<String> {
    let own = raw::string(own)?;
    let digits = own.strip_prefix("0x").filter(|digits| is_hex(digits))?;
    Some(format!("\"0x{:08x}{digits}\"", tag(upstream)))
}

/// The upstream that an id names, and that upstream's own id as raw JSON params.
/// `None` for an id that we never handed out.
fn take_back(roster: &Roster, params: &[u8]) -> Option<(Slot, Vec<u8>)> {
    let id = raw::item(params, 0).and_then(raw::string)?;
    let digits = id.strip_prefix("0x").filter(|digits| is_hex(digits))?;
    let (tagged, own) = digits.split_at_checked(TAG_DIGITS)?;
    let tagged = u32::from_str_radix(tagged, 16).ok()?;
    let upstream =
        roster.upstreams().iter().find(|upstream| tag(&upstream.identity().id) == tagged)?;
    Some((upstream.slot(), format!("[\"0x{own}\"]").into_bytes()))
}

/// Where a filter lives, and how it is asked for there.
pub(crate) struct FilterPlace {
    /// That upstream, if it serves the method.
    pub(crate) only: UpstreamSet,
    /// With the upstream's own id.
    pub(crate) params: Vec<u8>,
    pub(crate) deadline: Instant,
}

/// Whether the call makes a filter, which any upstream may do.
pub(crate) fn is_made_by(row: &MethodRow) -> bool {
    match row.sticky {
        Some(StickyRole::Create) | None => true,
        Some(StickyRole::Use | StickyRole::Drop) => false,
    }
}

/// Where the filter lives that a call names; the turn of the call came at `began`.
pub(crate) fn place(
    chain: &ServedChain,
    job: &Job<'_>,
    began: Instant,
) -> Result<FilterPlace, Refusal> {
    let params = job.params.ok_or_else(Refusal::missing_argument)?;
    let (slot, params) = take_back(&chain.roster, params).ok_or_else(Refusal::filter_not_found)?;
    // The filter's id says where it lives, whatever is selected by now.
    let served = chain.eligible(job.row, job.method).unwrap_or_default();
    let only = [slot].into_iter().collect::<UpstreamSet>().and(served);
    // No other upstream can answer, so there is nothing to wait for beyond the attempt.
    let own = chain.roster.upstream(slot).identity().attempt;
    let deadline = job.deadline.min(began + own.unwrap_or(chain.bounds.attempt));
    Ok(FilterPlace { only, params, deadline })
}

/// Puts the upstream's name into the id of a filter that it made.
pub(crate) fn name_the_filter(
    chain: &ServedChain,
    call_result: CallResult,
    eligible: UpstreamSet,
) -> CallResult {
    match call_result {
        CallResult::Result { result, slot: Some(slot), trail, .. } => {
            let id = &chain.roster.upstream(slot).identity().id;
            match hand_out(id, &result) {
                Some(named) => CallResult::result(named.into(), slot, trail),
                None => CallResult::exhausted(chain, VerdictClass::Fault, trail, eligible),
            }
        }
        other => other,
    }
}

fn is_hex(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_carries_its_upstream_and_its_digits() {
        let id = hand_out(&UpstreamId::new("geth-a"), br#""0x00ab12""#).expect("a hex id");
        assert!(id.starts_with("\"0x") && id.ends_with("00ab12\""), "{id}");
        assert_eq!(id.len(), "\"0x\"".len() + TAG_DIGITS + "00ab12".len());
        assert_ne!(tag(&UpstreamId::new("geth-a")), tag(&UpstreamId::new("geth-b")));
    }

    #[test]
    fn what_is_not_a_hex_string_is_not_handed_out() {
        for own in ["1", "\"12\"", "\"0x\"", "\"0xzz\"", "null"] {
            assert_eq!(hand_out(&UpstreamId::new("a"), own.as_bytes()), None, "{own}");
        }
    }
}
