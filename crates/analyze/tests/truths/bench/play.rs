//! Plays a case and tells its verdicts.

use std::path::Path;
use std::sync::mpsc;
use std::thread;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use wellhead_analyze::conclude::verdict::{ExperimentVerdict, verdicts};
use wellhead_analyze::measure::client::TargetEndpoint;
use wellhead_analyze::measure::plan::ExperimentPlan;
use wellhead_analyze::measure::run::{CallBudget, Player, RunTerms, StopSignal, Unwatched};
use wellhead_analyze::record::{Machine, Record, RunRecord};
use wellhead_analyze::stored::StoredRun;
use wellhead_sim::{FakeProvider, World, WorldConfig};
use wellhead_telemetry::SecretUrl;

use super::grade::Truth;
use super::kind::{Case, CaseServer};
use super::own::{OwnBehaviour, OwnServer};
use super::proxy::ProxyServer;

/// How time passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaseClock {
    /// It jumps to the next timer where no task has anything to do.
    Paused,
    Real,
}

/// What was said of a case, and what is true.
pub(crate) struct PlayedCase {
    pub(crate) truths: Vec<Truth>,
    pub(crate) verdicts: Vec<ExperimentVerdict>,
    /// Calls in the records.
    pub(crate) calls: usize,
}

/// Plays it on this thread, with its records in `keep`, or in a directory that is removed.
pub(crate) fn play(case: Case, clock: CaseClock, keep: Option<&Path>) -> PlayedCase {
    let Case { server, mut plans, truths } = case;
    let (run, records) = match clock {
        CaseClock::Paused => {
            let runtime = runtime(true);
            runtime.block_on(async {
                let served = start(server).await;
                played(&served.url(), &mut plans, CaseClock::Paused, keep).await
            })
        }
        CaseClock::Real => {
            let served = ServingThread::start(server);
            runtime(false).block_on(played(&served.url, &mut plans, CaseClock::Real, keep))
        }
    };
    let calls = records.iter().filter_map(Record::call).count();
    PlayedCase { truths, verdicts: verdicts(&run, &records), calls }
}

fn runtime(paused: bool) -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(paused).build().unwrap()
}

/// A server, which ends when this is dropped.
enum StartedServer {
    Fake(FakeProvider),
    Own(OwnServer),
    Proxied { proxy: ProxyServer, _behind: OwnServer },
}

impl StartedServer {
    fn url(&self) -> String {
        match self {
            Self::Fake(provider) => provider.url(),
            Self::Own(server) => server.url(),
            Self::Proxied { proxy, _behind: _ } => proxy.url(),
        }
    }
}

async fn start(server: CaseServer) -> StartedServer {
    let own = async |behind: OwnBehaviour| OwnServer::start(behind).await;
    match server {
        CaseServer::Fake(dials) => {
            let world = World::new(WorldConfig { history_blocks: 16, ..WorldConfig::default() });
            StartedServer::Fake(FakeProvider::start("provider", world, *dials).unwrap())
        }
        CaseServer::Own(behaviour) => StartedServer::Own(own(behaviour).await),
        CaseServer::Nginx { listen, http, location, behind } => {
            let behind = own(behind).await;
            let proxy = ProxyServer::nginx(listen, &http, &location, behind.port()).await;
            StartedServer::Proxied { proxy, _behind: behind }
        }
        CaseServer::HaProxy { config, behind } => {
            let behind = own(behind).await;
            let proxy = ProxyServer::haproxy(&config, behind.port()).await;
            StartedServer::Proxied { proxy, _behind: behind }
        }
    }
}

/// A server on a thread of its own, which ends when this is dropped.
struct ServingThread {
    url: String,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ServingThread {
    fn start(server: CaseServer) -> Self {
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            runtime(false).block_on(async {
                let server = start(server).await;
                tell.send(server.url()).unwrap();
                let _ = stopped.await;
            });
        });
        let url = told.recv().expect("the server starts");
        Self { url, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for ServingThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn played(
    url: &str,
    plans: &mut [Box<dyn ExperimentPlan>],
    clock: CaseClock,
    keep: Option<&Path>,
) -> (RunRecord, Vec<Record>) {
    let (removed, stop) = (TempDir::new().unwrap(), StopSignal::default());
    let dir = keep.unwrap_or(removed.path());
    let endpoints = [TargetEndpoint::new("target-1".to_owned(), SecretUrl::parse(url).unwrap())];
    let calls: u64 = plans.iter().map(|plan| plan.calls_max()).sum();
    let budget = CallBudget::new(calls + 3).with_spare(calls / 4);
    let (wellhead, machine) = ("test".to_owned(), Machine::default());
    let terms = RunTerms { seed: 7, started_unix: 1, wellhead, machine };
    let mut player = Player::begin(dir, terms, &endpoints, &budget, &stop).unwrap();
    player = match clock {
        // Seconds of paused time pass in none of the processor's.
        CaseClock::Paused => player.with_cpu(|| None),
        CaseClock::Real => player.precise(),
    };
    let greeting = player.greet(0, &endpoints[0]).await.unwrap();
    for plan in plans {
        player.play(&mut **plan, 0, &endpoints[0], &greeting, &mut Unwatched).await.unwrap();
    }
    let StoredRun { run, records, torn: _ } = StoredRun::read(dir).unwrap();
    (run, records)
}
