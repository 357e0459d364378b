//! Three wellheads that share limits, their callers, and the judgement of a phase.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use wellhead_e2e::attack::{self, upstream::CHAIN_ID};
use wellhead_e2e::{KeyFile, Rpc, Wellhead, until};
use wellhead_limit::lease::{DEPTH, LEASE};

use crate::callers::{CALM, CallTally, LOUD, hunt, stay_calm};

pub(crate) const REPLICAS: usize = 3;

/// The limit that is hunted.
const RATE: f64 = 200.0;
const BURST: f64 = 20.0;
/// The calm tenant has two shared limits, and a call without the store counts once for each.
const CALM_QUOTA: &str = "calls_per_second: 120, burst: 40, credits_per_day: 1M";
const CALM_LIMITS: f64 = 2.0;

/// How long each phase lasts at least.
const PHASE: Duration = Duration::from_secs(1);
/// Between two events of one phase: a sixth of a second, at full pace.
const CALLS_BETWEEN: u64 = 150;
/// Longer than the pauses between attempts to connect, which are at most 10 s, on a machine of any speed.
const BOUND: Duration = Duration::from_secs(60);

pub(crate) struct Fleet {
    replicas: Vec<Wellhead>,
    loud: Vec<Arc<Rpc>>,
    /// Of the next call.
    numbers: Arc<AtomicU64>,
    calm: Arc<CallTally>,
    calm_callers: JoinSet<()>,
    began: Instant,
    /// What all phases were together.
    whole: RefCell<PhaseCounts>,
    /// At the begin of the phase.
    before: RefCell<Vec<Sharing>>,
    _keys: KeyFile,
}

/// What a replica says of its sharing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sharing {
    is_away: bool,
    replicas: f64,
    /// Calls that were let through without the store.
    pub(crate) alone: f64,
    departures: f64,
}

impl Fleet {
    /// Wellheads before the store at each of these ports.
    pub(crate) async fn start(stores: [u16; REPLICAS]) -> Self {
        Self::start_under(&[], stores).await
    }

    /// As [`Self::start`], each by way of another program.
    pub(crate) async fn start_under(launcher: &[String], stores: [u16; REPLICAS]) -> Self {
        let mut keys = KeyFile::new();
        let texts = [LOUD, CALM].map(|tenant| keys.add(tenant, |_| {}));
        let node = attack::Upstream::start().address;
        let chain = format!(
            "  main: {{ id: {CHAIN_ID}, upstreams: [{{ id: node, url: \"http://{node}\" }}] }}\n"
        );
        let launcher: Vec<&str> = launcher.iter().map(String::as_str).collect();
        let spawn = |port| Wellhead::spawn_under(&launcher, &settings(port, &keys), &chain);
        let replicas = join_all(stores.map(spawn).map(Wellhead::ready)).await;
        let clients = |key: &str| -> Vec<Arc<Rpc>> {
            let client = |replica: &Wellhead| Arc::new(Rpc::new(replica.port, &format!("/{key}")));
            replicas.iter().map(client).collect()
        };
        let numbers = Arc::new(AtomicU64::new(1));
        let [loud, calm] = texts.map(|key| clients(&key));
        let (calm, calm_callers) = stay_calm(&calm, &numbers);
        let fleet = Self {
            replicas,
            loud,
            numbers,
            calm,
            calm_callers,
            began: Instant::now(),
            whole: RefCell::default(),
            before: RefCell::default(),
            _keys: keys,
        };
        fleet.until_here().await;
        Self { began: Instant::now(), ..fleet }
    }

    /// Until each knows that the store is there, and of the others.
    pub(crate) async fn until_here(&self) {
        self.until("the store is found", |sharing| sharing.iter().all(Sharing::is_whole)).await;
    }

    /// Until each has missed the store in this phase; it may be back.
    pub(crate) async fn until_away(&self) {
        let before = self.before.borrow().clone();
        self.until("the store is missed", |sharing| {
            let mut both = before.iter().zip(sharing);
            both.all(|(before, now)| now.is_away || now.departures > before.departures)
        })
        .await;
    }

    /// Until the first replica is alone, and the others are not.
    pub(crate) async fn until_first_is_away(&self) {
        self.until("one of three is alone", |sharing| {
            let away: Vec<bool> = sharing.iter().map(|it| it.is_away).collect();
            away == [true, false, false]
        })
        .await;
    }

    async fn until(&self, what: &str, is_so: impl Fn(&[Sharing]) -> bool) {
        let all = until(BOUND, || async { is_so(&self.sharing().await).then_some(()) }).await;
        assert!(all.is_some(), "{what}: {:?}\n{}", self.sharing().await, self.logs());
    }

    /// Until the callers have gone on for a while.
    pub(crate) async fn until_calls(&self) {
        let goal = self.numbers.load(Relaxed) + CALLS_BETWEEN;
        let made = || async { (self.numbers.load(Relaxed) >= goal).then_some(()) };
        until(BOUND, made).await.expect("clients call");
    }

    /// The day that each replica takes it to be, as its answers say.
    pub(crate) async fn days(&self) -> Vec<String> {
        let day = async |replica: &Wellhead| {
            let reply = replica.admin().get("/livez").await.unwrap();
            reply
                .header("date")
                .get(..16)
                .unwrap_or_else(|| panic!("no date: {reply:?}"))
                .to_owned()
        };
        join_all(self.replicas.iter().map(day)).await
    }

    /// Until it is another day at each.
    pub(crate) async fn until_other_day(&self, before: &[String]) {
        let turned = until(BOUND, || async {
            let days = self.days().await;
            days.iter().zip(before).all(|(day, before)| day != before).then_some(())
        });
        assert!(turned.await.is_some(), "{before:?}: {:?}", self.days().await);
    }

    async fn sharing(&self) -> Vec<Sharing> {
        join_all(self.replicas.iter().map(Sharing::of)).await
    }

    fn logs(&self) -> String {
        let log = |replica: &Wellhead| replica.process.log();
        self.replicas.iter().map(log).collect::<Vec<_>>().join("\n")
    }

    /// Hunts the limit while `story` happens, and for [`PHASE`] at least. In it the store has forgotten what
    /// it knew, or was ahead of time, `forgot` times.
    pub(crate) async fn phase(&self, name: &str, forgot: u32, story: impl Future<Output = ()>) {
        let (before, calm_before) = (self.sharing().await, self.calm.sent());
        self.before.replace(before.clone());
        let began = Instant::now();
        let (tally, hunters) = hunt(&self.loud, &self.numbers);
        story.await;
        // Nothing is expected after it: it is how long the limit is hunted.
        sleep_until(began + PHASE).await;
        let refused = || async { (tally.refused() > 0).then_some(()) };
        until(BOUND, refused).await.expect("the limit is hunted");
        tally.end();
        hunters.join_all().await;
        let lasted = began.elapsed();
        let after = self.sharing().await;
        let grown = |of: fn(&Sharing) -> f64| -> f64 {
            before.iter().zip(&after).map(|(before, after)| of(after) - of(before)).sum()
        };
        let counts = PhaseCounts {
            lasted: lasted.as_secs_f64(),
            forgot: forgot.into(),
            sent: tally.sent() as f64,
            served: tally.served() as f64,
            alone: grown(|it| it.alone),
            departures: grown(|it| it.departures),
            // One more at each replica: it was under way when they were counted.
            calm: (self.calm.sent() - calm_before) as f64 + REPLICAS as f64,
        };
        assert_eq!(tally.failures(), [""; 0], "{name}: no call fails but by the limit");
        assert_eq!(self.calm.failures(), [""; 0], "{name}: the calm tenant is below its limits");
        counts.judge(name);
        self.whole.borrow_mut().add(&counts);
    }

    /// Judges all phases together, and ends the calm callers, none of whose calls has failed.
    pub(crate) async fn end(self) {
        self.calm.end();
        self.calm_callers.join_all().await;
        let lasted = self.began.elapsed().as_secs_f64();
        PhaseCounts { lasted, ..self.whole.into_inner() }.judge("all of it");
        let (sent, served) = (self.calm.sent(), self.calm.served());
        println!("shared, the calm tenant: {served} of {sent} calls served");
        assert_eq!((served, self.calm.failures()), (sent, Vec::new()));
    }
}

fn settings(store: u16, keys: &KeyFile) -> String {
    format!(
        "shared: {{ redis: \"redis://127.0.0.1:{store}\" }}\n\
         access: {{ keys: {{ file: \"{}\" }} }}\n\
         tenants: {{ {LOUD}: {{ quota: {LOUD} }}, {CALM}: {{ quota: {CALM} }} }}\n\
         quotas: {{ {LOUD}: {{ calls_per_second: {RATE}, burst: {BURST} }}, {CALM}: {{ {CALM_QUOTA} }} }}\n",
        keys.path().display()
    )
}

impl Sharing {
    /// Whether the store is there, and all others too.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_away && self.replicas == REPLICAS as f64
    }

    pub(crate) async fn of(replica: &Wellhead) -> Self {
        let page = replica.admin().get("/metrics").await.unwrap().text();
        let value = |name: &str| -> f64 {
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("{} "));
            line.unwrap_or_else(|| panic!("no {name}:\n{page}")).parse().unwrap()
        };
        Self {
            is_away: value("wellhead_shared_limits_away") > 0.0,
            replicas: value("wellhead_shared_limits_replicas"),
            alone: value("wellhead_shared_limits_alone_total"),
            departures: value("wellhead_shared_limits_departures_total"),
        }
    }
}

/// What a stretch of time was.
#[derive(Debug, Default)]
struct PhaseCounts {
    /// In seconds.
    lasted: f64,
    forgot: f64,
    /// Calls of the loud tenant.
    sent: f64,
    served: f64,
    /// Calls that were let through without the store, those of the calm tenant included.
    alone: f64,
    departures: f64,
    calm: f64,
}

impl PhaseCounts {
    fn add(&mut self, other: &Self) {
        self.forgot += other.forgot;
        self.sent += other.sent;
        self.served += other.served;
        self.alone += other.alone;
        self.departures += other.departures;
        self.calm += other.calm;
    }

    /// No more were served than the bounds of `limit::lease` allow.
    fn judge(&self, name: &str) {
        let Self { lasted, forgot, sent, served, alone, departures, calm } = *self;
        let bound = RATE * (lasted + LEASE.as_secs_f64()) + BURST + forgot * depth();
        println!(
            "shared, {name:<34} in {lasted:5.2} s {served:4} of {sent:5} served, {:3.0} % of the rate; bound \
             {bound:4.0} and {alone:4.0} without the store; {departures} departures",
            100.0 * served / (RATE * lasted),
        );
        assert!(served - alone <= bound, "{name}: {served}, {alone} of them alone, of {bound}");
        // A replica that is alone goes by its part, and each by a call more at most.
        let share = RATE * lasted + BURST + REPLICAS as f64;
        assert!(alone - CALM_LIMITS * calm <= share, "{name}: {alone} of {share} alone, {calm}");
        // Half of the rate, whatever becomes of the store, where the machine is quick enough to send so
        // often.
        let least = if sent >= 3.0 * RATE * lasted { RATE * lasted / 2.0 } else { 1.0 };
        assert!(served >= least, "{name}: {served} of {sent} in {lasted} s");
    }
}

/// What the store's bucket holds, which it has again each time that it forgets.
fn depth() -> f64 {
    BURST.max(RATE * DEPTH.as_secs_f64())
}
