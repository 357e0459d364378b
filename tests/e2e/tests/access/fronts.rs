//! Behind nginx and HAProxy: each client has the limit of its own address, whatever it says of itself.

use std::net::Ipv4Addr;

use bytes::Bytes;
use wellhead_e2e::Rpc;

use crate::site::{Site, balance_call};

/// What one call costs, and how many each address may make on one day.
const PRICE: u64 = 7;
const CALLS: usize = 3;

/// Trusts this machine's usual address alone; clients come from others.
async fn site(protocol: &str) -> Site {
    let settings = format!(
        "access:\n  anonymous: allow\n  proxies: {{ trust: [127.0.0.1/32], protocol: {protocol} }}\n  \
         prices: [ {{ methods: [eth_getBalance], credits: {PRICE} }} ]\n\
         tenants: {{ anonymous: {{ address_quota: each }} }}\n\
         quotas: {{ each: {{ credits_per_day: {} }} }}\n",
        PRICE * CALLS as u64
    );
    Site::start(&settings).await
}

fn client(last: u8, port: u16) -> Rpc {
    Rpc::from_address(Ipv4Addr::new(127, 0, 0, last), port, "/")
}

/// Calls until the limit of an address is met, each call with another forged header. Returns how many were served.
async fn served(client: &Rpc, forged: &[&str]) -> usize {
    for calls in 0.. {
        assert!(calls <= 2 * CALLS, "no limit");
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(forged.get(calls % forged.len().max(1)).map(|it| ("x-forwarded-for", *it)));
        // A call that was not made before, so that no answer comes from the cache or a call under way.
        let body = Bytes::from(balance_call(calls as u64).0.to_string());
        let reply = client.send("POST", "/", &headers, body).await.unwrap();
        if reply.status != 200 {
            let body = reply.json().unwrap();
            assert_eq!(reply.status, 429, "{body}");
            assert_eq!(body["error"]["data"]["subject"], "address", "{body}");
            return calls;
        }
    }
    unreachable!("it returns at the limit")
}

const FORGED: [&str; 3] = ["198.51.100.1", "198.51.100.2, 127.0.0.1", "127.0.0.1, 198.51.100.3"];

#[tokio::test]
async fn an_address_is_not_what_a_client_says() {
    let site = site("off").await;
    // No trusted proxy: what it says is ignored.
    assert_eq!(served(&client(2, site.port()), &FORGED).await, CALLS);
    assert_eq!(served(&client(2, site.port()), &[]).await, 0);
    assert_eq!(served(&client(3, site.port()), &[]).await, CALLS);
    // A trusted one names the client: each forged address is believed, and has a limit of its own.
    let trusted = client(1, site.port());
    assert_eq!(served(&trusted, &["127.0.0.2"]).await, 0);
    assert_eq!(served(&trusted, &["198.51.100.9"]).await, CALLS);
}

mod with_nginx {
    use std::time::Duration;

    use wellhead_e2e::Nginx;

    use super::{CALLS, FORGED, client, served, site};

    #[tokio::test]
    async fn clients_behind_nginx_have_their_own_limits() {
        let site = site("off").await;
        let nginx = Nginx::before(site.port(), Duration::from_secs(30)).await;
        assert_eq!(served(&client(2, nginx.port), &[]).await, CALLS);
        assert_eq!(served(&client(2, nginx.port), &FORGED).await, 0);
        assert_eq!(served(&client(3, nginx.port), &FORGED).await, CALLS);
        assert_eq!(served(&client(3, site.port()), &FORGED).await, 0);
    }
}

mod with_haproxy {
    use wellhead_e2e::HaProxy;

    use super::{CALLS, FORGED, client, served, site};

    #[tokio::test]
    async fn clients_behind_haproxy_have_their_own_limits() {
        let site = site("accept").await;
        let haproxy = HaProxy::before(site.port()).await;
        assert_eq!(served(&client(2, haproxy.port), &[]).await, CALLS);
        assert_eq!(served(&client(2, haproxy.port), &FORGED).await, 0);
        assert_eq!(served(&client(3, haproxy.port), &FORGED).await, CALLS);
        // Past HAProxy the same addresses are the same clients, and need no PROXY header.
        assert_eq!(served(&client(3, site.port()), &[]).await, 0);
        assert_eq!(served(&client(4, site.port()), &FORGED).await, CALLS);
    }

    /// Where the header is required, no client gets past HAProxy.
    #[tokio::test]
    async fn nobody_comes_past_haproxy() {
        let site = site("require").await;
        let haproxy = HaProxy::before(site.port()).await;
        assert_eq!(served(&client(2, haproxy.port), &[]).await, CALLS);
        for last in [1, 2] {
            client(last, site.port()).get("/").await.unwrap_err();
        }
    }
}
