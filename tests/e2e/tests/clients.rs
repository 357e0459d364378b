//! The clients that people use, through wellhead: viem, ethers, web3.py.
//!
//! Each script under `clients/` reads, sends a transaction and waits for its
//! receipt, deploys a contract and calls it well and badly, sends a batch, and
//! must notice another chain. The URL is the plain one, and one with a key in its path over HTTP and over WebSocket.
//! Scripts of their own give a key in each way that there is, over both.
//! geth stands behind wellhead twice, once directly
//! and once as an upstream of HTTP/1.1 only: two upstreams with one history. Each script
//! is also run before the nodes alone, so that a failure says whose it is. The wallets send
//! one transaction after the other while one of two geths is three blocks late.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it does not expect")]

use std::time::Duration;

use tokio::time::timeout;
use wellhead_e2e::{
    Anvil, ConsensusDriver, FaultProxy, Geth, KeyFile, Script, Upstream, Wellhead, until,
};

/// A script waits for some blocks of a second each, or for hundreds of quick ones.
const SCRIPT_MAX: Duration = Duration::from_secs(400);
/// Between two blocks that come by themselves: a wallet waits for some of them 200 times.
const BLOCK_TIME: Duration = Duration::from_millis(50);
/// How far the second node of a wallet's day is behind the first.
const LATE_BLOCKS: u64 = 3;
/// What each script but the wallets does, one printed line each.
const LINES: usize = 5;
/// The contract of `calls`, which says what it does.
const CONTRACT: &str = "0x609580600b6000396000f336601a57602a600055602a60005260aa60206000a160206000\
    f35b60003560f81c80600114604f57806002146065578060031460895780600414608b5780600514608f57600054\
    60005260206000f35b63cafebabe60e01b600052602a60045260246000fd5b6308c379a060e01b60005260206004\
    526002602452616e6f60f01b60445260646000fd5bfe5b608b565b60006000fd";

/// Runs one script to its end; returns what it printed.
async fn output(name: &str, arguments: &[&str]) -> String {
    let mut script = Script::new(name);
    script.command.args(arguments).env("CONTRACT", CONTRACT);
    let running = script.command.output();
    let output = timeout(SCRIPT_MAX, running)
        .await
        .unwrap_or_else(|_| panic!("{name} is not done after {SCRIPT_MAX:?}"))
        .unwrap_or_else(|why| panic!("{name}: {why}; `scripts/setup test`"));
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}:\n{stdout}\n{stderr}");
    stdout.into_owned()
}

async fn script(name: &str, url: &str, key: &str, chain_id: u64) {
    let stdout = output(name, &[url, key, &chain_id.to_string()]).await;
    let lines = if name.starts_with("wallet.") { 1 } else { LINES };
    assert_eq!(stdout.lines().count(), lines, "{stdout}");
}

/// Two geths, of which one is three blocks late, and a block for each transaction. Blocks come
/// besides, as they do on every chain: a client that asked for a receipt before there was one looks again
/// when it hears of a newer block, which the late one has to hold first.
async fn a_wallets_day(name: &str) {
    let driver = ConsensusDriver::start(2).await;
    let upstreams =
        [0, 1].map(|node| Upstream::new(&format!("geth{node}"), &driver.node(node).url()));
    for _ in 0..=LATE_BLOCKS {
        a_block(&driver).await;
    }
    let wellhead = Wellhead::start(ConsensusDriver::CHAIN_ID, &upstreams).await;
    let blocks = async {
        loop {
            // The clock of the chain: a block comes without a transaction, too.
            let waits = || async { driver.ask_waiting(0).await.then_some(()) };
            let _either_way = until(BLOCK_TIME, waits).await;
            a_block(&driver).await;
        }
    };
    let url = wellhead.url();
    tokio::select! {
        () = script(name, &url, Geth::RICH_KEY, ConsensusDriver::CHAIN_ID) => {}
        () = blocks => {}
    }
    // The second one was late all the while, and is so still.
    let (head, late) = (driver.node(0).head().await.unwrap(), driver.node(1).head().await.unwrap());
    assert!(head - late >= LATE_BLOCKS, "heads are {head} and {late}");
}

/// A block for the first node, with what waits there; the second gets the one of three blocks ago.
async fn a_block(driver: &ConsensusDriver) {
    let head = driver.mine(0).await;
    driver.set_head(1, &driver.ancestor(&head, LATE_BLOCKS)).await;
}

async fn through_wellhead(name: &str) {
    let mut keys = KeyFile::new();
    let key = keys.add("acme", |_| {});
    let file = keys.path();
    let access = format!(
        "access: {{ keys: {{ file: \"{}\" }} }}\ntenants: {{ acme: {{}} }}",
        file.display()
    );
    let node = Geth::start().await;
    let proxy = FaultProxy::start(node.port).await;
    let upstreams = [
        Upstream::new("direct", &node.url()).with(&format!("ws: \"{}\"", node.ws_url())),
        Upstream::new("http1", &proxy.url()),
    ];
    let wellhead = Wellhead::start(Geth::CHAIN_ID, &upstreams).await;
    script(name, &wellhead.url(), Geth::RICH_KEY, Geth::CHAIN_ID).await;
    let wellhead = Wellhead::start_with(&access, Geth::CHAIN_ID, &upstreams).await;
    for url in [wellhead.url(), wellhead.ws_url()] {
        let with_key = format!("{url}/main/{key}");
        script(name, &with_key, Geth::RICH_KEY, Geth::CHAIN_ID).await;
    }
}

/// A key counts wherever the client puts it, and without one the client is refused.
async fn gives_a_key_in_each_way(name: &str) {
    let mut keys = KeyFile::new();
    let key = keys.add("acme", |_| {});
    let access = format!(
        "access: {{ anonymous: deny, keys: {{ file: \"{}\" }},\n  \
         from: [path, x-api-key, bearer, basic, subprotocol, query] }}\n\
         tenants: {{ acme: {{}} }}",
        keys.path().display()
    );
    let node = Geth::start().await;
    let upstream = Upstream::new("direct", &node.url());
    let wellhead = Wellhead::start_with(&access, Geth::CHAIN_ID, &[upstream]).await;
    let printed = output(name, &[&wellhead.url(), &wellhead.ws_url(), &key]).await;
    let chain_id = Geth::CHAIN_ID;
    let mut expected = String::new();
    for (carrier, also) in [("http", None), ("ws", Some("subprotocol"))] {
        for way in ["path", "header", "bearer", "basic"].into_iter().chain(also).chain(["query"]) {
            expected += &format!("{carrier} {way}: {chain_id}\n");
        }
        expected += &format!("{carrier} none: refused\n");
    }
    assert_eq!(printed, expected);
}

async fn directly(name: &str) {
    let geth = Geth::start().await;
    script(name, &geth.url(), Geth::RICH_KEY, Geth::CHAIN_ID).await;
    let anvil = Anvil::start(31337).await;
    script(name, &anvil.url(), Anvil::RICH_KEY, 31337).await;
}

/// Declares what is played with each script, in a module for each library.
macro_rules! play {
    ($($module:ident { $($test:ident: $play:ident($script:literal);)* })*) => {$(
        mod $module {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::$play($script).await;
                }
            )*
        }
    )*};
}

mod with_geth {
    mod with_anvil {
        play! {
            with_viem {
                viem_through_wellhead: through_wellhead("viem.mjs");
                a_wallets_day_with_viem: a_wallets_day("wallet.viem.mjs");
                viem_gives_a_key_in_each_way: gives_a_key_in_each_way("keys.viem.mjs");
                viem_directly: directly("viem.mjs");
            }
            with_ethers {
                ethers_through_wellhead: through_wellhead("ethers.mjs");
                a_wallets_day_with_ethers: a_wallets_day("wallet.ethers.mjs");
                ethers_gives_a_key_in_each_way: gives_a_key_in_each_way("keys.ethers.mjs");
                ethers_directly: directly("ethers.mjs");
            }
            with_web3py {
                web3py_through_wellhead: through_wellhead("web3py.py");
                web3py_gives_a_key_in_each_way: gives_a_key_in_each_way("keys_web3py.py");
                web3py_directly: directly("web3py.py");
            }
        }
    }
}
