//! What a client was shown and sent at one replica decides what another one tells it.

mod support;

use std::sync::Arc;

use parking_lot::Mutex;
use support::{Stage, Step, hash};
use wellhead_kit::{now, result};
use wellhead_transport::feed::BoxFuture;
use wellhead_watch::{ChainPeers, PeerOutlet, ReplicaWord, Replicas};

/// The example of EIP-155, whose sender and nonce are known.
const RAW: &str = r#"["0xf86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a76400008025a028ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83"]"#;
const HASH: &str = r#"["0x33469b22e9f636356c4160a87eb19df52b7412e8eac32a4a55ffe88ea8350788"]"#;
const PENDING: &str = r#"["0x9d8A62f656a8d1615C1294fd71e9CFb3E4855A4F","pending"]"#;

/// Keeps what a replica says until it is carried to the other one.
#[derive(Debug, Default)]
struct Outbox(Mutex<Vec<String>>);

impl PeerOutlet for Outbox {
    fn is_linked(&self) -> bool {
        true
    }

    fn tell(&self, text: String) {
        self.0.lock().push(text);
    }

    fn tell_acked(&self, text: String) -> BoxFuture<'static, ()> {
        self.tell(text);
        Box::pin(std::future::ready(()))
    }
}

/// A replica whose upstreams are at block 100.
struct Replica {
    stage: Stage,
    outbox: Arc<Outbox>,
}

impl Replica {
    fn new(own: u64, upstreams: u8) -> Self {
        let stage = Stage::upstreams(upstreams.into());
        let outbox = Arc::<Outbox>::default();
        let replicas = Replicas::new(own, Arc::clone(&outbox) as _);
        stage.chain().pulse.join(ChainPeers::new("main".into(), Arc::new(replicas)));
        (0..upstreams).for_each(|place| stage.show_head(place, 100));
        Self { stage, outbox }
    }

    /// Carries what it has said so far to the other one.
    fn carry_to(&self, other: &Self) {
        for text in self.outbox.0.lock().drain(..) {
            match ReplicaWord::read(&text).expect("what is written is read") {
                ReplicaWord::Chain { chain, says } => {
                    assert_eq!(chain, "main");
                    other.stage.chain().hear(1, says, now());
                }
                other => panic!("a chain says {other:?}"),
            }
        }
    }
}

fn pair(upstreams: u8) -> [Replica; 2] {
    let [one, other] = [1, 2].map(|own| Replica::new(own, upstreams));
    one.carry_to(&other);
    other.carry_to(&one);
    [one, other]
}

#[tokio::test(start_paused = true)]
async fn what_one_replica_showed_a_client_the_other_shows_it() {
    let [one, other] = pair(2);
    for peer in &one.stage.peers[0] {
        let hash = hash(101, b'a');
        let receipt = format!(r#"{{"status":"0x1","blockNumber":"0x65","blockHash":"{hash}"}}"#);
        peer.next("eth_getTransactionReceipt", Step::Result(receipt));
    }
    assert!(one.stage.call("eth_getTransactionReceipt", HASH).await.contains("0x65"));
    one.carry_to(&other);
    assert_eq!(other.stage.call("eth_blockNumber", "[]").await, "\"0x64\"", "none holds it there");
    other.stage.show_head(0, 101);
    assert_eq!(other.stage.call("eth_blockNumber", "[]").await, "\"0x65\"");
    assert_eq!(other.stage.call_from(2, "eth_blockNumber", "[]").await, "\"0x64\"");
}

#[tokio::test(start_paused = true)]
async fn what_one_replica_answers_with_the_other_does_not_go_below() {
    let [one, other] = pair(2);
    (0..2).for_each(|place| one.stage.show_head(place, 102));
    assert_eq!(one.stage.call("eth_blockNumber", "[]").await, "\"0x66\"");
    one.carry_to(&other);
    other.stage.show_head(1, 102);
    for client in [1, 2] {
        let told = other.stage.call_from(client, "eth_blockNumber", "[]").await;
        assert_eq!(told, "\"0x66\"", "{client}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_to_one_replica_the_other_finds() {
    let [one, other] = pair(4);
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":{RAW}}}"#);
    let taker = one.stage.send(None, &body).await.upstream.expect("one took it");
    for peer in &other.stage.peers[0] {
        peer.next_times(20, "eth_getTransactionCount", result("\"0x9\""));
        if *peer.name() != *taker {
            peer.next_times(20, "eth_getTransactionByHash", result("null"));
        }
    }
    assert_eq!(other.stage.call("eth_getTransactionCount", PENDING).await, "\"0x9\"");
    one.carry_to(&other);
    assert_eq!(other.stage.call("eth_getTransactionCount", PENDING).await, "\"0xa\"");
    for _ in 0..5 {
        let found = other.stage.call("eth_getTransactionByHash", HASH).await;
        assert_eq!(found, format!("\"{taker}\""));
    }
    assert!(other.outbox.0.lock().iter().all(|text| !text.contains("sent")), "nothing is told on");
}
