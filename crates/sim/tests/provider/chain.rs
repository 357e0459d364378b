//! What a provider knows, and what it says that is not so.

use serde_json::{Value, json};
use wellhead_sim::provider::Falsehood;
use wellhead_sim::rpc::History;
use wellhead_sim::{FakeProvider, ProviderDials, SimNode};

use crate::client::{HEAD, Http1, block_number, call, provider};

async fn ask(provider: &FakeProvider, method: &str, params: Value) -> Value {
    Http1::open(provider).await.ask(&call(method, &params)).await.body
}

#[tokio::test]
async fn it_lags() {
    let provider = provider(ProviderDials { lag_blocks: 3, ..ProviderDials::default() });
    let head = |behind: u64| json!(format!("{:#x}", HEAD - behind));
    assert_eq!(ask(&provider, "eth_blockNumber", json!([])).await["result"], head(3));
    provider.turn(|dials| dials.lag_blocks = 0);
    assert_eq!(ask(&provider, "eth_blockNumber", json!([])).await["result"], head(0));
}

#[tokio::test]
async fn what_is_old_is_gone() {
    let history = History { state_blocks: Some(4), body_blocks: Some(8) };
    let provider = provider(ProviderDials { history, ..ProviderDials::default() });
    let balance =
        |block: u64| json!(["0x0000000000000000000000000000000000000001", format!("{block:#x}")]);
    let kept = ask(&provider, "eth_getBalance", balance(HEAD - 3)).await;
    assert!(kept["result"].is_string(), "{kept}");
    let gone = ask(&provider, "eth_getBalance", balance(HEAD - 4)).await;
    assert!(gone["error"]["message"].as_str().unwrap().contains("missing trie node"), "{gone}");
    let gone = ask(&provider, "eth_getBlockReceipts", json!([format!("{:#x}", HEAD - 8)])).await;
    assert_eq!(gone["error"]["code"], 4444);
}

#[tokio::test]
async fn methods_ranges_and_batches_have_bounds() {
    let provider = provider(ProviderDials {
        unsupported: vec!["txpool_*".to_owned()],
        log_range_max: Some(5),
        batch_max: Some(2),
        ..ProviderDials::default()
    });
    assert_eq!(ask(&provider, "txpool_status", json!([])).await["error"]["code"], -32601);
    let logs = |to| json!([{"fromBlock": "0x1", "toBlock": to}]);
    assert!(ask(&provider, "eth_getLogs", logs("0x5")).await["result"].is_array());
    assert!(ask(&provider, "eth_getLogs", logs("0x6")).await["error"].is_object());
    let mut client = Http1::open(&provider).await;
    let one = block_number();
    assert_eq!(client.ask(&format!("[{one},{one}]")).await.body.as_array().unwrap().len(), 2);
    let refused = client.ask(&format!("[{one},{one},{one}]")).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (200, Some(-32600)));
    // Each call of a refused batch counts as refused.
    assert_eq!(provider.counts().refusals, 3);
}

#[tokio::test]
async fn some_answers_are_lies_and_known_to_be() {
    let lie =
        Falsehood { methods: vec!["eth_getBlockByNumber".to_owned()], percent: 30.0, seed: 4 };
    let provider = provider(ProviderDials { lie: Some(lie.clone()), ..ProviderDials::default() });
    let honest = SimNode::new("honest", provider.node().world().clone());
    let mut client = Http1::open(&provider).await;
    let (mut lies, mut asked) = (0, 0);
    for number in 0..=HEAD {
        for whole in [true, false] {
            let params = json!([format!("{number:#x}"), whole]);
            let truth = honest.ask("eth_getBlockByNumber", Some(&params)).unwrap();
            let body = call("eth_getBlockByNumber", &params);
            let told = client.ask(&body).await.body;
            let planted = lie.is_told("eth_getBlockByNumber", Some(&params));
            assert_eq!(told["result"] != truth, planted, "{params}");
            assert_eq!(client.ask(&body).await.body, told, "the same lie again");
            lies += u64::from(planted);
            asked += 1;
        }
    }
    assert!(lies > 0 && lies < asked, "{lies} of {asked}");
    assert_eq!(provider.counts().lies, 2 * lies);
    assert_eq!(client.ask(&block_number()).await.body["result"], json!(format!("{HEAD:#x}")));
}
