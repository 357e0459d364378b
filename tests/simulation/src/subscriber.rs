//! One client that subscribes: its connections, what it subscribes to, and when it reads.
//!
//! It plays the part of the server besides, as `wellhead_server` and the handler of the binary do
//! it: calls of a connection run at once, an answer has its place before what it announces, and
//! notifications are taken as long as the client takes them.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use wellhead_proxy::{Ctx, Subscriber, SubscriberEvent, SubscriberMessage, Target};
use wellhead_sim::World;

use crate::ask::criteria;
use crate::client::{Desk, Manner, READERS};
use crate::evidence::{Ask, Item, PromptedRead};
use crate::keeper::{FilterKeeper, HttpAnswer};
use crate::sabotage::NoticeSaboteur;
use crate::scenario::{SubscriberHabit, SubscriberPlan};
use crate::session::{Crossing, HeadNotice, Notice, PendingForm, SessionCall, SessionEnd};

/// Subscriptions that one of these clients has at a time: more than the server allows would be refused.
const SUBSCRIPTIONS_MAX: usize = 24;
/// Of so many heads one is followed by a read of its block.
const READ_AFTER: u32 = 4;

/// Plays one client that subscribes, until it leaves for good.
pub async fn play(desk: Arc<Desk>, plan: SubscriberPlan, name: usize) {
    let mut rng = SmallRng::seed_from_u64(plan.seed);
    let world = Arc::clone(&desk.worlds[plan.chain]);
    let mut reads = JoinSet::new();
    let mut keeper = FilterKeeper::new(&desk, plan, name);
    sleep_until(desk.recorder.instant(plan.from)).await;
    while desk.recorder.now() < plan.until {
        let stays = match plan.habit {
            SubscriberHabit::Returns => millis(&mut rng, 2_000..30_000),
            SubscriberHabit::Listens | SubscriberHabit::Stalls(_) | SubscriberHabit::Storms(_) => {
                Duration::MAX
            }
        };
        let until = plan.until.min(desk.recorder.now().saturating_add(stays));
        let mut connection = Connection::open(&desk, &world, plan, name, keeper);
        connection.serve(until, &mut rng, &mut reads).await;
        keeper = connection.close();
        sleep(millis(&mut rng, 100..40_000).min(plan.until.saturating_sub(desk.recorder.now())))
            .await;
    }
    if let Some(keeper) = &mut keeper {
        keeper.finish().await;
    }
    while reads.join_next().await.is_some() {}
}

fn millis(rng: &mut SmallRng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.random_range(range))
}

/// What a message of the client came to.
struct Answer {
    body: Bytes,
    /// Has what was subscribed to announced, once the answer has its place.
    on_queued: Box<dyn FnOnce() + Send>,
}

/// One connection.
struct Connection<'a> {
    desk: &'a Arc<Desk>,
    world: &'a Arc<World>,
    plan: SubscriberPlan,
    name: usize,
    subscriber: Arc<Subscriber>,
    /// Its number.
    number: usize,
    /// Messages that are not answered yet. They end with the connection.
    messages: JoinSet<Answer>,
    /// The id of the last call.
    last_id: u64,
    /// The ids of calls to subscribe that are not answered yet.
    asked: Vec<u64>,
    /// The ids of its subscriptions.
    subscriptions: Vec<String>,
    saboteur: NoticeSaboteur,
    /// The filters of its client, which outlive it.
    keeper: Option<FilterKeeper>,
}

/// Reads that clients make because they were told of a block.
type Reads = JoinSet<()>;

#[derive(Debug, Deserialize)]
struct Reply<'a> {
    id: u64,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl<'a> Connection<'a> {
    fn open(
        desk: &'a Arc<Desk>,
        world: &'a Arc<World>,
        plan: SubscriberPlan,
        name: usize,
        keeper: Option<FilterKeeper>,
    ) -> Self {
        let worker = &desk.workers[name % desk.workers.len()];
        let subscriber = desk.proxy.open_subscriber(worker, Some(desk.names[plan.chain]));
        let number = desk.recorder.opened(name, plan.chain);
        Self {
            desk,
            world,
            plan,
            name,
            subscriber: Arc::new(subscriber.expect("its chain is served")),
            number,
            saboteur: NoticeSaboteur::new(desk.saboteur.sabotage(), number),
            messages: JoinSet::new(),
            last_id: 0,
            asked: Vec::new(),
            subscriptions: Vec::new(),
            keeper,
        }
    }

    /// Ends it with all that it has not read.
    fn close(mut self) -> Option<FilterKeeper> {
        if let Some(keeper) = &mut self.keeper {
            keeper.session_ended();
        }
        self.keeper
    }

    /// Calls and listens until `until`, or until the server closes the connection.
    async fn serve(&mut self, until: Duration, rng: &mut SmallRng, reads: &mut Reads) {
        let leaves = sleep_until(self.desk.recorder.instant(until));
        let mut leaves = std::pin::pin!(leaves);
        let mut acts: Pin<Box<Sleep>> = Box::pin(sleep(Duration::ZERO));
        let mut polls: Pin<Box<Sleep>> = Box::pin(sleep(Duration::ZERO));
        let mut is_stalled = false;
        self.begin(rng);
        let end = loop {
            tokio::select! {
                // In this order, so that a simulated world has no chance but its own.
                biased;
                () = &mut leaves => break SessionEnd::Left,
                () = &mut acts => {
                    is_stalled = self.act(is_stalled, rng);
                    let pause = self.pause(is_stalled, rng);
                    acts.as_mut().reset(Instant::now() + pause);
                }
                Some(answer) = self.messages.join_next(), if !is_stalled => {
                    let Answer { body, on_queued } = answer.expect("a call does not panic");
                    self.answered(&body);
                    on_queued();
                }
                () = &mut polls, if !is_stalled && self.keeper.is_some() => {
                    polls.as_mut().reset(Instant::now() + self.keep_filters());
                }
                answer = next_over_http(&mut self.keeper), if !is_stalled => {
                    if let Some(keeper) = &mut self.keeper {
                        keeper.answered_over_http(answer);
                    }
                }
                event = poll_fn(|cx| self.subscriber.poll_event(cx)),
                    if !is_stalled && !self.saboteur.is_silent() => match event {
                    SubscriberEvent::Notification(pieces) => {
                        sleep(self.saboteur.delay()).await;
                        for message in self.saboteur.spoil(pieces.concat()) {
                            self.told(&message, rng, reads);
                        }
                    }
                    SubscriberEvent::TooSlow => break SessionEnd::TooSlow,
                    SubscriberEvent::Resync => break SessionEnd::Resync,
                },
            }
        };
        self.desk.recorder.closed(self.number, end);
        if self.saboteur.keeps_session() {
            std::mem::forget(Arc::clone(&self.subscriber));
        }
    }

    /// What it subscribes to at first.
    fn begin(&mut self, rng: &mut SmallRng) {
        let logs = |rng: &mut SmallRng| SessionCall::Logs(criteria(self.world, rng).to_string());
        let mut calls = vec![SessionCall::Heads];
        calls.extend((0..rng.random_range(0..3)).map(|_| logs(rng)));
        calls.extend(self.plan.pending.map(SessionCall::Pending));
        if rng.random() {
            calls.reverse();
        }
        match rng.random() {
            true => self.send(calls, true),
            false => calls.into_iter().for_each(|call| self.send(vec![call], false)),
        }
    }

    /// Does something; returns whether it reads nothing from now on.
    fn act(&mut self, is_stalled: bool, rng: &mut SmallRng) -> bool {
        match self.plan.habit {
            SubscriberHabit::Stalls(_) => {
                let now = !is_stalled && self.desk.recorder.now() < self.calm_from();
                if now != is_stalled {
                    let crossing = if now { Crossing::Stalled } else { Crossing::Resumed };
                    self.desk.recorder.crossed(self.number, crossing);
                }
                now
            }
            SubscriberHabit::Storms(_) => {
                self.change(rng);
                false
            }
            SubscriberHabit::Listens | SubscriberHabit::Returns => {
                if rng.random_ratio(1, 3) {
                    self.change(rng);
                }
                false
            }
        }
    }

    /// Does something with its filters; returns the pause until it does so again.
    fn keep_filters(&mut self) -> Duration {
        let is_calm = self.desk.recorder.now() >= self.calm_from();
        let Some(keeper) = &mut self.keeper else { return Duration::MAX };
        let call = keeper.act(self.world, is_calm);
        let pause = keeper.pause();
        if let Some(call) = call {
            let (method, params) = call.written();
            // The next one.
            keeper.called_over_session(self.last_id + 1, call);
            self.send(vec![SessionCall::Filter(method, params)], false);
        }
        pause
    }

    /// Until it acts again.
    fn pause(&self, is_stalled: bool, rng: &mut SmallRng) -> Duration {
        let pace = match self.plan.habit {
            SubscriberHabit::Stalls(longest) if is_stalled => longest,
            SubscriberHabit::Storms(pace) => pace,
            SubscriberHabit::Stalls(_) | SubscriberHabit::Listens | SubscriberHabit::Returns => {
                Duration::from_secs(15)
            }
        };
        let pace = u64::try_from(pace.as_millis()).unwrap_or(u64::MAX);
        millis(rng, pace / 2..pace + 1)
    }

    /// From when on it neither stalls nor changes what it listens to.
    fn calm_from(&self) -> Duration {
        self.plan.until.saturating_sub(Duration::from_secs(60))
    }

    /// Subscribes to one thing more, or to one less.
    fn change(&mut self, rng: &mut SmallRng) {
        if self.desk.recorder.now() >= self.calm_from() {
            return;
        }
        let open = self.subscriptions.len() + self.asked.len();
        let call = match rng.random_range(0..6) {
            0 | 1 if !self.subscriptions.is_empty() => {
                let place = rng.random_range(0..self.subscriptions.len());
                SessionCall::Unsubscribe(self.subscriptions.swap_remove(place))
            }
            // There is none of this id.
            2 => SessionCall::Unsubscribe(format!("{:#034x}", rng.random::<u128>() | 1 << 124)),
            _ if open >= SUBSCRIPTIONS_MAX => return,
            3 => SessionCall::Heads,
            _ => SessionCall::Logs(criteria(self.world, rng).to_string()),
        };
        self.send(vec![call], false);
    }

    /// Sends one message.
    fn send(&mut self, calls: Vec<SessionCall>, is_batch: bool) {
        let mut written = Vec::new();
        for call in calls {
            self.last_id += 1;
            let id = self.last_id;
            let (method, params) = match &call {
                SessionCall::Heads => ("eth_subscribe", r#"["newHeads"]"#.to_owned()),
                SessionCall::Logs(criteria) => ("eth_subscribe", format!(r#"["logs",{criteria}]"#)),
                SessionCall::Pending(PendingForm::Hashes) => {
                    ("eth_subscribe", r#"["newPendingTransactions"]"#.to_owned())
                }
                SessionCall::Pending(PendingForm::Whole) => {
                    ("eth_subscribe", r#"["newPendingTransactions",true]"#.to_owned())
                }
                SessionCall::Unsubscribe(id) => ("eth_unsubscribe", format!(r#"["{id}"]"#)),
                SessionCall::Filter(method, params) => (*method, params.clone()),
            };
            if method == "eth_subscribe" {
                self.asked.push(id);
            }
            written.push(format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
            ));
            self.desk.recorder.crossed(self.number, Crossing::Asked(id, call));
        }
        let body = match is_batch {
            true => format!("[{}]", written.join(",")),
            false => written.concat(),
        };
        let (desk, subscriber) = (Arc::clone(self.desk), Arc::clone(&self.subscriber));
        let (name, chain) = (self.name, self.plan.chain);
        self.messages.spawn(async move {
            let worker = &desk.workers[name % desk.workers.len()];
            let ctx = Ctx {
                received_at: Instant::now().into_std(),
                peer: ([127, 0, 0, 1], 1).into(),
                caller: None,
                want_trail: false,
                known_block: None,
                may_stream: false,
                trace_parent: None,
            };
            let target = Target { chain: Some(desk.names[chain]), select: &[] };
            let message = SubscriberMessage::new(&subscriber);
            let calls = Bytes::from(body);
            let body = calls.clone();
            let answer = desk.proxy.handle_message(worker, Some(&message), ctx, target, body).await;
            let (body, _) = desk.saboteur.spoil(&calls, answer.body.concat(), None);
            let (subscribed, body) = (message.into_subscribed(), body.into());
            let on_queued = Box::new(move || subscriber.activate(&subscribed));
            Answer { body, on_queued }
        });
    }

    /// Takes an answer.
    fn answered(&mut self, body: &[u8]) {
        let replies: Vec<Reply<'_>> = match body.starts_with(b"[") {
            true => serde_json::from_slice(body),
            false => serde_json::from_slice(body).map(|reply| vec![reply]),
        }
        .expect("an answer to what the client sent");
        for Reply { id, result, error } in replies {
            let outcome = match (result, error) {
                (Some(result), _) => Ok(result.get().to_owned()),
                (None, error) => Err(error.map(RawValue::get).unwrap_or_default().to_owned()),
            };
            if let Some(place) = self.asked.iter().position(|asked| *asked == id) {
                self.asked.swap_remove(place);
                let subscription = outcome.as_ref().ok();
                let subscription = subscription.and_then(|text| serde_json::from_str(text).ok());
                self.subscriptions.extend(subscription);
            }
            if let Some(keeper) = &mut self.keeper {
                keeper.answered_over_session(id, &outcome);
            }
            self.desk.recorder.crossed(self.number, Crossing::Answered(id, outcome));
        }
    }

    /// Takes a notification.
    fn told(&self, message: &[u8], rng: &mut SmallRng, reads: &mut Reads) {
        let notice = Notice::read(message);
        if let Notice::Head(_, head) = &notice
            && rng.random_ratio(1, READ_AFTER)
        {
            let item = read_of(head, rng);
            let prompted = PromptedRead { request: 0, number: head.number, hash: head.hash };
            let (desk, chain, name) = (Arc::clone(self.desk), self.plan.chain, self.name);
            // Of any worker.
            let reader = READERS + name + rng.random_range(0..2_usize);
            reads.spawn(async move {
                let manner = Manner::default();
                let (request, _) = desk.send(reader, chain, vec![item], false, manner).await;
                let read = PromptedRead { request, ..prompted };
                desk.recorder.with(|evidence| evidence.prompted.push(read));
            });
        }
        self.desk.recorder.crossed(self.number, Crossing::Told(notice));
    }
}

/// The next answer to a call about a filter that was made over HTTP.
async fn next_over_http(keeper: &mut Option<FilterKeeper>) -> HttpAnswer {
    if let Some(keeper) = keeper
        && let Some(answer) = keeper.next_over_http().await
    {
        return answer;
    }
    std::future::pending().await
}

/// A read of a block that was just told.
fn read_of(head: &HeadNotice, rng: &mut SmallRng) -> Item {
    let HeadNotice { number, hash, .. } = head;
    let (method, params) = match rng.random_range(0..5) {
        0 => ("eth_getBlockByNumber", format!("[\"{number:#x}\",false]")),
        1 => ("eth_getBlockByHash", format!("[\"{hash}\",false]")),
        2 => ("eth_getLogs", format!("[{{\"blockHash\":\"{hash}\"}}]")),
        3 => {
            let range = format!("[{{\"fromBlock\":\"{number:#x}\",\"toBlock\":\"{number:#x}\"}}]");
            ("eth_getLogs", range)
        }
        _ => ("eth_getBlockReceipts", format!("[\"{hash}\"]")),
    };
    Item { id: Some("1".to_owned()), ask: Ask::Read, method: method.to_owned(), params }
}
