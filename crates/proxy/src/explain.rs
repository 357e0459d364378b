//! What would become of a call, without making it: for `GET /explain` and `wellhead explain`.
//!
//! The functions that decide for a call decide here too, on the view of this moment. The call is not
//! made, no permit taken and nothing counted; upstreams are asked what is final soon after, as
//! they are while clients want to know. Upstreams of the same tier and fitness are in the order of
//! their cost, of which a tenth is chance: of equals another may be asked first.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;
use wellhead_chain::View;
use wellhead_dispatch::{Allowance, Job, PreviewStep, Progress, WorkerUpstreams, now, preview};
use wellhead_eth::{BlockRef, Effect, MethodRow, MethodTable};
use wellhead_route::assess;
use wellhead_upstream::Upstream;
use wellhead_verify::{Level, has_checks};
use wellhead_watch::CheckCounts;

use crate::answer::Refusal;
use crate::journey::Proxy;
use crate::request::context::{Ctx, RequestContext};
use crate::request::pin::{MethodCall, PinnedCall, PinnedParams};
use crate::request::select::Selection;
use crate::state::chain::ServedChain;
use crate::state::sessions::Newest;
use crate::steps::planning::{Planned, pinned, plan_on};
use crate::steps::reasons::{LOOKED_UP, cache_word, why};

/// A call that is only thought of.
#[derive(Debug, Clone, Copy)]
pub struct Thought<'a> {
    /// The name, alias or id of the chain; `None` where there is one only.
    pub chain: Option<&'a str>,
    /// The method.
    pub method: &'a str,
    /// Raw JSON; it has to be valid.
    pub params: Option<&'a [u8]>,
    /// The address of the client.
    pub client: IpAddr,
    /// By which labels it would select upstreams, as in the query of a request.
    pub select: &'a [(Cow<'a, str>, Cow<'a, str>)],
}

/// What would become of it.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The chain's name in the settings.
    pub chain: String,
    /// The row of the method table; `*` for a method that is not known.
    pub method: &'static str,
    /// What it does: `read`, `local`, `broadcast`...
    pub effect: String,
    /// What it costs an upstream: `light`, `state`, `trace`...
    pub class: String,
    /// Which block it speaks of.
    pub block: BlockExplained,
    /// What the cache would say.
    pub cache: CacheExplained,
    /// How many upstreams must answer it alike, where one is not enough.
    pub quorum: Option<QuorumExplained>,
    /// How closely the answer would be looked at.
    pub verify: VerifyExplained,
    /// All upstreams of the chain: first those that would be asked, in this order.
    pub upstreams: Vec<UpstreamExplained>,
    /// What it would do, one step after the other, if each attempt failed: by the function that
    /// decides for calls. Empty where several upstreams are asked at once.
    pub steps: Vec<String>,
    /// Of a call that subscribes: how each upstream's new blocks are learnt, now.
    pub heads: Vec<HeadsExplained>,
}

/// How the new blocks of an upstream are learnt.
#[derive(Debug, Clone, Serialize)]
pub struct HeadsExplained {
    /// Its id.
    pub id: String,
    /// In words.
    pub how: String,
}

/// Which block a call speaks of.
#[derive(Debug, Clone, Serialize)]
pub struct BlockExplained {
    /// As the client wrote it.
    pub asked: String,
    /// As it is sent.
    pub sent: String,
    /// Why.
    pub why: &'static str,
    /// The parameters as they are sent, where they change.
    pub params: Option<String>,
}

/// What the cache would say. A call that is not looked up may still share the same one of
/// another client.
#[derive(Debug, Clone, Serialize)]
pub struct CacheExplained {
    /// Whether the answer is looked up.
    pub asked: bool,
    /// Why not, in one word; `looked up` where it is.
    pub why: &'static str,
}

/// How many upstreams must answer a call alike.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct QuorumExplained {
    /// This many.
    pub agree: usize,
    /// The most upstreams that are called.
    pub of: usize,
}

/// How closely an answer would be looked at before it is used.
#[derive(Debug, Clone, Serialize)]
pub struct VerifyExplained {
    /// `off`, `cheap` or `full`.
    pub level: &'static str,
    /// Why that.
    pub why: &'static str,
}

/// Whether an upstream would be asked.
#[derive(Debug, Clone, Serialize)]
pub struct UpstreamExplained {
    /// Its id.
    pub id: String,
    /// Its tier.
    pub tier: &'static str,
    /// Its place in the order, from 1; none where it is never asked.
    pub place: Option<usize>,
    /// Why there.
    pub why: String,
}

impl Proxy {
    /// Says what would become of a call; in words why it would be refused at once.
    pub fn explain(&self, thought: Thought<'_>) -> Result<Explanation, String> {
        let Thought { chain, method, params, client, select } = thought;
        let chain = self.find(chain).map_err(|refusal| refusal.message)?;
        let row = MethodTable::standard().row(method);
        let selection = Selection::read(select, &chain.roster)?;
        let worker = Arc::new(WorkerUpstreams::new(Vec::new(), 0));
        let at = now();
        let ctx = Ctx { may_stream: true, ..Ctx::of_address(client, at) };
        let view = chain.heads.view();
        // Nothing is asked.
        let progress = Progress::new(Allowance::new(0));
        let mut request =
            RequestContext::new(chain, &worker, &ctx, None, self.settings.total, &progress);
        request.selection = selection;
        let eligible = request
            .eligible_by_effect(row, method)
            .map_err(|why| Refusal::not_served(why, method, request.selected()).message)?;
        let served = chain.eligible(row, method).unwrap_or_default();
        let call = MethodCall { row, params };
        let pinned_call = pinned(&request, call, eligible, &view);
        let planned = plan_on(&view, chain, &worker, pinned_call.at_block(), at);
        let order = planned.plan.candidates();
        let PinnedCall { ask, pin } = &pinned_call;
        let mut upstreams: Vec<_> = chain
            .roster
            .upstreams()
            .iter()
            .map(|upstream| UpstreamExplained {
                id: upstream.identity().id.to_string(),
                tier: upstream.identity().tier.word(),
                place: order.iter().position(|slot| *slot == upstream.slot()).map(|at| at + 1),
                why: why(&request, served, upstream, assess(ask, upstream, &view, at)),
            })
            .collect();
        let mut steps = steps(&request, call, method, &planned, &worker);
        if matches!(row.effect, Effect::Local | Effect::Subscribe) {
            upstreams.clear();
            steps.clear();
        }
        upstreams.sort_by_key(|upstream| upstream.place.unwrap_or(usize::MAX));
        let cache = cache_word(&request, call, pin, &view);
        let asked = row.block_ref(params);
        Ok(Explanation {
            chain: chain.name.name.to_string(),
            method: row.name,
            effect: row.effect.to_string(),
            class: row.class.to_string(),
            block: block(&request, pin, &asked, &view),
            cache: CacheExplained { asked: cache == LOOKED_UP, why: cache },
            quorum: chain
                .quorums
                .of(row)
                .map(|quorum| QuorumExplained { agree: quorum.agree, of: quorum.of }),
            verify: verify(chain, row),
            upstreams,
            steps,
            heads: heads(row, chain, &view),
        })
    }
}

fn heads(row: &MethodRow, chain: &ServedChain, view: &View) -> Vec<HeadsExplained> {
    if row.effect != Effect::Subscribe {
        return Vec::new();
    }
    let is_busy = chain.pulse.is_busy(now());
    let how = |(upstream, asked): (&Arc<Upstream>, &Arc<CheckCounts>)| {
        let how = match (asked.feed_is_open(), is_busy && !view.is_idle(upstream.slot())) {
            (true, _) => "it pushes them".to_owned(),
            (false, true) => "it is polled at the pace of blocks".to_owned(),
            (false, false) => "it is looked at once a minute".to_owned(),
        };
        let pushed = match asked.pushed() {
            0 => String::new(),
            messages => format!("; {messages} messages so far, {} credits", asked.push_credits()),
        };
        HeadsExplained { id: upstream.identity().id.to_string(), how: how + &pushed }
    };
    chain.roster.upstreams().iter().zip(&chain.asked).map(how).collect()
}

fn steps(
    request: &RequestContext<'_>,
    call: MethodCall<'_>,
    method: &str,
    planned: &Planned,
    worker: &WorkerUpstreams,
) -> Vec<String> {
    let chain = request.chain;
    let job = Job {
        params: call.params,
        null_is_final: planned.null_is_final,
        is_there: planned.is_there,
        ballot: planned.ballot,
        ..Job::new(call.row, method, request.ctx.received_at, request.deadline())
    };
    let roster = &chain.roster;
    let at = request.ctx.received_at;
    let steps = preview(&job, &planned.plan, roster, worker, &chain.bounds, at);
    let id = |slot| &roster.upstream(slot).identity().id;
    let words = steps.into_iter().map(|step| match step {
        PreviewStep::Ask { slot, takes_token: false } => format!("call {}", id(slot)),
        PreviewStep::Ask { slot, takes_token: true } => {
            format!("call {}, if the retry budget has a token", id(slot))
        }
        PreviewStep::Held { slot, bound, wait } => {
            format!("skip {}: {} for {} ms", id(slot), bound.word(), wait.as_millis())
        }
        PreviewStep::Turn { most } => {
            format!("wait in the queue for at most {} ms", most.as_millis())
        }
        PreviewStep::Pause { most } => format!("pause for at most {} ms", most.as_millis()),
        PreviewStep::Return { most } => {
            format!("wait for an upstream to recover, for at most {} ms", most.as_millis())
        }
    });
    words.collect()
}

fn verify(chain: &ServedChain, row: &MethodRow) -> VerifyExplained {
    let level = chain.verifier.as_ref().map_or(Level::Off, |verifier| verifier.level(row));
    let differs = chain.verifier.as_ref().is_some_and(|verifier| verifier.spares_some(row));
    let why = match level {
        Level::Off if !has_checks(row) => "there is no check for this method",
        Level::Cheap | Level::Full if differs => {
            "the default for third-party upstreams; your own are not verified"
        }
        Level::Off | Level::Cheap | Level::Full => "set in the config",
    };
    VerifyExplained { level: level.word(), why }
}

fn block(
    request: &RequestContext<'_>,
    pin: &PinnedParams,
    asked: &BlockRef,
    view: &View,
) -> BlockExplained {
    let text = |params: &[u8]| String::from_utf8_lossy(params).into_owned();
    let params = pin.at_block_hash().map(|it| it.params).or(pin.by_height(None)).map(text);
    let why = match (&pin.params, asked) {
        (None, BlockRef::Number(_)) if pin.is_by_hash() => {
            "the client named the height; with the hash the answer can be cached"
        }
        (Some(_), _) if request.newest(view).is_some_and(Newest::is_shown) => {
            "a tag: the block that this client has seen, or the agreed one"
        }
        (Some(_), _) => "a tag: the agreed block",
        (None, BlockRef::None) => "it names no block",
        (None, BlockRef::Number(_) | BlockRef::Hash(_)) => "the client named it",
        (None, BlockRef::Unreadable) => "it cannot be parsed: the upstream reports the error",
        (None, BlockRef::Tag(_) | BlockRef::Range { .. }) if !request.chain.pins => {
            "unchanged: `pin` is `false`"
        }
        (None, BlockRef::Tag(_) | BlockRef::Range { .. }) if !view.is_fresh(now()) => {
            "unchanged: the view of the chain is not fresh"
        }
        (None, BlockRef::Tag(_) | BlockRef::Range { .. }) => "unchanged",
    };
    BlockExplained { asked: asked.to_string(), sent: pin.sent().to_string(), why, params }
}
