//! What one client does with filters: makes them, polls them, over HTTP and over its session, and removes them.
//!
//! A filter belongs to no connection, so that a client goes on with it when its connection was closed. It has
//! one poll at a time under way: the order of what two told could not be known. A filter that is not found is
//! made anew, as clients do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use wellhead_sim::World;

use crate::ask::criteria;
use crate::client::{Desk, Manner, READERS};
use crate::evidence::{Ask, At, Item};
use crate::filter::{AnsweredPoll, FilterEnd, KeptFilter};
use crate::scenario::SubscriberPlan;

/// Filters of one client at a time.
const FILTERS_MAX: usize = 3;
/// So long before its client leaves each filter is polled once more, when all has come to rest.
const LAST_POLLS: Duration = Duration::from_secs(10);
/// The pause between these.
const LAST_PAUSE: Duration = Duration::from_millis(500);
/// What the proxy says of a filter that is not there.
const NOT_FOUND: &str = "filter not found";

/// A call that has to do with a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FilterCall {
    /// Makes one, of these logs or of blocks.
    Make(Option<String>),
    /// Polls the one of this number and id.
    Poll(usize, String),
    /// Reads all logs of it.
    ReadAll(usize, String),
    /// Removes it.
    Remove(usize, String),
}

impl FilterCall {
    /// Its method and params.
    pub(crate) fn written(&self) -> (&'static str, String) {
        match self {
            Self::Make(None) => ("eth_newBlockFilter", "[]".to_owned()),
            Self::Make(Some(criteria)) => ("eth_newFilter", format!("[{criteria}]")),
            Self::Poll(_, id) => ("eth_getFilterChanges", format!("[\"{id}\"]")),
            Self::ReadAll(_, id) => ("eth_getFilterLogs", format!("[\"{id}\"]")),
            Self::Remove(_, id) => ("eth_uninstallFilter", format!("[\"{id}\"]")),
        }
    }
}

/// A filter that is there, as its client knows it.
#[derive(Debug)]
struct HeldFilter {
    /// Its number in the evidence.
    number: usize,
    id: String,
    is_of_logs: bool,
    /// A call that names it is under way.
    is_busy: bool,
    polled_at: At,
}

/// A call that was answered over HTTP, when it was sent and when its answer came.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    call: FilterCall,
    asked: At,
    answered: At,
    outcome: Result<String, String>,
}

#[derive(Debug, Deserialize)]
struct FilterReply<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// The filters of one client.
#[derive(Debug)]
pub(crate) struct FilterKeeper {
    desk: Arc<Desk>,
    plan: SubscriberPlan,
    name: usize,
    pace: Duration,
    rng: SmallRng,
    filters: Vec<HeldFilter>,
    /// Filters that are being made.
    making: usize,
    /// Calls under way over HTTP.
    calls: JoinSet<HttpAnswer>,
    /// Calls under way over the present session, by id.
    in_session: BTreeMap<u64, (FilterCall, At)>,
}

impl FilterKeeper {
    /// For a client, if its plan says so.
    pub(crate) fn new(desk: &Arc<Desk>, plan: SubscriberPlan, name: usize) -> Option<Self> {
        let pace = plan.polls_every?;
        Some(Self {
            desk: Arc::clone(desk),
            plan,
            name,
            pace,
            // Of its own, so that what the client does besides stays as it is.
            rng: SmallRng::seed_from_u64(plan.seed ^ 0xf117),
            filters: Vec::new(),
            making: 0,
            calls: JoinSet::new(),
            in_session: BTreeMap::new(),
        })
    }

    /// Until it acts again.
    pub(crate) fn pause(&mut self) -> Duration {
        if self.is_last(self.desk.recorder.now()) {
            return LAST_PAUSE;
        }
        let pace = u64::try_from(self.pace.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.rng.random_range(pace / 2..=pace))
    }

    /// Does something. A call that is returned is to be made over the session.
    pub(crate) fn act(&mut self, world: &World, is_calm: bool) -> Option<FilterCall> {
        let now = self.desk.recorder.now();
        let call = match self.is_last(now) {
            true => self.last_poll(now)?,
            false => self.next_call(world, is_calm, now)?,
        };
        match self.rng.random() {
            true => Some(call),
            false => {
                self.call_over_http(call);
                None
            }
        }
    }

    fn is_last(&self, now: At) -> bool {
        now + LAST_POLLS >= self.plan.until
    }

    fn last_poll(&mut self, now: At) -> Option<FilterCall> {
        let since = self.plan.until.saturating_sub(LAST_POLLS);
        let is_due = |it: &&mut HeldFilter| !it.is_busy && it.polled_at < since;
        self.filters.iter_mut().find(is_due).map(|filter| filter.poll(now))
    }

    fn next_call(&mut self, world: &World, is_calm: bool, now: At) -> Option<FilterCall> {
        let count = self.filters.len() + self.making;
        let makes = count == 0 || (count < FILTERS_MAX && self.rng.random_ratio(1, 5));
        if makes && !is_calm {
            self.making += 1;
            let is_of_logs = self.rng.random_ratio(2, 3);
            let criteria = is_of_logs.then(|| criteria(world, &mut self.rng).to_string());
            return Some(FilterCall::Make(criteria));
        }
        let mut idle: Vec<_> = self.filters.iter_mut().filter(|it| !it.is_busy).collect();
        if idle.is_empty() {
            return None;
        }
        let filter = idle.swap_remove(self.rng.random_range(0..idle.len()));
        Some(match self.rng.random_range(0..24) {
            0 if !is_calm => filter.remove(),
            1 if filter.is_of_logs => filter.read_all(),
            _ => filter.poll(now),
        })
    }

    fn call_over_http(&mut self, call: FilterCall) {
        let (method, params) = call.written();
        let (id, method) = (Some("1".to_owned()), method.to_owned());
        let item = Item { id, ask: Ask::Filter, method, params };
        // Of any worker.
        let reader = READERS + self.name + self.rng.random_range(0..2_usize);
        let (desk, chain) = (Arc::clone(&self.desk), self.plan.chain);
        self.calls.spawn(async move {
            let asked = desk.recorder.now();
            let manner = Manner::default();
            let (_, body) = desk.send(reader, chain, vec![item], false, manner).await;
            let reply = body.as_deref().map(serde_json::from_slice::<FilterReply<'_>>);
            let outcome = match reply {
                Some(Ok(FilterReply { result: Some(result), .. })) => Ok(result.get().to_owned()),
                Some(Ok(FilterReply { error, .. })) => {
                    Err(error.map(RawValue::get).unwrap_or_default().to_owned())
                }
                Some(Err(error)) => Err(error.to_string()),
                None => Err("cut".to_owned()),
            };
            HttpAnswer { call, asked, answered: desk.recorder.now(), outcome }
        });
    }

    /// The next answer that came over HTTP; `None` while none is under way.
    pub(crate) async fn next_over_http(&mut self) -> Option<HttpAnswer> {
        let answer = self.calls.join_next().await?;
        Some(answer.expect("a call does not panic"))
    }

    /// Takes an answer that came over HTTP.
    pub(crate) fn answered_over_http(&mut self, answer: HttpAnswer) {
        let HttpAnswer { call, asked, answered, outcome } = answer;
        self.answered(call, (asked, answered), outcome);
    }

    /// A call is made over the session, under this id.
    pub(crate) fn called_over_session(&mut self, id: u64, call: FilterCall) {
        self.in_session.insert(id, (call, self.desk.recorder.now()));
    }

    /// Takes an answer that came over the session, if it is to a call about a filter.
    pub(crate) fn answered_over_session(&mut self, id: u64, outcome: &Result<String, String>) {
        if let Some((call, asked)) = self.in_session.remove(&id) {
            let answered = self.desk.recorder.now();
            self.answered(call, (asked, answered), outcome.clone());
        }
    }

    /// The session ended, with the calls that were under way.
    pub(crate) fn session_ended(&mut self) {
        let now = self.desk.recorder.now();
        for (_, (call, _)) in std::mem::take(&mut self.in_session) {
            match call {
                FilterCall::Make(_) => self.making -= 1,
                FilterCall::ReadAll(number, _) => self.held(number).is_busy = false,
                FilterCall::Poll(number, _) | FilterCall::Remove(number, _) => {
                    self.end(number, now, FilterEnd::Lost);
                }
            }
        }
    }

    /// Takes the answers to all calls that are under way.
    pub(crate) async fn finish(&mut self) {
        while let Some(answer) = self.next_over_http().await {
            self.answered_over_http(answer);
        }
    }

    fn answered(
        &mut self,
        call: FilterCall,
        (asked, at): (At, At),
        outcome: Result<String, String>,
    ) {
        let recorder = Arc::clone(&self.desk.recorder);
        match call {
            FilterCall::Make(criteria) => {
                self.making -= 1;
                let id = outcome.ok().and_then(|text| serde_json::from_str::<String>(&text).ok());
                let Some(id) = id else { return };
                let is_of_logs = criteria.is_some();
                let (keeper, chain) = (self.name, self.plan.chain);
                let (polls, ended) = (Vec::new(), None);
                let made = KeptFilter { keeper, chain, criteria, made: at, polls, ended };
                let number = recorder.with(|evidence| {
                    evidence.filters.push(made);
                    evidence.filters.len() - 1
                });
                let (is_busy, polled_at) = (false, at);
                self.filters.push(HeldFilter { number, id, is_of_logs, is_busy, polled_at });
            }
            FilterCall::Poll(number, _) => {
                let is_gone = outcome.as_ref().is_err_and(|error| error.contains(NOT_FOUND));
                if is_gone {
                    return self.end(number, at, FilterEnd::NotFound);
                }
                let poll = AnsweredPoll { asked, answered: at, outcome };
                recorder.with(|evidence| evidence.filters[number].polls.push(poll));
                self.held(number).is_busy = false;
            }
            FilterCall::ReadAll(number, _) => {
                if outcome.is_err_and(|error| error.contains(NOT_FOUND)) {
                    return self.end(number, at, FilterEnd::NotFound);
                }
                self.held(number).is_busy = false;
            }
            FilterCall::Remove(number, _) => self.end(number, at, FilterEnd::Removed),
        }
    }

    fn held(&mut self, number: usize) -> &mut HeldFilter {
        let held = self.filters.iter_mut().find(|it| it.number == number);
        held.expect("a filter is there while a call names it")
    }

    fn end(&mut self, number: usize, at: At, end: FilterEnd) {
        self.filters.retain(|it| it.number != number);
        self.desk.recorder.with(|evidence| evidence.filters[number].ended = Some((at, end)));
    }
}

impl HeldFilter {
    fn poll(&mut self, now: At) -> FilterCall {
        (self.is_busy, self.polled_at) = (true, now);
        FilterCall::Poll(self.number, self.id.clone())
    }

    fn read_all(&mut self) -> FilterCall {
        self.is_busy = true;
        FilterCall::ReadAll(self.number, self.id.clone())
    }

    fn remove(&mut self) -> FilterCall {
        self.is_busy = true;
        FilterCall::Remove(self.number, self.id.clone())
    }
}
