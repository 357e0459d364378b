//! One attack on one target, measured.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use tokio::time::{Duration, Instant, sleep, timeout_at};

use super::caller::{Caller, Line, Seen};
use super::ground::{Ground, Scale};
use super::hostile::Mode;
use super::upstream::Upstream;
use super::watch::{Peak, Watch, descriptors_of, resident_kib};
use super::{Attack, By};

/// How long the caller calls before the attack.
const QUIET: Duration = Duration::from_secs(2);
const QUIET_SHORT: Duration = Duration::from_millis(300);
/// What an attack under way may take past its time.
const GRACE: Duration = Duration::from_secs(3);
/// Descriptors have to be back after this, which is longer than the pause after which an upstream
/// that hangs is given up.
const BACK_AFTER_MAX: Duration = Duration::from_secs(40);
/// Descriptors that differ from moment to moment: a timer, a connection that is being opened.
const DESCRIPTORS_SLACK: u64 = 16;
/// A caller's times may grow by so much, in ms, besides doubling.
const LATER_MS: f64 = 50.0;
/// Below this share of idle time the machine decides what the slowest calls take.
const IDLE_PERCENT_MIN: f64 = 10.0;

/// What is attacked.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Its process.
    pub pid: u32,
    /// Where it takes HTTP/1.1, or TLS where the attack wants that.
    pub target: SocketAddr,
    /// Where it takes HTTP/2 with prior knowledge.
    pub http2: SocketAddr,
    /// Trusts its certificate.
    pub tls: Option<Arc<ClientConfig>>,
}

/// What was seen.
#[derive(Debug, Clone)]
pub struct Report {
    /// Which attack it was.
    pub name: &'static str,
    /// What the caller saw before the attack.
    pub quiet: Seen,
    /// What the caller saw during the attack.
    pub under: Seen,
    /// What a caller saw that called the upstream itself at the same time, or the one that is well:
    /// how much of the delay is the machine's, and the upstream's.
    pub direct: Seen,
    /// Resident memory before, in KiB.
    pub quiet_kib: u64,
    /// What the kernel saw during the attack.
    pub peak: Peak,
    /// Resident memory after, in KiB.
    pub after_kib: u64,
    /// Descriptors before, without those of connections to upstreams.
    pub quiet_descriptors: u64,
    /// Descriptors after.
    pub after_descriptors: u64,
    /// How long it took until they were back, or was waited for.
    pub back_after: Duration,
    /// Requests of the attack.
    pub client_calls: u64,
    /// Calls that they caused at the upstream.
    pub upstream_calls: u64,
    /// Calls of the caller that the attacking upstream had.
    pub hostile_calls: u64,
    /// What must not have happened, and did.
    pub violations: Vec<String>,
    /// What a reader wants to know.
    pub remarks: Vec<String>,
}

/// The caller's calls reach a hostile upstream within this.
const MET_WITHIN: Duration = Duration::from_secs(10);

/// Plays an attack for so long.
pub async fn play(
    attack: &Attack,
    subject: &Subject,
    [hostile, well]: [&Upstream; 2],
    scale: Scale,
    lasts: Duration,
) -> Report {
    let line = Line { address: subject.target, tls: subject.tls.clone() };
    let open = || hostile.shared.connections_open() + well.shared.connections_open();
    let descriptors = || descriptors_of(subject.pid).saturating_sub(open());
    let quiet_descriptors = descriptors();
    let caller = Caller::start(line.clone(), 1);
    sleep(if scale == Scale::Full { QUIET } else { QUIET_SHORT }).await;
    let quiet = finish(caller).await;
    let quiet_kib = resident_kib(subject.pid);
    let calls_before = hostile.shared.attack_calls();
    let hostile_before = hostile.shared.caller_calls();

    let addresses = [subject.target, subject.http2];
    let upstream = Arc::clone(&hostile.shared);
    let ground = Arc::new(Ground::new(addresses, subject.tls.clone(), upstream, lasts, scale));
    let watch = Watch::start(subject.pid);
    let attackers = attackers(attack.by, &ground, hostile);
    let caller = Caller::start(line, 2);
    // What an attack by clients makes of the upstream itself is not blamed on the target.
    let asked = if matches!(attack.by, By::Upstream(_)) { well } else { hostile };
    let direct = Caller::start(Line { address: asked.address, tls: None }, 3);
    ground.until_over().await;
    if matches!(attack.by, By::Upstream(_)) {
        until_met(hostile, hostile_before).await;
    }
    let (under, direct) = tokio::join!(finish(caller), finish(direct));
    let peak = watch.finish();
    let joined = tokio::task::spawn_blocking(move || attackers.join());
    let _ended = joined.await.is_ok();
    hostile.shared.set(Mode::Well);

    let ended = Instant::now();
    let after_descriptors = until_back(descriptors, quiet_descriptors).await;
    Report {
        name: attack.name,
        quiet,
        under,
        direct,
        quiet_kib,
        peak,
        after_kib: resident_kib(subject.pid),
        quiet_descriptors,
        after_descriptors,
        back_after: ended.elapsed(),
        client_calls: ground.client_calls(),
        upstream_calls: hostile.shared.attack_calls() - calls_before,
        hostile_calls: hostile.shared.caller_calls() - hostile_before,
        violations: ground.violations(),
        remarks: ground.remarks(),
    }
}

/// Waits until the caller's calls have reached the hostile upstream: it attacks when it is called,
/// however busy the machine is.
async fn until_met(hostile: &Upstream, calls_before: u64) {
    let began = Instant::now();
    while hostile.shared.caller_calls() <= calls_before && began.elapsed() < MET_WITHIN {
        sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until about as many descriptors are open as before; returns how many are.
async fn until_back(descriptors: impl Fn() -> u64, before: u64) -> u64 {
    let began = Instant::now();
    loop {
        let open = descriptors();
        if open <= before + DESCRIPTORS_SLACK || began.elapsed() >= BACK_AFTER_MAX {
            return open;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// The attackers, on a thread of their own.
fn attackers(by: By, ground: &Arc<Ground>, hostile: &Upstream) -> std::thread::JoinHandle<()> {
    let run = match by {
        By::Clients(run) => Some(run),
        By::Upstream(mode) => {
            hostile.shared.set(mode);
            None
        }
        By::Both(mode, run) => {
            hostile.shared.set(mode);
            Some(run)
        }
    };
    let ground = Arc::clone(ground);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a thread can have a runtime").block_on(async {
            if let Some(run) = run {
                let _late = timeout_at(ground.end + GRACE, run(&ground)).await;
            }
        });
    })
}

async fn finish(caller: Caller) -> Seen {
    tokio::task::spawn_blocking(|| caller.finish()).await.expect("the caller does not panic")
}

impl Report {
    /// Calls at the upstream for each request of the attack.
    #[must_use]
    pub fn calls_per_call(&self) -> f64 {
        self.upstream_calls as f64 / self.client_calls.max(1) as f64
    }

    /// Whether the machine had too little to spare for times to say anything of the target.
    #[must_use]
    pub fn is_machine_limited(&self) -> bool {
        self.peak.machine_idle_percent < IDLE_PERCENT_MIN
    }

    /// What does not hold of what was seen, whatever the clock says.
    #[must_use]
    pub fn broken(&self, attack: &Attack) -> Vec<String> {
        let mut broken = self.violations.clone();
        let under = &self.under;
        if under.failed > 0 || under.ok == 0 {
            let all = under.ok + under.failed;
            let why = under.failures.first().map_or("", String::as_str);
            broken.push(format!("{} of {all} calls of the caller failed: {why}", under.failed));
        }
        let peak_mib = self.peak.resident_kib / 1024;
        if peak_mib > attack.ceiling_mib {
            broken.push(format!("{peak_mib} MiB resident, {} at most", attack.ceiling_mib));
        }
        if self.after_descriptors > self.quiet_descriptors + DESCRIPTORS_SLACK {
            broken.push(format!(
                "{} descriptors after {:.0?}, {} before",
                self.after_descriptors, self.back_after, self.quiet_descriptors
            ));
        }
        if let Some(most) = attack.calls_per_call_max
            && self.calls_per_call() > most
        {
            broken.push(format!(
                "{:.0} calls at the upstream for one of a client, {most:.0} at most",
                self.calls_per_call()
            ));
        }
        broken
    }

    /// What does not hold of times: of p50 always, of p99 where the machine is not the limit.
    #[must_use]
    pub fn late(&self) -> Vec<String> {
        let mut late = Vec::new();
        for (name, quantile, is_claimed) in
            [("p50", 0.5, true), ("p99", 0.99, !self.is_machine_limited())]
        {
            let (took, bound) = (self.under.quantile_ms(quantile), self.bound_ms(quantile));
            if is_claimed && took > bound {
                late.push(format!("the caller's {name} is {took:.0} ms, {bound:.0} at most"));
            }
        }
        late
    }

    /// Twice the quiet time and 50 ms; for the quiet one, what the upstream alone takes under the
    /// same load of the machine where that is more.
    fn bound_ms(&self, quantile: f64) -> f64 {
        let quiet = self.quiet.quantile_ms(quantile).max(self.direct.quantile_ms(quantile));
        2.0 * quiet + LATER_MS
    }
}
