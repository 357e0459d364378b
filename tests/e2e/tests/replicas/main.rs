//! Five wellheads that share one Valkey, and what becomes of their probes and their clients' sessions when it, one
//! of them, an upstream or a clock goes wrong.
//!
//! Clients change replica with each call. No read fails while one upstream is well; the newest block that a client
//! is told does not go back, but where the client is quicker than a message between replicas, which is counted and
//! bounded, and while its replicas cannot hear each other, which is counted apart. For a client that says which block
//! it knows (`x-wellhead-block`) it never goes back. The upstreams see the probes of one replica. A wellhead that is killed is a connection that a load balancer makes anew elsewhere, as the
//! clients here do.
//!
//! `WELLHEAD_REPLICAS_MINUTES=30` has the chaos go on for so long.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop where it likes")]

mod clients;
mod fleet;

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::Instant;
use wellhead_e2e::{Fault, RelayMode};

use fleet::{Fleet, REPLICAS};

/// The seed of the chaos; it is printed with each step.
const SEED: u64 = 20;

/// What is done to the fleet, and undone.
#[derive(Debug, Clone, Copy, strum::VariantArray)]
enum Trouble {
    /// A replica is killed, and started again.
    Kill,
    /// A replica ends in order, and is started again.
    Restart,
    /// The store is killed, and started again with nothing in it.
    StoreKilled,
    /// The store is frozen.
    StoreFrozen,
    /// One replica cannot reach the store, and is not told so.
    Partition,
    /// One replica's connection to the store breaks.
    Cut,
    /// An upstream answers with errors.
    UpstreamDown,
    /// The clock of a replica is set.
    ClockStep,
}

wellhead_word::variants!(Trouble);

impl Trouble {
    /// Whether replicas may be out of each other's hearing.
    fn parts_replicas(self) -> bool {
        match self {
            Self::StoreKilled | Self::StoreFrozen | Self::Partition | Self::Cut => true,
            Self::Kill | Self::Restart | Self::UpstreamDown | Self::ClockStep => false,
        }
    }
}

fn minutes() -> Option<u64> {
    let text = std::env::var("WELLHEAD_REPLICAS_MINUTES").ok()?;
    Some(text.parse().expect("WELLHEAD_REPLICAS_MINUTES is a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_replicas_are_one_to_upstreams_and_to_clients() {
    let mut fleet = Fleet::start().await;
    fleet.undisturbed().await;
    let mut rng = SmallRng::seed_from_u64(SEED);
    let end = minutes().map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    // Each at least once; by chance for as long as is asked.
    let mut steps: Vec<Trouble> = Trouble::ALL.to_vec();
    while let Some(trouble) = steps.pop() {
        let place = rng.random_range(0..REPLICAS);
        println!("replicas: {trouble:?} at {place}");
        begin(&mut fleet, trouble, place, &mut rng).await;
        fleet.clients().print_since_last();
        if steps.is_empty() && end.is_some_and(|end| Instant::now() < end) {
            steps.push(*Trouble::ALL.choose(&mut rng).expect("there are some"));
        }
    }
    fleet.undisturbed().await;
    fleet.end().await;
}

async fn begin(fleet: &mut Fleet, trouble: Trouble, place: usize, rng: &mut SmallRng) {
    let parts = trouble.parts_replicas();
    if parts {
        fleet.clients().part();
    }
    match trouble {
        Trouble::Kill => fleet.kill(place).await,
        Trouble::Restart => fleet.restart(place).await,
        Trouble::StoreKilled => {
            fleet.store_signal("-KILL");
            fleet.blocks(6).await;
            fleet.store_anew();
        }
        Trouble::StoreFrozen => {
            fleet.store_signal("-STOP");
            fleet.blocks(6).await;
            fleet.store_signal("-CONT");
        }
        Trouble::Partition | Trouble::Cut => {
            let is_silent = matches!(trouble, Trouble::Partition);
            fleet.set_mode(place, if is_silent { RelayMode::Silent } else { RelayMode::Closed });
            fleet.blocks(10).await;
            fleet.set_mode(place, RelayMode::Late(Duration::ZERO));
        }
        Trouble::UpstreamDown => {
            let upstream = rng.random_range(0..2);
            fleet.set_fault(upstream, Fault::Status(503));
            fleet.blocks(6).await;
            fleet.set_fault(upstream, Fault::None);
        }
        Trouble::ClockStep => {
            let ahead_ms = rng.random_range(-3_600_000..3_600_000);
            fleet.step_clock(place, ahead_ms);
            fleet.blocks(4).await;
            fleet.step_clock(place, 0);
        }
    }
    fleet.until_heard().await;
    if parts {
        fleet.blocks(2).await;
        fleet.clients().join();
    }
}
