//! One of two upstreams fails in every way we know; no caller may notice.
//!
//! Each case runs ordinary reads all the while: both upstreams answer, then one
//! fails, then it recovers. Not one read may fail, the failing upstream must be
//! left alone while it fails, and be used again once it is well. A case ends
//! when these have happened, not after a while.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop where it likes")]

use std::time::Duration;

use serde_json::json;
use wellhead_e2e::load::Gauge;
use wellhead_e2e::{Fault, FaultProxy, Node, Upstream, Wellhead, load, until};

const CHAIN_ID: u64 = 31337;
/// For each thing that must come true: rests, timeouts and probes of wellhead
/// take seconds, and the machine may be busy.
const BOUND: Duration = Duration::from_secs(60);
const WORKERS: usize = 8;
/// Answers of one upstream that show that it is in use.
const IN_USE: usize = 20;
/// Answers of the other one in which the failing one must have given none.
const LEFT_ALONE: usize = 500;
/// Deep enough for an upstream that lags.
const BLOCKS: u64 = 40;

/// Brings a node to at least this block.
async fn mine_up_to(node: &Node, number: u64) {
    let head = node.head().await.unwrap();
    if head < number {
        let blocks = format!("{:#x}", number - head);
        node.rpc().result("anvil_mine", json!([blocks])).await.unwrap();
    }
}

/// Something that goes wrong with upstream `a`, and is put right again.
trait Trouble {
    /// Where wellhead finds upstream `a`.
    fn url(&self) -> String;
    async fn begin(&mut self);
    /// Ends the trouble; the node is then at the height of `other`.
    async fn end(&mut self, other: &Node);
}

/// Whether the upstream is to be used again as soon as it is well.
#[derive(PartialEq)]
enum Return {
    Seen,
    /// A refused key is looked at again after a minute: too long to wait for here.
    NotAwaited,
}

async fn no_client_notices(mut trouble: impl Trouble, other: Node, back: Return) {
    mine_up_to(&other, BLOCKS).await;
    let upstreams = [Upstream::new("a", &trouble.url()), Upstream::new("b", &other.url())];
    let wellhead = Wellhead::start(CHAIN_ID, &upstreams).await;
    let gauge = Gauge::default();
    let story = async {
        let in_use = |id: &'static str| {
            let (gauge, before) = (&gauge, gauge.answers_of(id));
            until(
                BOUND,
                move || async move { (gauge.answers_of(id) >= before + IN_USE).then_some(()) },
            )
        };
        in_use("a").await.ok_or("`a` is not used before it fails")?;
        in_use("b").await.ok_or("`b` is not used before `a` fails")?;
        trouble.begin().await;
        let left_alone = until(BOUND, || async {
            let (a, b) = (gauge.answers_of("a"), gauge.answers_of("b"));
            until(BOUND, || async { (gauge.answers_of("b") >= b + LEFT_ALONE).then_some(()) })
                .await?;
            (gauge.answers_of("a") == a).then_some(())
        });
        left_alone.await.ok_or("`a` still answers, or `b` does not")?;
        trouble.end(&other).await;
        if back == Return::NotAwaited {
            return Ok(());
        }
        in_use("a").await.ok_or("`a` is not used again after it recovered")
    };
    let story = async {
        let outcome: Result<(), &str> = story.await;
        let status = wellhead.admin().get("/status").await.unwrap();
        gauge.stop();
        (outcome, status)
    };
    let ((), (outcome, status)) =
        tokio::join!(load(wellhead.rpc(), &gauge, WORKERS, usize::MAX), story);
    let tally = gauge.take();
    let seen = format!("{tally:?}\n{:?}\n{}", status.body, wellhead.process.log());
    assert_eq!(outcome, Ok(()), "{seen}");
    assert_eq!(tally.failed, 0, "{seen}");
    println!("{} reads, none failed: {:?}", tally.answered, tally.by_upstream);
}

/// The node is well, and upstream `b`, too; what comes through from it here is not.
struct Faulty {
    proxy: FaultProxy,
    fault: Fault,
}

impl Trouble for Faulty {
    fn url(&self) -> String {
        self.proxy.url()
    }
    async fn begin(&mut self) {
        self.proxy.set(self.fault.clone());
    }
    async fn end(&mut self, _other: &Node) {
        self.proxy.set(Fault::None);
    }
}

mod with_anvil {
    use wellhead_e2e::{Anvil, Signal, free_port};

    use super::*;

    async fn node() -> Node {
        let node = Anvil::start(CHAIN_ID).await;
        mine_up_to(&node, BLOCKS).await;
        node
    }

    async fn faulty(fault: Fault, back: Return) {
        let node = node().await;
        let proxy = FaultProxy::start(node.port).await;
        no_client_notices(Faulty { proxy, fault }, node, back).await;
    }

    #[tokio::test]
    async fn server_error() {
        faulty(Fault::Status(500), Return::Seen).await;
    }
    #[tokio::test]
    async fn bad_gateway() {
        faulty(Fault::Status(502), Return::Seen).await;
    }
    #[tokio::test]
    async fn key_refused() {
        faulty(Fault::Status(401), Return::NotAwaited).await;
    }
    #[tokio::test]
    async fn too_many_requests() {
        faulty(Fault::TooMany(2), Return::Seen).await;
    }
    #[tokio::test]
    async fn page_for_people() {
        faulty(Fault::Html, Return::Seen).await;
    }
    #[tokio::test]
    async fn half_an_answer() {
        faulty(Fault::Cut, Return::Seen).await;
    }
    #[tokio::test]
    async fn half_an_answer_then_closed() {
        faulty(Fault::CutShort, Return::Seen).await;
    }
    #[tokio::test]
    async fn no_answer() {
        faulty(Fault::Hang, Return::Seen).await;
    }
    #[tokio::test]
    async fn lagging() {
        // By more than twenty seconds, since anvil's blocks are a second apart.
        faulty(Fault::Lagging(30), Return::Seen).await;
    }

    /// The process is gone, and comes back at the same port.
    struct Killed {
        port: u16,
        node: Option<Node>,
    }

    impl Trouble for Killed {
        fn url(&self) -> String {
            format!("http://127.0.0.1:{}", self.port)
        }
        async fn begin(&mut self) {
            self.node = None;
        }
        async fn end(&mut self, other: &Node) {
            let node = Anvil::start_at(CHAIN_ID, self.port, &[]).await;
            mine_up_to(&node, other.head().await.unwrap()).await;
            self.node = Some(node);
        }
    }

    #[tokio::test]
    async fn killed() {
        let port = free_port();
        let node = Anvil::start_at(CHAIN_ID, port, &[]).await;
        mine_up_to(&node, BLOCKS).await;
        no_client_notices(Killed { port, node: Some(node) }, self::node().await, Return::Seen)
            .await;
    }

    /// The process stands still: its sockets are open, and take requests.
    struct Stopped(Node);

    impl Trouble for Stopped {
        fn url(&self) -> String {
            self.0.url()
        }
        async fn begin(&mut self) {
            self.0.process.signal(Signal::Stop);
        }
        async fn end(&mut self, other: &Node) {
            self.0.process.signal(Signal::Cont);
            mine_up_to(&self.0, other.head().await.unwrap()).await;
        }
    }

    #[tokio::test]
    async fn stopped() {
        no_client_notices(Stopped(node().await), node().await, Return::Seen).await;
    }
}
