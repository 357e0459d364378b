//! The logs of one block, held against its receipts, so that none of them is missing.
//!
//! A header whose hash was recomputed commits to the receipts of its block, and these hold all
//! of its logs. So where `eth_getLogs` is looked at at the level `full`, the header and the
//! receipts of the one block that was searched are asked for and recomputed, whichever upstream gives them, and the
//! client gets the logs that they hold. What is asked for, and what is not compared, is said in
//! `docs/verify.md`.
//!
//! Whatever cannot be had or read leaves the answer as it came: the absence of a proof proves
//! nothing.

use std::time::Duration;

use bytes::Bytes;
use wellhead_dispatch::{Job, Outcome, Served, WorkerUpstreams, now, run};
use wellhead_eth::{BlockHash, BlockRef, MethodRow, MethodTable};
use wellhead_jsonrpc::raw;
use wellhead_route::{PlanRequest, plan};
use wellhead_upstream::{Payload, VerdictClass};
use wellhead_verify::{Filter, LogProof, prove_logs};

use crate::state::chain::ServedChain;
use crate::state::verify::Verifier;

const HEADER: &str = "eth_getBlockByHash";
const RECEIPTS: &str = "eth_getBlockReceipts";
/// The answer waits this long for its proof.
const WAIT: Duration = Duration::from_secs(5);
/// A filter with more names fits nearly every bloom: its receipts are asked for at once.
const NAMES_MAX: usize = 256;

/// The outcome of a search for logs, with those of the block's receipts where it lacked some. Cancel-safe.
pub(crate) async fn proven(
    chain: &ServedChain,
    worker: &WorkerUpstreams,
    job: &Job<'_>,
    block: &BlockRef,
    mut outcome: Outcome,
) -> Outcome {
    let Some(verifier) = chain.verifier.as_ref().filter(|it| it.proves_logs(job.row)) else {
        return outcome;
    };
    let Ok(Served {
        class: VerdictClass::Answer,
        payload: Payload::Result(list),
        rest: None,
        slot,
        ..
    }) = &outcome.result
    else {
        return outcome;
    };
    let (Some(hash), None) = (searched(chain, block, list), job.ballot) else { return outcome };
    let (list, slot) = (list.clone(), *slot);
    let prover = Prover { chain, worker, verifier, job };
    let Some(differs) = Box::pin(prover.prove(hash, &list, &mut outcome)).await else {
        return outcome;
    };
    let upstream = chain.roster.upstream(slot);
    verifier.incomplete(upstream, (job.row, job.params), &list);
    if let Ok(served) = &mut outcome.result {
        served.payload = Payload::Result(differs);
    }
    outcome
}

/// The one block that was searched: as it was named, as the answer names it, or at its height.
fn searched(chain: &ServedChain, block: &BlockRef, list: &[u8]) -> Option<BlockHash> {
    if let BlockRef::Hash(hash) = block {
        return Some(*hash);
    }
    let (number, _) = block.heights().filter(|(from, to)| from == to)?;
    match raw::item(list, 0) {
        Some(log) => raw::string(raw::field(log, "blockHash")?)?.parse().ok(),
        None => chain.heads.look(|view| view.hash_at(number)),
    }
}

/// What a search is proven with: its call, and the upstreams and the time that the call has.
struct Prover<'a> {
    chain: &'a ServedChain,
    worker: &'a WorkerUpstreams,
    verifier: &'a Verifier,
    job: &'a Job<'a>,
}

impl Prover<'_> {
    /// The logs of the block, where the answer is proven not to have just these.
    async fn prove(&self, hash: BlockHash, list: &Bytes, outcome: &mut Outcome) -> Option<Bytes> {
        let Self { verifier, job, .. } = *self;
        let filter = Filter::read(job.row, job.params)?;
        if verifier.header(&hash).is_none() {
            let params = format!(r#"["{hash}",false]"#);
            let found = self.fetch(HEADER, &params, outcome).await?;
            verifier.prove(HEADER, &params, &found, job.deadline).await.then_some(())?;
        }
        let header = verifier.header(&hash)?;
        let is_excluded = |filter: &Filter| {
            let sieve = filter.sieve(NAMES_MAX);
            sieve.is_some_and(|sieve| !sieve.sift(&header.logs_bloom.0).may_fit)
        };
        let is_empty = raw::items(list).next().is_none();
        if is_empty && is_excluded(&filter) {
            return None;
        }
        let params = format!(r#"["{hash}"]"#);
        let receipts = self.fetch(RECEIPTS, &params, outcome).await?;
        verifier.prove(RECEIPTS, &params, &receipts, job.deadline).await.then_some(())?;
        match prove_logs(&filter, &receipts, list)? {
            LogProof::Complete => None,
            LogProof::Differs { logs } => {
                let all = [b"[".as_slice(), &logs.join(b",".as_slice()), b"]"];
                Some(all.concat().into())
            }
        }
    }

    /// Asks for what a proof needs, with attempts of its own; what was tried is told with the
    /// search.
    async fn fetch(
        &self,
        method: &'static str,
        params: &str,
        outcome: &mut Outcome,
    ) -> Option<Bytes> {
        let Self { chain, worker, job, .. } = *self;
        let row: &'static MethodRow = MethodTable::standard().row(method);
        let began = now();
        let eligible = chain.roster.eligible(row, method).ok()?;
        let ask = PlanRequest::of(row, eligible);
        let plan = chain
            .heads
            .look(|view| worker.with_rng(|rng| plan(&ask, view, &chain.roster, began, rng)));
        if plan.fit() == 0 || began >= job.deadline {
            return None;
        }
        let job = Job {
            row,
            method,
            params: Some(params.as_bytes()),
            deadline: job.deadline.min(began + WAIT / 2),
            flows_to: None,
            ..*job
        };
        let found = run(&job, &plan, &chain.roster, worker, &chain.bounds).await;
        outcome.trail.append(found.trail);
        match found.result {
            Ok(Served {
                class: VerdictClass::Answer,
                payload: Payload::Result(found),
                rest: None,
                ..
            }) => Some(found),
            Ok(_) | Err(_) => None,
        }
    }
}
