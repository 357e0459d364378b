//! A small piece of evidence, for the checkers' own tests to spoil.

use std::time::Duration;

use crate::evidence::{
    Answered, Ask, At, Caller, End, Evidence, Exchange, Flow, Item, Place, Received, Request, Told,
};
use crate::scenario::{Scale, Scenario};

/// The one upstream there is.
pub(crate) const PLACE: Place = Place { chain: 0, slot: 0 };
/// When the one request is sent, once everything has settled.
const SENT: At = Duration::from_secs(50);

/// One chain with one upstream that never fails.
pub(crate) fn evidence(requests: Vec<Request>, exchanges: Vec<Exchange>) -> Evidence {
    let mut scenario = Scenario::plain(1, Scale::Short);
    scenario.chains.truncate(1);
    let chain = &mut scenario.chains[0];
    chain.upstreams.truncate(1);
    let upstream = &mut chain.upstreams[0];
    upstream.spells.clear();
    (upstream.meter, upstream.shaped, upstream.is_elsewhere) = (None, None, false);
    Evidence { requests, exchanges, ..Evidence::new(scenario) }
}

/// A read under this id.
pub(crate) fn read(id: &str) -> Item {
    Item {
        id: Some(id.to_owned()),
        ask: Ask::Read,
        method: "eth_gasPrice".to_owned(),
        params: "[]".to_owned(),
    }
}

pub(crate) fn request(items: Vec<Item>) -> Request {
    Request { client: 0, chain: 0, at: SENT, items, is_batch: false, answered: None, hung_up: None }
}

/// An answer two milliseconds after the request.
pub(crate) fn answered(body: &str) -> Answered {
    Answered {
        at: SENT + Duration::from_millis(2),
        status: 200,
        body: body.to_owned().into(),
        attempts: 1,
        cache: None,
        upstream: Some("up-0a".to_owned()),
        trail: None,
        flow: Flow::Whole,
    }
}

/// An exchange within the life of the request.
pub(crate) fn exchange(key: &str, told: Option<Told>) -> Exchange {
    Exchange {
        place: PLACE,
        caller: Caller::Client,
        began: SENT,
        ended: Some(SENT + Duration::from_millis(1)),
        calls: vec![Received { key: key.to_owned(), told }],
        may_have_run: true,
        end: End::Answered,
    }
}

/// The control loop's first question, long before the request.
pub(crate) fn verified_at_once() -> Exchange {
    let mut exchange = exchange("eth_chainId[]", None);
    exchange.caller = Caller::House;
    (exchange.began, exchange.ended) = (At::ZERO, Some(At::ZERO));
    exchange
}
