//! What a client was shown: it is never shown less afterwards.
//!
//! The agreed head waits for a second upstream, while a receipt comes from the first. A client
//! that saw its transaction in block N and then asks for its balance at `latest` has to be
//! answered at N or above, though N is not agreed yet. So the highest block that any answer to
//! a client named is remembered, and what follows is answered there: by an upstream that holds
//! it, and never above what an upstream claims that is not astray.
//!
//! A client is the **address** that it calls from, whatever the port: libraries open several
//! connections, and calls on one have to follow from answers on another. Behind one address
//! (a load balancer, one cluster) all clients are one; each then sees at least what any of
//! them saw. Nothing is allocated and nothing grows: addresses that share a place in a table
//! are one client, too.
//!
//! Not promised: that the block is still the same one. After a reorg nobody holds what was
//! shown, or another block has its number, as with any node.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use bytes::Bytes;
use wellhead_chain::View;
use wellhead_dispatch::now;
use wellhead_eth::{BlockNumber, BlockParam, BlockRef, BlockTag, Finality, MethodRow};
use wellhead_jsonrpc::raw;
use wellhead_route::Roster;
use wellhead_upstream::{Condition, Slot, UpstreamSet};

use crate::journey::Trip;
use crate::pin::highest;
use crate::sent::address;
use crate::teach;

/// Places, a power of two: 32 KiB a chain.
const PLACES: usize = 4096;
/// The method that asks how many transactions were sent.
const NONCE: &str = "eth_getTransactionCount";
/// Larger answers are not looked into.
const LOOK_INTO_MAX: usize = 64 << 10;

/// The highest block that was shown, by client.
#[derive(Debug)]
pub(crate) struct Sessions(Box<[AtomicU64]>);

impl Default for Sessions {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Sessions {
    fn place(&self, client: IpAddr) -> &AtomicU64 {
        let bits = match client {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4):
        // neighbours get places far apart. Who shares one on purpose only shares the floor.
        let folded = (bits >> 64) as u64 ^ bits as u64;
        let place = folded.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - PLACES.trailing_zeros());
        &self.0[place as usize]
    }

    /// Notes that an answer to `client` named a block.
    pub(crate) fn show(&self, client: IpAddr, number: BlockNumber) {
        let place = self.place(client);
        if place.load(Relaxed) < number.0 {
            place.fetch_max(number.0, Relaxed);
        }
    }

    /// The highest block that `client` was shown, if that is above `agreed`, as far as an
    /// upstream that is not astray claims to be.
    pub(crate) fn above(
        &self,
        client: IpAddr,
        agreed: BlockNumber,
        view: &View,
    ) -> Option<BlockNumber> {
        let floor = self.place(client).load(Relaxed);
        if floor <= agreed.0 {
            return None;
        }
        let claimed = highest(view)?;
        Some(claimed.min(BlockNumber(floor))).filter(|number| *number > agreed)
    }

    /// The newest block for `client`, while the view is fresh.
    pub(crate) fn newest(&self, client: IpAddr, view: &View, now: Instant) -> Option<Newest> {
        let agreed = view.number_of(BlockTag::Latest, now)?;
        Some(Newest { agreed, shown: self.above(client, agreed, view) })
    }
}

/// The newest block for one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newest {
    agreed: BlockNumber,
    /// One above it that it was shown.
    shown: Option<BlockNumber>,
}

impl Newest {
    /// Whether it was shown one above the agreed block.
    pub(crate) fn is_shown(self) -> bool {
        self.shown.is_some()
    }

    /// What it was shown, or the agreed block.
    pub(crate) fn number(self) -> BlockNumber {
        self.shown.unwrap_or(self.agreed)
    }

    /// The same, as far as those go who may be asked and are well.
    pub(crate) fn held(
        self,
        eligible: UpstreamSet,
        view: &View,
        roster: &Roster,
        now: Instant,
    ) -> BlockNumber {
        let Some(shown) = self.shown else { return self.agreed };
        let held = roster.upstreams().iter().filter_map(|upstream| {
            let slot = upstream.slot();
            let is_well = eligible.contains(slot)
                && upstream.condition(now) == Condition::Ready
                && !view.is_astray(slot);
            view.head(slot).filter(|_| is_well).map(|head| head.number)
        });
        held.max().map_or(self.agreed, |held| held.min(shown).max(self.agreed))
    }
}

/// A block that an answer shows to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// The call named it, and it was not missing.
    Named(BlockNumber),
    /// The answer says that it is, or was found in, this one.
    Told(BlockNumber),
}

fn shown(row: &MethodRow, block: &BlockRef, result: &[u8]) -> Option<Shown> {
    match block {
        BlockRef::Number(number) => {
            return Some(Shown::Named(*number)).filter(|_| !raw::is_null(result));
        }
        BlockRef::Tag(BlockTag::Latest) | BlockRef::Hash(_) | BlockRef::None => {}
        // A range may end above all that is there.
        BlockRef::Range { .. } | BlockRef::Tag(_) | BlockRef::Unreadable => return None,
    }
    let tells = row.finality == Finality::Inclusion
        || matches!(row.block, BlockParam::Hash { .. })
        || row.name == "eth_getBlockByNumber";
    if !tells || result.len() > LOOK_INTO_MAX || result.first() != Some(&b'{') {
        return None;
    }
    let member = |name| raw::field(result, name).and_then(raw::quantity);
    member("blockNumber").or_else(|| member("number")).map(BlockNumber).map(Shown::Told)
}

/// What a client is told of its own call: a pending nonce counts what it sent a moment ago.
/// Notes the block that the answer shows, which is news of the upstream in `slot`, too.
pub(crate) fn recall(
    trip: &Trip<'_>,
    (row, params): (&MethodRow, Option<&[u8]>),
    block: &BlockRef,
    slot: Option<Slot>,
    result: Bytes,
) -> Bytes {
    let chain = trip.chain;
    if !chain.pins {
        return result;
    }
    let client = trip.ctx.peer.ip();
    match (shown(row, block, &result), slot) {
        (Some(Shown::Told(number)), Some(slot)) => {
            teach::holds(chain, slot, number, now());
            chain.sessions.show(client, number);
        }
        (Some(Shown::Named(number) | Shown::Told(number)), _) => {
            chain.sessions.show(client, number);
        }
        (None, _) => {}
    }
    if row.name != NONCE || *block != BlockRef::Tag(BlockTag::Pending) {
        return result;
    }
    let Some((told, sender)) = raw::quantity(&result).zip(params.and_then(address)) else {
        return result;
    };
    match chain.sent.next_nonce(&sender, told, now()) {
        next if next == told => result,
        next => format!("\"0x{next:x}\"").into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use wellhead_chain::{Heads, Observation, Source};
    use wellhead_eth::MethodTable;

    use super::*;

    fn client(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    #[test]
    fn a_client_has_its_own_floor() {
        let sessions = Sessions::default();
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let now = Instant::now();
        let heads = Heads::new(2, Some(Duration::from_secs(12)), None);
        let stands = |slot, number| {
            let seen = Observation::of_number(BlockNumber(number));
            heads.observe(Slot(slot), seen, Source::Word, now);
        };
        stands(0, 100);
        stands(1, 100);
        stands(0, 101);
        let view = heads.view();
        let above = |client| sessions.above(client, BlockNumber(100), &view);
        assert_eq!(above(client(1)), None);
        sessions.show(client(1), BlockNumber(101));
        assert_eq!((above(client(1)), above(client(2))), (Some(BlockNumber(101)), None));
        // What nobody has is no floor, and an older answer does not lower it.
        sessions.show(client(1), BlockNumber(5000));
        sessions.show(client(1), BlockNumber(7));
        assert_eq!(above(client(1)), Some(BlockNumber(101)));
    }

    #[test]
    fn addresses_are_spread() {
        let sessions = Sessions::default();
        let places = (0..=255_u8).map(|last| std::ptr::from_ref(sessions.place(client(last))));
        let mut places: Vec<_> = places.collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 240, "{}", places.len());
    }

    fn check(method: &str, params: &str, result: &str, expected: Option<u64>) {
        let row = MethodTable::standard().row(method);
        let seen = shown(row, &row.block_ref(Some(params.as_bytes())), result.as_bytes());
        let number = seen.map(|(Shown::Named(number) | Shown::Told(number))| number.0);
        assert_eq!(number, expected, "{method}{params} {result}");
    }

    #[test]
    fn answers_show_blocks() {
        let hash = format!("[\"0x{}\"]", "ab".repeat(32));
        check("eth_getTransactionReceipt", &hash, r#"{"logs":[],"blockNumber":"0x64"}"#, Some(100));
        check("eth_getTransactionReceipt", &hash, "null", None);
        check("eth_getTransactionByHash", &hash, r#"{"blockNumber":null}"#, None);
        check("eth_getBlockByHash", &hash, r#"{"number":"0x64"}"#, Some(100));
        check("eth_getBlockByNumber", r#"["latest",false]"#, r#"{"number":"0x64"}"#, Some(100));
        check("eth_getBlockByNumber", r#"["pending",false]"#, r#"{"number":"0x64"}"#, None);
        check("eth_getBlockByNumber", r#"["0x64",false]"#, r#"{}"#, Some(100));
        check("eth_getBlockByNumber", r#"["0x64",false]"#, "null", None);
        check("eth_getBalance", r#"["0xab","0x64"]"#, "\"0x1\"", Some(100));
        check("eth_getBalance", r#"["0xab","latest"]"#, "\"0x1\"", None);
        check("eth_getLogs", r#"[{"fromBlock":"0x1","toBlock":"0x64"}]"#, "[]", None);
        check("eth_call", r#"[{"to":"0xab"},"latest"]"#, r#"{"number":"0x64"}"#, None);
    }
}
