//! What may become of the store.

mod in_flight;
mod keys;

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use wellhead_e2e::{Relay, RelayMode, SteppingClock};
use wellhead_kit::RedisServer;

use crate::fleet::{Fleet, REPLICAS};

/// How often the store is emptied in one phase.
const FLUSHES: u32 = 4;

async fn raw_connection(store: &RedisServer) -> MultiplexedConnection {
    let client = redis::Client::open(store.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

async fn command(store: &mut MultiplexedConnection, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    let _ok: () = command.arg(&words[1..]).query_async(store).await.unwrap();
}

#[tokio::test]
async fn a_store_that_is_paused() {
    let store = RedisServer::valkey();
    let fleet = Fleet::start([store.port(); REPLICAS]).await;
    fleet.phase("undisturbed", 0, async {}).await;
    let frozen = async {
        store.signal("-STOP");
        fleet.until_away().await;
    };
    fleet.phase("frozen", 0, frozen).await;
    store.signal("-CONT");
    fleet.phase("thawed", 0, fleet.until_here()).await;
    let mut raw = raw_connection(&store).await;
    let paused = async {
        command(&mut raw, &["CLIENT", "PAUSE", "500"]).await;
        fleet.until_away().await;
    };
    fleet.phase("CLIENT PAUSE", 0, paused).await;
    fleet.phase("after the pause", 0, fleet.until_here()).await;
    fleet.phase("undisturbed again", 0, async {}).await;
    fleet.end().await;
}

#[tokio::test]
async fn a_store_that_is_killed_and_emptied() {
    let mut store = RedisServer::valkey();
    let fleet = Fleet::start([store.port(); REPLICAS]).await;
    fleet.phase("undisturbed", 0, async {}).await;
    let killed = async {
        store.signal("-KILL");
        fleet.until_away().await;
    };
    fleet.phase("killed", 0, killed).await;
    store = RedisServer::valkey_at(store.port());
    fleet.phase("restarted with nothing in it", 1, fleet.until_here()).await;
    let mut raw = raw_connection(&store).await;
    for (name, script) in [("FLUSHALL", false), ("FLUSHALL and SCRIPT FLUSH", true)] {
        let flushed = async {
            for _ in 0..FLUSHES {
                fleet.until_calls().await;
                command(&mut raw, &["FLUSHALL"]).await;
                if script {
                    command(&mut raw, &["SCRIPT", "FLUSH"]).await;
                }
            }
        };
        fleet.phase(name, FLUSHES, flushed).await;
    }
    fleet.phase("undisturbed again", 0, fleet.until_here()).await;
    fleet.end().await;
}

/// A store with a way of its own to each wellhead.
struct RelayedStore {
    relays: [Relay; REPLICAS],
    _store: RedisServer,
}

impl RelayedStore {
    async fn start() -> (Self, Fleet) {
        let store = RedisServer::valkey();
        let before = || Relay::before(store.port());
        let relays = [before().await, before().await, before().await];
        let fleet = Fleet::start([0, 1, 2].map(|at: usize| relays[at].port())).await;
        (Self { relays, _store: store }, fleet)
    }

    fn set(&self, mode: RelayMode) {
        self.relays.iter().for_each(|relay| relay.set(mode));
    }

    /// Delays bytes by this time in each direction, so answers come twice as late.
    fn set_late(&self, each_way_ms: u64) {
        self.set(RelayMode::Late(Duration::from_millis(each_way_ms)));
    }
}

/// An answer is late after 20 ms.
#[tokio::test]
async fn a_store_that_is_slow() {
    let (store, fleet) = RelayedStore::start().await;
    fleet.phase("undisturbed", 0, async {}).await;
    for (name, each_way_ms) in [("8 ms late, which is in time", 4), ("18 ms late, at the edge", 9)]
    {
        store.set_late(each_way_ms);
        fleet.phase(name, 0, async {}).await;
    }
    for (name, each_way_ms) in [("22 ms late, which is too late", 11), ("200 ms late", 100)] {
        let slow = async {
            store.set_late(each_way_ms);
            fleet.until_away().await;
        };
        fleet.phase(name, 0, slow).await;
    }
    let now_and_then = async {
        for each_way_ms in [0, 14, 0, 14, 0, 14] {
            store.set_late(each_way_ms);
            fleet.until_calls().await;
        }
    };
    fleet.phase("now quick, now 28 ms late", 0, now_and_then).await;
    store.set_late(0);
    fleet.phase("quick again", 0, fleet.until_here()).await;
    fleet.end().await;
}

#[tokio::test]
async fn a_store_that_is_cut_off() {
    let (store, fleet) = RelayedStore::start().await;
    fleet.phase("undisturbed", 0, async {}).await;
    for (name, mode) in
        [("silent to one of three", RelayMode::Silent), ("closed to one", RelayMode::Closed)]
    {
        let cut_off = async {
            store.relays[0].set(mode);
            fleet.until_first_is_away().await;
        };
        fleet.phase(name, 0, cut_off).await;
        store.set_late(0);
        fleet.phase("open again", 0, fleet.until_here()).await;
    }
    let silent = async {
        store.set(RelayMode::Silent);
        fleet.until_away().await;
    };
    fleet.phase("silent to all", 0, silent).await;
    store.set_late(0);
    fleet.phase("open again", 0, fleet.until_here()).await;
    fleet.end().await;
}

mod with_faketime {
    use tokio::time::Instant;

    use super::*;

    const HOUR_MS: i64 = 3_600_000;
    const DAY_MS: i64 = 24 * HOUR_MS;
    /// A store's clock is read with a connection, and a machine's may be adjusted a little meanwhile.
    const TOLERANCE_MS: i64 = 100;

    async fn time_ms(store: &mut MultiplexedConnection) -> i64 {
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(store).await.unwrap();
        seconds * 1_000 + micros / 1_000
    }

    /// Sets the clock, which was this far ahead, and looks whether the store goes by it.
    async fn step(
        clock: &SteppingClock,
        store: &mut MultiplexedConnection,
        from_ms: i64,
        to_ms: i64,
    ) {
        let (before, began) = (time_ms(store).await, Instant::now());
        clock.set(to_ms);
        let beside = time_ms(store).await - before - (to_ms - from_ms);
        let passed = began.elapsed().as_millis() as i64;
        assert!((-TOLERANCE_MS..=passed + TOLERANCE_MS).contains(&beside), "{beside} {passed}");
    }

    #[tokio::test]
    async fn the_clock_of_the_store_steps() {
        let clock = SteppingClock::new();
        let store = RedisServer::valkey_under(&clock.launcher());
        let fleet = Fleet::start([store.port(); REPLICAS]).await;
        let mut raw = raw_connection(&store).await;
        fleet.phase("undisturbed", 0, async {}).await;
        let mut ahead_ms = 0;
        // A step ahead fills what it remembers.
        for (name, to_ms, forgot) in [
            ("the store is an hour ahead", HOUR_MS, 1),
            ("right again", 0, 0),
            ("the store is an hour behind", -HOUR_MS, 0),
            ("right again", 0, 1),
            ("the store is half a second ahead", 500, 1),
            ("right again", 0, 0),
        ] {
            let stepped = async {
                fleet.until_calls().await;
                step(&clock, &mut raw, ahead_ms, to_ms).await;
            };
            fleet.phase(name, forgot, stepped).await;
            ahead_ms = to_ms;
        }
        fleet.end().await;
    }

    /// Days and months turn for them, and what is left of those belongs to others.
    #[tokio::test]
    async fn the_clocks_of_the_wellheads_step() {
        let clock = SteppingClock::new();
        let store = RedisServer::valkey();
        let fleet = Fleet::start_under(&clock.launcher(), [store.port(); REPLICAS]).await;
        fleet.phase("undisturbed", 0, async {}).await;
        for (name, ahead_ms) in [
            ("40 days ahead", 40 * DAY_MS),
            ("right again", 0),
            ("2 days behind", -2 * DAY_MS),
            ("right again", 0),
        ] {
            let stepped = async {
                let days = fleet.days().await;
                clock.set(ahead_ms);
                fleet.until_other_day(&days).await;
                fleet.until_calls().await;
            };
            fleet.phase(name, 0, stepped).await;
        }
        fleet.end().await;
    }
}
