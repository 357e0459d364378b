//! The slow tiers of the cache in the whole program: killed, restarted, shared, taken away.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop where it likes")]

mod with_anvil {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use serde_json::{Value, json};
    use tempfile::TempDir;
    use wellhead_e2e::{Anvil, Node, Signal, Upstream, Wellhead, until};

    const BOUND: Duration = Duration::from_secs(30);
    /// Blocks that are final for certain once they are all there.
    const FINAL: u64 = 120;

    /// A node with more than [`FINAL`] final blocks.
    async fn node() -> Node {
        node_of(7, "30000000").await
    }

    /// Another chain at the same heights: its blocks differ by their gas limit.
    async fn other_node() -> Node {
        node_of(8, "25000000").await
    }

    async fn node_of(chain_id: u64, gas_limit: &str) -> Node {
        let port = wellhead_e2e::free_port();
        let options = ["--slots-in-an-epoch", "1", "--gas-limit", gas_limit];
        let node = Anvil::start_at(chain_id, port, &options).await;
        node.rpc().result("anvil_mine", json!([format!("{:#x}", FINAL + 10)])).await.unwrap();
        let block = node.rpc().result("eth_getBlockByNumber", json!(["finalized", false])).await;
        let number = block.unwrap()["number"].as_str().unwrap().to_owned();
        assert!(u64::from_str_radix(&number[2..], 16).unwrap() >= FINAL, "{number}");
        node
    }

    async fn start(node: &Node, tiers: &str) -> Wellhead {
        start_for(7, node, tiers).await
    }

    async fn start_for(chain_id: u64, node: &Node, tiers: &str) -> Wellhead {
        let more = format!("cache: {{ enabled: true, {tiers} }}\n");
        Wellhead::start_with(&more, chain_id, &[Upstream::new("a", &node.url())]).await
    }

    /// The block, and whether it came from the cache.
    async fn block(wellhead: &Wellhead, number: u64) -> (Value, bool) {
        let call = json!({
            "jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByNumber",
            "params": [format!("{number:#x}"), false],
        });
        let reply = wellhead.rpc().post(call.to_string()).await.unwrap();
        let body = reply.json().unwrap();
        assert!(body["result"].is_object(), "{body}");
        (body["result"].clone(), reply.header("x-wellhead-cache") == "hit")
    }

    /// Until it knows what is final, nothing is looked up as final. The block that is asked for meanwhile is
    /// the newest: nothing is put into a slow tier by this.
    async fn knows_what_is_final(wellhead: &Wellhead) {
        let known = until(BOUND, || async {
            block(wellhead, FINAL + 10).await;
            let status = wellhead.admin().get("/status").await.ok()?.json().ok()?;
            status["chains"][0]["finalized"].as_u64().filter(|mark| *mark >= FINAL)
        });
        assert!(known.await.is_some(), "{}", wellhead.process.log());
    }

    async fn truth(node: &Node) -> Vec<Value> {
        let mut blocks = Vec::new();
        for number in 0..=FINAL {
            let params = json!([format!("{number:#x}"), false]);
            blocks.push(node.rpc().result("eth_getBlockByNumber", params).await.unwrap());
        }
        blocks
    }

    /// Hits among all final blocks, each of which must be what the node says.
    async fn hits(wellhead: &Wellhead, truth: &[Value]) -> usize {
        let mut hits = 0;
        for (number, expected) in truth.iter().enumerate() {
            let (block, is_hit) = block(wellhead, number as u64).await;
            assert_eq!(block, *expected, "block {number}");
            hits += usize::from(is_hit);
        }
        hits
    }

    /// The blocks that one of the fifty lives asks for: others each time, some of them asked for
    /// before.
    fn asked_in(round: u64) -> impl Iterator<Item = u64> {
        (0..6).map(move |step| (round * 5 + step * 17) % (FINAL + 1))
    }

    /// What the disk counts under this name. None of its values is damaged.
    async fn on_disk(wellhead: &Wellhead, count: &str) -> u64 {
        let status = wellhead.admin().get("/status").await.unwrap().json().unwrap();
        let tier = &status["cache"]["tiers"][0];
        assert_eq!(tier["damaged"], 0, "{status}");
        tier[count].as_u64().unwrap_or_else(|| panic!("a disk counts its {count}: {status}"))
    }

    /// Killed fifty times while it writes final answers: it always starts and never says what is not
    /// true. In each second life the kill waits until all is written: that is there to the end.
    #[tokio::test]
    async fn killed_fifty_times_it_starts_and_tells_the_truth() {
        let (node, folder) = (node().await, TempDir::new().unwrap());
        let truth = truth(&node).await;
        let disk = format!("disk: {{ path: \"{}/cache\", bytes: 8MiB }}", folder.path().display());
        let (mut written, mut bytes) = (BTreeSet::new(), 0);
        for round in 0..50_u64 {
            let mut wellhead = start(&node, &disk).await;
            let held = on_disk(&wellhead, "bytes").await;
            assert!(held >= bytes, "round {round}: {held} of {bytes} bytes are left");
            // What is not final is not written.
            knows_what_is_final(&wellhead).await;
            let mut misses = 0;
            for number in asked_in(round) {
                let (block, is_hit) = block(&wellhead, number).await;
                assert_eq!(block, truth[number as usize], "round {round}, block {number}");
                misses += u64::from(!is_hit);
            }
            if round % 2 == 0 {
                let all = until(BOUND, || async {
                    (on_disk(&wellhead, "written").await >= misses).then_some(())
                });
                assert!(all.await.is_some(), "round {round}: {misses} were not written");
                written.extend(asked_in(round));
                bytes = on_disk(&wellhead, "bytes").await;
            }
            wellhead.process.signal(Signal::Kill);
            assert!(wellhead.process.exit_code(BOUND).await.is_some(), "it is gone");
        }
        let mut wellhead = start(&node, &disk).await;
        knows_what_is_final(&wellhead).await;
        for number in &written {
            let (block, is_hit) = block(&wellhead, *number).await;
            assert_eq!(block, truth[*number as usize], "block {number}");
            assert!(is_hit, "block {number} was written and is gone");
        }
        println!("after 50 kills all {} that were written are on disk", written.len());
        hits(&wellhead, &truth).await;
        wellhead.process.signal(Signal::Term);
        assert_eq!(wellhead.process.exit_code(BOUND).await, Some(0));
        let wellhead = start(&node, &disk).await;
        knows_what_is_final(&wellhead).await;
        let hits = hits(&wellhead, &truth).await;
        println!("after 50 kills and a restart {hits} of {} from the disk", truth.len());
        assert!(hits * 10 >= truth.len() * 9, "{hits}");
        let status = wellhead.admin().get("/status").await.unwrap().json().unwrap();
        assert_eq!(status["cache"]["tiers"][0]["damaged"], 0, "{status}");
    }

    /// The files of a wellhead that serves another chain, with garbage behind them and a file that
    /// no wellhead wrote: nothing of it is served, and what is written beside it is.
    #[tokio::test]
    async fn disk_of_another_chain_is_not_served() {
        let (node, other, folder) = (node().await, other_node().await, TempDir::new().unwrap());
        let (own_truth, other_truth) = (truth(&node).await, truth(&other).await);
        assert_ne!(own_truth[50]["hash"], other_truth[50]["hash"], "the chains differ");
        let disk = format!("disk: {{ path: \"{}/cache\", bytes: 8MiB }}", folder.path().display());
        let mut wellhead = start_for(8, &other, &disk).await;
        knows_what_is_final(&wellhead).await;
        hits(&wellhead, &other_truth).await;
        wellhead.process.signal(Signal::Term);
        assert_eq!(wellhead.process.exit_code(BOUND).await, Some(0));
        let cache = folder.path().join("cache");
        let values: Vec<_> = std::fs::read_dir(&cache)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "values"))
            .collect();
        assert!(!values.is_empty(), "the disk has files");
        for path in &values {
            let mut bytes = std::fs::read(path).unwrap();
            bytes.extend_from_slice(&[0xa5; 100_000]);
            std::fs::write(path, bytes).unwrap();
        }
        std::fs::write(cache.join("999999.values"), [0xff; 4096]).unwrap();
        let wellhead = start(&node, &disk).await;
        knows_what_is_final(&wellhead).await;
        hits(&wellhead, &own_truth).await;
        assert!(wellhead.answers().await, "{}", wellhead.process.log());
    }

    mod with_redis {
        use wellhead_kit::RedisServer;

        use super::*;

        async fn is_up(wellhead: &Wellhead, expected: bool) {
            let state = until(BOUND, || async {
                let status = wellhead.admin().get("/status").await.ok()?.json().ok()?;
                let tier = &status["cache"]["tiers"][0];
                (tier["name"] == "redis" && tier["is_up"] == expected).then_some(())
            });
            assert!(state.await.is_some(), "{}", wellhead.process.log());
        }

        /// What one asked the other has, and no call fails while Redis is frozen, back, flushed
        /// by its restart, or gone.
        #[tokio::test]
        async fn shared_by_two_and_never_needed() {
            let node = node().await;
            let truth = truth(&node).await;
            let server = RedisServer::start();
            let (url, port) = (server.url(), server.port());
            // A busy machine may be slow; that is looked at in the tests of the store.
            let tiers = format!("redis: {{ url: \"{url}\", get_timeout: 500ms }}");
            let (one, other) = (start(&node, &tiers).await, start(&node, &tiers).await);
            for wellhead in [&one, &other] {
                is_up(wellhead, true).await;
                knows_what_is_final(wellhead).await;
            }
            hits(&one, &truth).await;
            let shared = hits(&other, &truth).await;
            println!("{shared} of {} from the other one's Redis", truth.len());
            assert!(shared * 10 >= truth.len() * 9, "{shared}");

            let third = start(&node, &tiers).await;
            is_up(&third, true).await;
            server.signal("-STOP");
            hits(&third, &truth).await;
            server.signal("-CONT");
            is_up(&third, true).await;
            drop(server);
            let fourth = start(&node, &tiers).await;
            hits(&fourth, &truth).await;
            is_up(&fourth, false).await;
            let server = RedisServer::start_at(port, &[]);
            is_up(&fourth, true).await;
            hits(&third, &truth).await;
            drop(server);
        }

        /// Entries that no wellhead of this chain wrote, under the names of its own: garbage, the
        /// entry of another name, a part of one, another format, 20 MB, another type, and those of
        /// another chain. None is served, and none does harm.
        #[tokio::test]
        async fn entries_of_others_are_not_served() {
            let (node, other) = (node().await, other_node().await);
            let (own_truth, other_truth) = (truth(&node).await, truth(&other).await);
            assert_ne!(own_truth[50]["hash"], other_truth[50]["hash"], "the chains differ");
            let server = RedisServer::start();
            let url = server.url();
            let tiers = format!("redis: {{ url: \"{url}\", get_timeout: 500ms }}");
            for (chain_id, node, truth) in [(8, &other, &other_truth), (7, &node, &own_truth)] {
                let wellhead = start_for(chain_id, node, &tiers).await;
                is_up(&wellhead, true).await;
                knows_what_is_final(&wellhead).await;
                hits(&wellhead, truth).await;
            }
            let client = redis::Client::open(url).unwrap();
            let mut raw = client.get_multiplexed_async_connection().await.unwrap();
            let keys: Vec<Vec<u8>> =
                redis::cmd("KEYS").arg("*").query_async(&mut raw).await.unwrap();
            assert!(keys.len() > FINAL as usize, "{} keys", keys.len());
            let huge = vec![b'7'; 20_000_000];
            for (index, key) in keys.iter().enumerate() {
                let mut pipe = redis::pipe();
                let value: redis::RedisResult<Vec<u8>> =
                    redis::cmd("GET").arg(key).query_async(&mut raw).await;
                let mut value = value.unwrap();
                match index % 6 {
                    0 => pipe.cmd("SET").arg(key).arg("{\"result\":\"0x1\"}"),
                    1 => pipe
                        .cmd("COPY")
                        .arg(&keys[(index + 6) % keys.len()])
                        .arg(key)
                        .arg("REPLACE"),
                    2 => pipe.cmd("SET").arg(key).arg(&value[..value.len() / 2]),
                    3 => {
                        // The format stands behind the length, in front of the checksum.
                        value[4] = value[4].wrapping_add(1);
                        pipe.cmd("SET").arg(key).arg(&value)
                    }
                    4 if index < 12 => pipe.cmd("SET").arg(key).arg(&huge),
                    4 => pipe.cmd("SET").arg(key).arg(""),
                    _ => pipe.cmd("DEL").arg(key).cmd("RPUSH").arg(key).arg("a list"),
                };
                pipe.exec_async(&mut raw).await.unwrap();
            }
            let wellhead = start(&node, &tiers).await;
            is_up(&wellhead, true).await;
            knows_what_is_final(&wellhead).await;
            hits(&wellhead, &own_truth).await;
            assert!(wellhead.answers().await, "{}", wellhead.process.log());
            let status = wellhead.admin().get("/status").await.unwrap().json().unwrap();
            let damaged = status["cache"]["tiers"][0]["damaged"].as_u64().unwrap();
            assert!(damaged > 0, "{status}");
        }
    }
}
