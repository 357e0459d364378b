//! Requests of one tenant under way at three wellheads: the limit is that of all together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::task::JoinHandle;
use wellhead_e2e::attack::{self, upstream::CHAIN_ID};
use wellhead_e2e::{Fault, FaultProxy, HttpReply, KeyFile, Rpc, Wellhead, chain, until};
use wellhead_kit::RedisServer;

use crate::fleet::{REPLICAS, Sharing};

/// Of these each replica has one of its own, and three go to the replicas that want them.
const MAX: usize = 6;
/// Requests that are sent to each replica at once.
const EACH: usize = 10;
/// In the addresses that are asked about: the upstream keeps such calls.
const MARK: &str = "cafecafe";
/// Far more than anything here needs.
const BOUND: Duration = Duration::from_secs(60);

type Reply = Result<HttpReply, String>;

struct Trio {
    replicas: Vec<Wellhead>,
    clients: Vec<Arc<Rpc>>,
    upstream: FaultProxy,
    numbers: AtomicU64,
    _keys: KeyFile,
}

impl Trio {
    async fn start(store: u16) -> Self {
        let mut keys = KeyFile::new();
        let key = keys.add("acme", |_| {});
        let upstream = FaultProxy::start(attack::Upstream::start().address.port()).await;
        let settings = format!(
            "shared: {{ redis: \"redis://127.0.0.1:{store}\" }}\n\
             access: {{ keys: {{ file: \"{}\" }} }}\n\
             tenants: {{ acme: {{ quota: few }} }}\nquotas: {{ few: {{ in_flight: {MAX} }} }}\n",
            keys.path().display()
        );
        let chain = chain(CHAIN_ID, &[wellhead_e2e::Upstream::new("node", &upstream.url())]);
        let spawn = |_| Wellhead::spawn(&settings, &chain).ready();
        let replicas = join_all((0..REPLICAS).map(spawn)).await;
        let client = |it: &Wellhead| Arc::new(Rpc::new(it.port, &format!("/{key}")));
        let clients = replicas.iter().map(client).collect();
        let trio = Self { replicas, clients, upstream, numbers: AtomicU64::new(1), _keys: keys };
        let is_here = || async { trio.sharing().await.iter().all(Sharing::is_whole).then_some(()) };
        until(BOUND, is_here).await.expect("they find the store and each other");
        trio
    }

    async fn sharing(&self) -> Vec<Sharing> {
        join_all(self.replicas.iter().map(Sharing::of)).await
    }

    /// Requests that entered without the store.
    async fn alone(&self) -> usize {
        self.sharing().await.iter().map(|it| it.alone as usize).sum()
    }

    fn call(&self, replica: usize) -> JoinHandle<Reply> {
        let number = self.numbers.fetch_add(1, Relaxed);
        let params = json!([format!("0x{number:032x}{MARK}"), "latest"]);
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "eth_getBalance", "params": params});
        let client = Arc::clone(&self.clients[replica]);
        tokio::spawn(async move { client.post(call.to_string()).await })
    }

    /// Sends a request to this replica; `None` if it was refused, else it is under way.
    async fn try_hold(&self, replica: usize) -> Option<JoinHandle<Reply>> {
        let held = self.upstream.held();
        let call = self.call(replica);
        let decided =
            || async { (self.upstream.held() > held || call.is_finished()).then_some(()) };
        until(BOUND, decided).await.expect("let through or refused");
        (!call.is_finished()).then_some(call)
    }
}

fn is_refused(reply: &HttpReply) -> bool {
    let data = reply.json().unwrap()["error"]["data"].clone();
    reply.status == 429 && data["limit"] == "in_flight" && data["quota"] == "few"
}

#[tokio::test]
async fn places_of_a_tenant_are_those_of_all_replicas() {
    let store = RedisServer::valkey();
    let trio = Trio::start(store.port()).await;
    trio.upstream.set(Fault::Hold(MARK));
    let alone = trio.alone().await;
    let calls: Vec<_> =
        (0..REPLICAS).flat_map(|replica| vec![replica; EACH]).map(|at| trio.call(at)).collect();
    let all_decided = || async {
        let refused = calls.iter().filter(|call| call.is_finished()).count();
        (refused + trio.upstream.held() >= calls.len()).then_some(())
    };
    until(BOUND, all_decided).await.expect("each is let through or refused");
    let (held, alone) = (trio.upstream.held(), trio.alone().await - alone);
    trio.upstream.set(Fault::None);
    let replies = join_all(calls).await.into_iter().map(|reply| reply.unwrap().unwrap());
    let (refused, answered): (Vec<_>, Vec<_>) = replies.partition(is_refused);
    println!("{held} of {MAX} places taken by {} requests, {alone} alone", REPLICAS * EACH);
    assert!(answered.iter().all(|reply| reply.status == 200), "{answered:?}");
    assert_eq!((answered.len(), refused.len()), (held, REPLICAS * EACH - held));
    assert!((REPLICAS..=MAX + alone).contains(&held), "{held} at once, {alone} alone");

    // What the others do not want goes to the one that does.
    trio.upstream.set(Fault::Hold(MARK));
    let mut held = Vec::new();
    let full = MAX - (REPLICAS - 1) * (MAX / 2 / REPLICAS);
    while held.len() < full {
        // Places are divided anew each second.
        held.push(until(BOUND, || trio.try_hold(0)).await.expect("a place"));
    }
    assert!(trio.try_hold(0).await.is_none(), "the others' own places stay theirs");
    // A client that goes away gives its place back, at whatever replica.
    held.pop().expect("one is held").abort();
    held.push(until(BOUND, || trio.try_hold(0)).await.expect("a place is free"));
    trio.upstream.set(Fault::None);
    for call in held {
        assert_eq!(call.await.unwrap().unwrap().status, 200);
    }
}
