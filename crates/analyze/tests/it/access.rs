//! How targets are reached: what goes along with calls, and that no record holds it.

use std::sync::{Arc, Mutex};

use wellhead_analyze::measure::client::TargetAccess;
use wellhead_net::{Auth, FixedAddress};
use wellhead_telemetry::Secret;

use super::target::{answer, http, played, target};

#[tokio::test]
async fn headers_and_a_token_are_sent_and_not_kept() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let endpoint = target(move |head, _| {
        seen.lock().expect("no panic").push(head.to_owned());
        let value = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().to_owned()
        };
        // A target that tells what it was sent.
        let headers = format!(
            "x-ratelimit-key: {}\r\nx-ratelimit-user: {}\r\n",
            value("x-api-key: "),
            value("authorization: ")
        );
        answer("\"0x1\"").replacen("\r\n", &format!("\r\n{headers}"), 1)
    })
    .await;
    let access = TargetAccess {
        headers: vec![("x-api-key".to_owned(), Secret::new("HEADERKEY1"))],
        auth: Auth::Bearer(Secret::new("TOKENTOKEN2")),
        ..TargetAccess::default()
    };
    let (files, ..) = played(&endpoint.with_access(access)).await;
    let heads = heads.lock().expect("no panic");
    assert!(heads.len() >= 10, "{}", heads.len());
    for head in heads.iter() {
        assert!(head.contains("\r\nx-api-key: HEADERKEY1"), "{head}");
        assert!(head.contains("\r\nauthorization: Bearer TOKENTOKEN2"), "{head}");
    }
    let small = files.to_lowercase();
    assert!(!small.contains("headerkey") && !small.contains("tokentoken"), "{files}");
}

#[tokio::test]
async fn a_name_is_reached_where_it_is_said_to_be() {
    let near = target(|head, _| match head.contains("\r\nhost: node.test:1") {
        true => answer("\"0x1\""),
        false => http("421 Misdirected Request", "", ""),
    })
    .await;
    let address = near.target.host.parse().expect("an address");
    let fixed = FixedAddress { host: "node.test".to_owned(), port: 1, address };
    let access = TargetAccess { resolve: vec![fixed], ..TargetAccess::default() };
    let endpoint = super::support::endpoint("http://node.test:1/").with_access(access);
    let (_, _, records) = played(&endpoint).await;
    let served = records.iter().filter_map(|record| record.call());
    assert_eq!(served.filter(|call| call.class == "answer").count(), 10);
}
