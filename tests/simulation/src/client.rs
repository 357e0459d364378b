//! Clients: how they call, how long they wait, and how they read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};
use wellhead_proxy::{Ctx, Proxy, WorkerChains};
use wellhead_sim::World;

use crate::ask::Asker;
use crate::evidence::{Answered, Ask, Flow, Item};
use crate::record::Recorder;
use crate::sabotage::Saboteur;
use crate::scenario::{ClientPlan, Habit};

/// The numbers of the clients that call over HTTP for a subscriber begin here.
pub(crate) const READERS: usize = 1_000;

/// What all clients share.
#[derive(Debug)]
pub struct Desk {
    /// The proxy.
    pub proxy: Arc<Proxy>,
    /// One a worker.
    pub workers: Vec<Arc<WorkerChains>>,
    /// One a chain.
    pub worlds: Vec<Arc<World>>,
    /// Whether the proxy keeps answers.
    pub keeps: bool,
    /// The chains' names.
    pub names: Vec<&'static str>,
    /// Where it is written down.
    pub recorder: Arc<Recorder>,
    /// The longest that a call may take.
    pub total: Duration,
    /// Spoils answers, where something is broken on purpose.
    pub saboteur: Saboteur,
}

/// How one request is made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// Goes away after so long.
    patience: Option<Duration>,
    /// Waits so long before each piece of a large answer.
    reads_slowly: Option<Duration>,
    want_trail: bool,
    /// Comes from the address that takes all it can get.
    is_rude: bool,
}

/// One reply, as a client reads it.
#[derive(Debug, Deserialize)]
struct Reply<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

/// Plays one client to its end.
pub async fn play(desk: Arc<Desk>, plan: ClientPlan, name: usize, length: Duration) {
    let world = Arc::clone(&desk.worlds[plan.chain]);
    let asker = Asker::new(SmallRng::seed_from_u64(plan.seed), name, &world);
    let asker = match desk.keeps {
        true => asker.asking_again(SmallRng::seed_from_u64(plan.seed ^ 1)),
        false => asker,
    };
    let mut client = Client { desk, plan, name, asker, filter: None };
    sleep(plan.from).await;
    for _ in 0..plan.requests {
        if client.desk.recorder.now() >= length {
            return;
        }
        client.turn(&world).await;
        if plan.pauses && client.asker.rng.random_ratio(1, 12) {
            sleep(millis(length.mul_f64(client.asker.rng.random_range(0.01..0.2)))).await;
        }
    }
}

fn millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

struct Client {
    desk: Arc<Desk>,
    plan: ClientPlan,
    name: usize,
    asker: Asker,
    filter: Option<String>,
}

impl Client {
    async fn turn(&mut self, world: &World) {
        let want_trail = self.asker.rng.random_ratio(1, 4);
        let plain = Manner { want_trail, is_rude: self.plan.is_rude, ..Manner::default() };
        match self.plan.habit {
            Habit::Steady(pace) => {
                let item = match self.asker.rng.random_ratio(1, 30) {
                    true => self.asker.write(),
                    false => self.asker.read(),
                };
                self.ask(item, plain).await;
                sleep(pace).await;
            }
            Habit::Bursts(count, pause) => {
                let items: Vec<Item> = (0..count).map(|_| self.asker.read()).collect();
                self.all_at_once(items, plain).await;
                // A burst is many requests.
                sleep(pause * count).await;
            }
            Habit::Batches(most, pause) => {
                let count = self.asker.rng.random_range(1..=most);
                let items: Vec<Item> = (0..count).map(|_| self.asker.batch_item()).collect();
                self.send(items, true, plain).await;
                sleep(pause).await;
            }
            Habit::Impatient(patience) => {
                let patience = millis(patience.mul_f64(self.asker.rng.random_range(0.1..2.0)));
                let manner = Manner { patience: Some(patience), ..plain };
                let item = match self.asker.rng.random_ratio(1, 4) {
                    true => self.asker.large_read(),
                    false => self.asker.read(),
                };
                self.ask(item, manner).await;
                sleep(patience).await;
            }
            Habit::Sender(pace) => {
                self.send_or_read(world, pace, plain).await;
                sleep(pace).await;
            }
            Habit::Filters(pace) => {
                self.use_filter(plain).await;
                sleep(pace).await;
            }
            Habit::Reader(pace) => {
                let slowly = self.asker.rng.random_ratio(1, 4);
                let item = self.asker.large_read();
                self.ask(item, Manner { reads_slowly: slowly.then_some(pace), ..plain }).await;
                sleep(pace).await;
            }
            Habit::Stalls(count, pause) => {
                let items: Vec<Item> = (0..count).map(|_| self.asker.large_read()).collect();
                self.all_at_once(items, Manner { reads_slowly: Some(pause), ..plain }).await;
            }
            Habit::Searches(count, pause) => {
                let items: Vec<Item> = (0..count).map(|_| self.asker.wide_search()).collect();
                self.send(items, true, plain).await;
                sleep(pause).await;
            }
        }
    }

    /// Sends a transaction, or reads; now and then waits no longer than `pace` for the answer.
    async fn send_or_read(&mut self, world: &World, pace: Duration, plain: Manner) {
        let wallets = world.wallets();
        let item = match self.asker.rng.random_ratio(1, 2) {
            true => self.asker.transaction(&wallets[self.name % wallets.len()]),
            false => self.asker.read(),
        };
        let patience = self.asker.rng.random_ratio(1, 5).then_some(pace);
        self.ask(item, Manner { patience, ..plain }).await;
    }

    /// Makes a filter, or polls or removes the one there is.
    async fn use_filter(&mut self, plain: Manner) {
        let item = match self.filter.clone() {
            Some(filter) => self.asker.use_filter(&filter),
            None => self.asker.make_filter(),
        };
        let is_over = item.method == "eth_uninstallFilter";
        let result = self.ask(item, plain).await;
        match (&self.filter, result) {
            (None, Some(made)) => self.filter = serde_json::from_str(&made).ok(),
            (Some(_), _) if is_over => self.filter = None,
            _ => {}
        }
    }

    /// A request for each of these, and none before all are answered.
    async fn all_at_once(&self, items: Vec<Item>, manner: Manner) {
        let mut running = Vec::new();
        for item in items {
            let (desk, plan, name) = (Arc::clone(&self.desk), self.plan, self.name);
            running.push(tokio::spawn(async move {
                desk.send(name, plan.chain, vec![item], false, manner).await;
            }));
        }
        for one in running {
            one.await.expect("a request does not panic");
        }
    }

    /// One call; returns its raw result, if it has one.
    async fn ask(&mut self, item: Item, manner: Manner) -> Option<String> {
        let body = self.send(vec![item.clone()], false, manner).await?;
        let reply: Reply<'_> = serde_json::from_slice(&body).ok()?;
        let result = reply.result?.get().to_owned();
        self.asker.learn(&item, &result);
        Some(result)
    }

    async fn send(&self, items: Vec<Item>, is_batch: bool, manner: Manner) -> Option<Bytes> {
        self.desk.send(self.name, self.plan.chain, items, is_batch, manner).await.1
    }
}

impl Desk {
    /// One request, to its end or the client's; its number, and the body that came.
    pub(crate) async fn send(
        &self,
        client: usize,
        chain: usize,
        items: Vec<Item>,
        is_batch: bool,
        manner: Manner,
    ) -> (usize, Option<Bytes>) {
        let written: Vec<String> = items.iter().map(write).collect();
        let body = if is_batch { format!("[{}]", written.join(",")) } else { written.concat() };
        let number = self.recorder.sent(client, chain, items, is_batch);
        let work = self.exchange(client, chain, Bytes::from(body), manner);
        let answered = match manner.patience {
            None => Some(work.await),
            Some(patience) => timeout(patience, work).await.ok(),
        };
        match answered {
            Some(answered) => {
                let body = answered.body.clone();
                let is_whole = answered.flow != Flow::Cut;
                self.recorder.answered(number, answered);
                (number, is_whole.then_some(body))
            }
            None => {
                self.recorder.hung_up(number);
                (number, None)
            }
        }
    }

    async fn exchange(&self, client: usize, chain: usize, body: Bytes, manner: Manner) -> Answered {
        let ctx = Ctx {
            received_at: tokio::time::Instant::now().into_std(),
            peer: ([127, 0, 0, if manner.is_rude { 2 } else { 1 }], 1).into(),
            caller: None,
            want_trail: manner.want_trail,
            known_block: None,
            may_stream: true,
            trace_parent: None,
        };
        let worker = &self.workers[client % self.workers.len()];
        let call = body.clone();
        let mut answer = self.proxy.handle(worker, ctx, Some(self.names[chain]), body).await;
        sleep(self.saboteur.delay(self.total)).await;
        let at = self.recorder.now();
        let mut body: Vec<u8> = answer.body.concat();
        let mut flow = Flow::Whole;
        if let Some(rest) = &mut answer.rest {
            flow = loop {
                if let Some(pause) = manner.reads_slowly {
                    sleep(pause).await;
                }
                match rest.next().await {
                    None => break Flow::Ended,
                    Some(Ok(piece)) => body.extend_from_slice(&piece),
                    Some(Err(_)) => break Flow::Cut,
                }
            };
        }
        let (body, cache) = self.saboteur.spoil(&call, body, answer.cache);
        Answered {
            at,
            status: answer.status,
            body: body.into(),
            attempts: answer.attempts,
            cache,
            upstream: answer.upstream.as_deref().map(str::to_owned),
            trail: answer.trail,
            flow,
        }
    }
}

/// The item as it goes out.
fn write(item: &Item) -> String {
    if item.ask == Ask::Malformed {
        return item.params.clone();
    }
    let Item { method, params, .. } = item;
    match &item.id {
        None => format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#),
        // By the length of the id, so that both orders occur and nothing has to be drawn.
        Some(id) if id.len().is_multiple_of(2) => {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
        }
        Some(id) => {
            format!(r#"{{"method": "{method}", "params": {params}, "id": {id}, "jsonrpc": "2.0"}}"#)
        }
    }
}
