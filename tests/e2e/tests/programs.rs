//! Programs that people run against nodes: cast, ethereum-etl, cryo, hardhat and ponder, each once before a geth
//! and once before wellhead, which stands before two. What they print and write must be equal, errors
//! included.
//!
//! The chain stands still, but for what a program sends. How long each took both times is printed and
//! judged by nothing here: `scripts/programs` does that, on a machine that does nothing else.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop where it likes")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{Instant, timeout};
use wellhead_e2e::{
    Anvil, Block, ConsensusDriver, LOGGER_CODE, LogMiner, Process, Rpc, Signal, Transactions,
    Upstream, Wellhead, cache, free_port, tool, until,
};

/// Far more than any of them needs, for a machine that is busy.
const PROGRAM_MAX: Duration = Duration::from_secs(180);
/// Blocks of the chain, of which the last is not final.
const BLOCKS: u64 = 48;
/// Before it, all is final by every count: ponder's is 30 blocks for a chain that it does not know.
const FINAL: u64 = BLOCKS - 32;

/// Two geths with one chain, and wellhead before both.
struct Stage {
    driver: ConsensusDriver,
    wellhead: Wellhead,
    blocks: Vec<Block>,
}

impl Stage {
    async fn set() -> Self {
        let driver = ConsensusDriver::start(2).await;
        let (mut blocks, mut nonces) = (vec![driver.genesis().clone()], [0; 3]);
        for number in 1..=BLOCKS {
            // None, one, two or three in a block.
            let calls = (0..(number % 4) as u32).map(|account| {
                let nonce = &mut nonces[account as usize];
                *nonce += 1;
                ConsensusDriver::log_call(account, *nonce - 1, number)
            });
            let transactions = Transactions::These(calls.collect());
            blocks.push(driver.mine_on(&blocks[number as usize - 1], transactions).await);
        }
        let (head, safe) = (&blocks[BLOCKS as usize], &blocks[FINAL as usize + 4]);
        for node in [0, 1] {
            driver.set_head_and_finality(node, head, safe, &blocks[FINAL as usize]).await;
        }
        let upstreams =
            [0, 1].map(|node| Upstream::new(&format!("geth{node}"), &driver.node(node).url()));
        let wellhead = Wellhead::start(ConsensusDriver::CHAIN_ID, &upstreams).await;
        Self { driver, wellhead, blocks }
    }

    /// What the program makes of both endpoints must be equal. `PROGRAM_ROUNDS` runs it more often,
    /// and the least time of each counts.
    async fn beside<T>(&self, program: &str, run: impl AsyncFn(String) -> T)
    where
        T: PartialEq + std::fmt::Debug,
    {
        let rounds = std::env::var("PROGRAM_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
        let mut least = [Duration::MAX; 2];
        for _ in 0..rounds {
            let mut made = Vec::new();
            for (url, least) in
                [self.driver.node(0).url(), self.wellhead.url()].iter().zip(&mut least)
            {
                let began = Instant::now();
                made.push(run(url.clone()).await);
                *least = (*least).min(began.elapsed());
            }
            assert_eq!(made[0], made[1], "{program}, directly and through wellhead");
        }
        let [directly, through] = least.map(|time| time.as_secs_f64());
        let ratio = through / directly;
        println!(
            "program {program}: directly {directly:.2} s, through wellhead {through:.2} s, {ratio:.2} times"
        );
    }

    /// Makes blocks of what is sent, for as long as a program runs.
    async fn mine(&self) {
        loop {
            // The clock of the chain: a block comes without a transaction, too.
            let waits = || async { self.driver.ask_waiting(0).await.then_some(()) };
            let _either_way = until(Duration::from_millis(250), waits).await;
            let head = self.driver.mine(0).await;
            self.driver.set_head(1, &head).await;
        }
    }
}

/// Exit code and all that was printed.
async fn printed(command: &mut Command) -> (Option<i32>, String, String) {
    let words = format!("{command:?}");
    let output = timeout(PROGRAM_MAX, command.kill_on_drop(true).output()).await;
    let output =
        output.unwrap_or_else(|_| panic!("not done after {PROGRAM_MAX:?}: {words}")).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// As [`printed`], of what must succeed.
async fn said(command: &mut Command) -> String {
    let words = format!("{command:?}");
    let (code, stdout, stderr) = printed(command).await;
    assert_eq!(code, Some(0), "{words}\n{stdout}\n{stderr}");
    stdout
}

/// All files of a folder that are not empty.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file()).map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        (name, std::fs::read_to_string(entry.path()).unwrap())
    });
    files.filter(|(_, text)| !text.is_empty()).collect()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name)
}

/// A folder with a project of `clients/` and its packages.
fn project(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(&source(name), folder.path());
    let modules = cache().join(name).join("node_modules");
    std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).unwrap();
    folder
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let place = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&place).unwrap();
            copy(&entry.path(), &place);
        } else {
            std::fs::copy(entry.path(), place).unwrap();
        }
    }
}

/// Deploys the code that follows it: twelve bytes that return the rest.
fn deployment() -> String {
    let code = LOGGER_CODE.trim_start_matches("0x");
    format!("0x60{:02x}600c60003960{0:02x}6000f3{code}", code.len() / 2)
}

mod with_geth {
    use super::*;

    mod with_cast {
        use super::*;

        #[tokio::test]
        async fn cast_says_the_same() {
            let stage = Stage::set().await;
            let logger = ConsensusDriver::LOGGER;
            let rich = ConsensusDriver::key(0).address().to_string();
            let block = &stage.blocks[7];
            let found = stage.driver.node(0).rpc();
            let found =
                found.result("eth_getBlockByHash", json!([block.hash, false])).await.unwrap();
            let hash = found["transactions"][2].as_str().unwrap();
            let unknown = format!("0x{:064x}", 1);
            let commands = [
                "chain-id".to_owned(),
                "block-number".to_owned(),
                "block latest --json".to_owned(),
                "block finalized --json".to_owned(),
                "block safe".to_owned(),
                "block 7 --full --json".to_owned(),
                format!("block {}", block.hash),
                "block 4711".to_owned(),
                "age 7".to_owned(),
                "base-fee 7".to_owned(),
                format!("tx {hash} --json"),
                format!("tx {hash} --raw"),
                format!("tx {unknown}"),
                format!("receipt {hash} --json"),
                format!("logs --from-block 1 --to-block latest --address {logger} --json"),
                format!("logs --from-block 5 --to-block 9 --address {logger}"),
                format!("balance {rich}"),
                format!("balance {rich} --block 3"),
                format!("nonce {rich}"),
                format!("code {logger}"),
                format!("storage {logger} 0"),
                format!("storage {logger} 0 --block 12"),
                format!("call {logger} 0x --block 12"),
                format!("call {logger} transfer(address,uint256) {rich} 5"),
                format!("estimate {logger} transfer(address,uint256) {rich} 5"),
                format!("access-list {logger} transfer(address,uint256) {rich} 5 --from {rich}"),
                format!("proof {logger} 0"),
                "rpc eth_getBlockReceipts 0x7".to_owned(),
                "rpc eth_getBlockTransactionCountByNumber 0x7".to_owned(),
                "rpc eth_feeHistory 0x4 0x10 []".to_owned(),
                format!("rpc debug_traceTransaction {hash}"),
                "rpc eth_getBlockByNumber nonsense".to_owned(),
            ];
            let run = async |url: String| {
                let mut printed_all = Vec::new();
                for words in &commands {
                    let mut command = Command::new(tool("cast"));
                    command.args(words.split(' ')).args(["--rpc-url", &url]);
                    printed_all.push((words.clone(), printed(&mut command).await));
                }
                let failed = printed_all.iter().filter(|(_, (code, ..))| *code != Some(0));
                assert_eq!(failed.count(), 3, "{printed_all:#?}");
                printed_all
            };
            stage.beside("cast", run).await;
        }
    }

    mod with_etl {
        use super::*;

        #[tokio::test]
        async fn ethereum_etl_exports_the_same() {
            let stage = Stage::set().await;
            let run = async |url: String| {
                let folder = tempfile::tempdir().unwrap();
                let etl = async |words: &str| {
                    let mut command = Command::new(cache().join("etl/bin/ethereumetl"));
                    said(command.args(words.split_whitespace()).current_dir(folder.path())).await
                };
                let range = format!("--start-block 0 --end-block {BLOCKS}");
                let endpoint = format!("--max-workers 1 --provider-uri {url}");
                etl(&format!(
                    "export_blocks_and_transactions {range} {endpoint} --blocks-output blocks.csv \
                     --transactions-output transactions.csv"
                ))
                .await;
                etl("extract_csv_column --input transactions.csv --column hash --output hashes")
                    .await;
                etl(&format!(
                    "export_receipts_and_logs --transaction-hashes hashes {endpoint} \
                     --receipts-output receipts.csv --logs-output logs.csv"
                ))
                .await;
                etl(&format!("export_token_transfers {range} {endpoint} --output transfers.csv"))
                    .await;
                let files = files(folder.path());
                let lines = |name: &str| files[name].lines().count() as u64 - 1;
                assert_eq!(lines("blocks.csv"), BLOCKS + 1);
                for name in ["transactions.csv", "receipts.csv", "logs.csv", "transfers.csv"] {
                    assert_eq!(lines(name), BLOCKS / 4 * 6, "{name}");
                }
                files
            };
            stage.beside("ethereum-etl", run).await;
        }
    }

    mod with_cryo {
        use super::*;

        #[tokio::test]
        async fn cryo_extracts_the_same() {
            let stage = Stage::set().await;
            let run = async |url: String| {
                let folder = tempfile::tempdir().unwrap();
                let mut command = Command::new(cache().join("cryo/bin/python"));
                let blocks = format!("0:{}", BLOCKS + 1);
                command.arg(source("cryo_freeze.py")).arg(url).arg(folder.path()).arg(blocks);
                said(&mut command).await;
                let files = files(folder.path());
                let lines: Vec<u64> =
                    files.values().map(|text| text.lines().count() as u64 - 1).collect();
                assert_eq!(lines, [BLOCKS + 1, BLOCKS / 4 * 6, BLOCKS / 4 * 6]);
                files
            };
            stage.beside("cryo", run).await;
        }
    }

    mod with_hardhat {
        use super::*;

        #[tokio::test]
        async fn hardhat_deploys_and_calls_a_contract() {
            let stage = Stage::set().await;
            let run = async |url: String| {
                let folder = project("hardhat");
                let mut command = Command::new("node");
                let hardhat = "node_modules/hardhat/internal/cli/bootstrap.js";
                command
                    .args([hardhat, "run", "--no-compile", "--network", "under", "deploy.js"])
                    .current_dir(folder.path())
                    .envs([("URL", &*url), ("KEY", Anvil::RICH_KEY), ("CONTRACT", &deployment())])
                    .env("CHAIN_ID", ConsensusDriver::CHAIN_ID.to_string())
                    .envs([("CI", "true"), ("HARDHAT_DISABLE_TELEMETRY_PROMPT", "true")]);
                tokio::select! {
                    text = said(&mut command) => {
                        assert_eq!(text.lines().count(), 6, "{text}");
                        text
                    }
                    () = stage.mine() => unreachable!("blocks go on for ever"),
                }
            };
            stage.beside("hardhat", run).await;
        }
    }

    mod with_ponder {
        use super::*;

        const QUERY: &str = "{ transfers(limit: 1000) { \
            items { id block time hash nonce from to value balance } totalCount } }";

        /// A ponder that listens has indexed a block by then, and does not wait for a head more often.
        const HEARD_MAX: Duration = Duration::from_secs(5);
        const HEADS_MAX: usize = 20;

        /// A ponder that has caught up with the chain.
        struct Ponder {
            process: Process,
            rpc: Rpc,
            _folder: TempDir,
        }

        impl Ponder {
            /// `variables` say where it finds the chain, and how far it goes.
            async fn start(variables: &str) -> Self {
                let folder = project("ponder");
                let port = free_port();
                // In the folder, as ponder looks for its files there.
                let script = format!(
                    "cd {} && exec env {variables} CHAIN_ID={} LOGGER={} \
                     PONDER_TELEMETRY_DISABLED=true CI=true \
                     node node_modules/ponder/dist/esm/bin/ponder.js start --schema main --port {port}",
                    folder.path().display(),
                    ConsensusDriver::CHAIN_ID,
                    ConsensusDriver::LOGGER,
                );
                let command = ["sh".to_owned(), "-c".to_owned(), script];
                let process = Process::start(&command, folder.path().join("log"));
                let ponder = Self { process, rpc: Rpc::new(port, "/graphql"), _folder: folder };
                let is_ready = || async {
                    let reply = ponder.rpc.get("/ready").await.ok()?;
                    (reply.status == 200).then_some(())
                };
                let ready = until(PROGRAM_MAX, is_ready).await;
                assert!(ready.is_some(), "ponder is not ready:\n{}", ponder.process.log());
                ponder
            }

            async fn rows(&self) -> Value {
                let reply = self.rpc.post(json!({ "query": QUERY }).to_string()).await.unwrap();
                let rows: Value = reply.json().unwrap();
                rows["data"]["transfers"].clone()
            }

            /// Its table, when it ends with a log of this value within `bound`.
            async fn find(&self, value: u64, bound: Duration) -> Option<Value> {
                let look = || async {
                    let rows = self.rows().await;
                    let newest = rows["items"].as_array()?.last()?["value"].clone();
                    (newest == json!(value.to_string())).then_some(rows)
                };
                until(bound, look).await
            }

            async fn wait_for(&self, value: u64) -> Value {
                let rows = self.find(value, PROGRAM_MAX).await;
                rows.unwrap_or_else(|| panic!("no {value} in the table:\n{}", self.process.log()))
            }
        }

        #[tokio::test]
        async fn ponder_indexes_the_same() {
            let stage = Stage::set().await;
            let run = async |url: String| {
                let ponder = Ponder::start(&format!("URL={url} END={FINAL}")).await;
                let rows = ponder.rows().await;
                assert_eq!(rows["totalCount"], json!(FINAL / 4 * 6), "{rows}");
                rows
            };
            stage.beside("ponder", run).await;
        }

        /// It follows new blocks over WebSocket, leaves a branch, and goes on when a node dies.
        #[tokio::test]
        async fn ponder_indexes_the_same_over_websocket() {
            let driver = ConsensusDriver::start(2).await;
            let first = driver.mine_on(driver.genesis(), Transactions::None).await;
            let mut miner = LogMiner::new(&first);
            miner.step(&driver, 0, 4, &[0, 1]).await;
            let upstreams = [0, 1].map(|number| {
                let node = driver.node(number);
                let upstream = Upstream::new(&format!("geth{number}"), &node.url());
                upstream.with(&format!("ws: \"{}\"", node.ws_url()))
            });
            let wellhead = Wellhead::start(ConsensusDriver::CHAIN_ID, &upstreams).await;
            let node = driver.node(1);
            let at = |url: String, ws: String| format!("URL={url} WS_URL={ws}");
            let (directly, through) =
                (at(node.url(), node.ws_url()), at(wellhead.url(), wellhead.ws_url()));
            let (directly, through) =
                tokio::join!(Ponder::start(&directly), Ponder::start(&through));
            let (mut value, mut nodes) = (3, &[0, 1][..]);
            // They subscribe a moment after they are ready, and go on with the first head that they are told.
            let mut hear = false;
            for _ in 0..HEADS_MAX {
                miner.step(&driver, 0, 1, nodes).await;
                value += 1;
                let (one, other) =
                    tokio::join!(through.find(value, HEARD_MAX), directly.find(value, HEARD_MAX));
                hear = one.is_some() && other.is_some();
                if hear {
                    break;
                }
            }
            assert!(hear, "{}\n{}", through.process.log(), directly.process.log());
            let metrics = wellhead.admin().get("/metrics").await.unwrap().text();
            let subscribed = r#"wellhead_subscriptions{chain="main",kind="newHeads"} 1"#;
            assert!(metrics.lines().any(|line| line == subscribed), "{metrics}");
            for (node_dies, (back, count)) in [
                (false, (0, 1)),
                (false, (0, 5)),
                (false, (2, 3)),
                (true, (0, 1)),
                (false, (0, 5)),
                (false, (1, 2)),
                (false, (0, 1)),
            ] {
                if node_dies {
                    driver.node(0).process.signal(Signal::Kill);
                    nodes = &[1];
                }
                miner.step(&driver, back, count, nodes).await;
                value += count;
                let rows = through.wait_for(value).await;
                assert_eq!(rows["totalCount"], json!(3 * (miner.head().number - 1)));
                // Of a branch that it goes to geth tells the last head alone, and ponder takes that as a sign
                // of the reorg and waits for the next one.
                if back == 0 {
                    assert_eq!(rows, directly.wait_for(value).await);
                }
            }
        }
    }
}
