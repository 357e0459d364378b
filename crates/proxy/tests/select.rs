//! Clients that select upstreams by the query of their URL.

mod support;

use std::time::Duration;

use support::{Plan, Stage, rules, text};
use wellhead_kit::result;
use wellhead_proxy::Thought;
use wellhead_upstream::VerdictClass;

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":["0xab","0x5"]}"#;

/// The quickest is `a`; `b` and `c` are archives, `c` far away.
fn labelled(keeps: bool) -> Stage {
    let labels: Vec<&'static [_]> = vec![
        &[("region", "eu")],
        &[("archive", "true"), ("region", "eu")],
        &[("archive", "true"), ("region", "far, far away")],
    ];
    let stage = Stage::new(vec![Plan { upstreams: 3, labels, keeps, ..Plan::default() }]);
    for place in 0..3 {
        stage.show_head(place, 100);
        stage.show_final(place, 90);
    }
    stage
}

async fn check(stage: &Stage, pairs: &[(&str, &str)], expected: &str) {
    let answer = text(&stage.send_selecting(pairs, CALL).await);
    assert!(answer.contains(expected), "{pairs:?}: {answer}");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_carries_all_labels_is_asked() {
    // Each on a stage of its own, where the first is still the quickest.
    let check = async |pairs: &[(&str, &str)], name: &str| {
        check(&labelled(false), pairs, &format!("\"result\":\"{name}\"")).await;
    };
    check(&[], "a").await;
    check(&[("archive", "true")], "b").await;
    check(&[("archive", "")], "b").await;
    check(&[("region", "eu")], "a").await;
    check(&[("region", "eu"), ("archive", "true")], "b").await;
    check(&[("region", "far, far away")], "c").await;
}

#[tokio::test(start_paused = true)]
async fn a_label_that_no_upstream_carries_is_refused_with_what_is_known() {
    let stage = labelled(false);
    let refused = async |pairs: &[(&str, &str)], words: &str| {
        let answer = stage.send_selecting(pairs, CALL).await;
        assert_eq!(answer.status, 400, "{}", text(&answer));
        assert!(text(&answer).contains(words), "{}", text(&answer));
        assert!(text(&answer).contains(r#""id":1"#), "{}", text(&answer));
    };
    refused(
        &[("archiv", "true")],
        "unknown key `archiv` in the query; upstreams are selected by `archive`, `region`",
    )
    .await;
    refused(&[("archive", "yes")], "no upstream has `archive=yes`; its values are `true`").await;
    let both = [("region", "eu"), ("region", "far, far away")];
    refused(&both, "no upstream of this chain carries all of `region=eu&region=far").await;
    refused(&[("region", "eu"); 9], "more than 8 labels").await;
    assert!(stage.peers[0].iter().all(|peer| peer.seen().is_empty()));
}

#[tokio::test(start_paused = true)]
async fn without_a_label_an_archive_is_an_upstream_not_known_to_lack_history() {
    let stage = Stage::upstreams(2);
    for place in 0..2 {
        stage.show_head(place, 1000);
    }
    check(&stage, &[("archive", "true")], "\"result\":\"a\"").await;
    let row = wellhead_eth::MethodTable::standard().row("eth_getBalance");
    let learnt = Some(wellhead_upstream::Learnt::PrunedBelow { number: 900 });
    let head = Some(wellhead_eth::BlockNumber(1000));
    let class = VerdictClass::MissingData;
    let size = wellhead_upstream::SearchSize { blocks: 0, filter: <_>::default() };
    let extent = wellhead_upstream::CallExtent { oldest: None, head, size };
    let missed = |place| {
        let now = wellhead_dispatch::now();
        stage.upstream(place).learn_reach(row, class, learnt, &extent, now);
    };
    missed(0);
    check(&stage, &[("archive", "true")], "\"result\":\"b\"").await;
    missed(1);
    check(&stage, &[("archive", "true")], "no upstream that `archive=true` selects serves").await;
    let answer = stage.send_selecting(&[("archive", "false")], CALL).await;
    assert!(text(&answer).contains("only `archive=true` can be said"), "{}", text(&answer));
}

#[tokio::test(start_paused = true)]
async fn all_items_of_a_batch_go_where_the_query_says() {
    let stage = labelled(false);
    let batch = format!("[{CALL},{CALL},{}]", CALL.replace("eth_getBalance", "eth_getLogs"));
    let answer = text(&stage.send_selecting(&[("archive", "true")], &batch).await);
    assert_eq!(answer.matches("\"result\":\"b\"").count(), 3, "{answer}");
    assert!(stage.peer(0).seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_selection_widens_nothing() {
    let own_methods = vec![rules("", ""), rules("", "eth_getBalance")];
    let labels: Vec<&'static [_]> = vec![&[], &[("archive", "true")]];
    let stage = Stage::new(vec![Plan { upstreams: 2, own_methods, labels, ..Plan::default() }]);
    let answer = stage.send_selecting(&[("archive", "true")], CALL).await;
    let words = "no upstream that `archive=true` selects serves `eth_getBalance`";
    assert!(text(&answer).contains(words), "{}", text(&answer));
    let chain_id = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    let answer = stage.send_selecting(&[("archive", "true")], chain_id).await;
    assert!(text(&answer).contains("\"result\":\"0x1\""), "no upstream is asked for it");
}

#[tokio::test(start_paused = true)]
async fn answers_are_shared_among_clients_with_one_selection() {
    let stage = labelled(true);
    let archive = [("archive", "true")];
    let found = async |pairs: &[(&str, &str)]| {
        let answer = stage.send_selecting(pairs, CALL).await;
        (answer.cache, text(&answer).contains("\"b\""))
    };
    assert_eq!(found(&[]).await, (Some("miss"), false));
    assert_eq!(found(&archive).await, (Some("miss"), true));
    assert_eq!(found(&archive).await, (Some("hit"), true));
    assert_eq!(found(&[("archive", "")]).await, (Some("hit"), true));
    // Two at once: one call for clients that select the same upstreams.
    for place in 0..3 {
        let slowly = result("\"0x1\"").after(Duration::from_millis(10));
        stage.peer(place).next("eth_getBalance", slowly);
    }
    let other = CALL.replace("0xab", "0xac");
    let (first, second, third) = tokio::join!(
        stage.send_selecting(&archive, &other),
        stage.send_selecting(&archive, &other),
        stage.send_selecting(&[], &other),
    );
    assert_eq!(
        [first.cache, second.cache, third.cache],
        [Some("miss"), Some("joined"), Some("miss")]
    );
}

#[tokio::test(start_paused = true)]
async fn it_is_explained() {
    let stage = labelled(false);
    let explain = |pairs: &[(&'static str, &'static str)]| {
        let select: Vec<_> =
            pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let client = std::net::Ipv4Addr::LOCALHOST.into();
        let thought = Thought {
            chain: None,
            method: "eth_getBalance",
            params: Some(br#"["0xab","0x5"]"#),
            client,
            select: &select,
        };
        stage.proxy.explain(thought).map(|told| {
            let line = |it: &wellhead_proxy::UpstreamExplained| format!("{}: {}", it.id, it.why);
            told.upstreams.iter().map(line).collect::<Vec<_>>().join("; ")
        })
    };
    let why = "a: not among those that `archive=true` selects";
    assert_eq!(explain(&[("archive", "true")]), Ok(format!("b: fit; c: fit; {why}")));
    assert!(explain(&[("x", "y")]).expect_err("no such key").contains("unknown key `x`"));
}

/// What was made for a provider's URL is told to be removed, and nothing of it is repeated.
#[tokio::test(start_paused = true)]
async fn a_credential_in_the_query_is_to_be_removed() {
    let stage = Stage::upstreams(1);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"eth_gasPrice","params":[]}"#;
    for key in ["apikey", "api_key", "apiKey", "key", "token"] {
        let answer = stage.send_selecting(&[(key, "s3cret")], body).await;
        let told = String::from_utf8_lossy(&answer.body.concat()).into_owned();
        assert_eq!(answer.status, 400);
        let hint = format!("wellhead takes no credential in the query: remove `{key}=...`");
        assert!(told.contains(&hint) && !told.contains("s3cret"), "{told}");
    }
}
