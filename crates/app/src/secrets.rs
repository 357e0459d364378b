//! What an upstream must not be quoted with, found in its settings.
//!
//! How it is recognised in a quotation is for `wellhead_upstream::HiddenSecrets`.

use url::Url;
use wellhead_telemetry::key_in_host;
use wellhead_upstream::HiddenSecrets;

use crate::config::{Auth, Upstream};

/// A part of a URL is redacted wherever it stands from this length on.
const URL_PART_BYTES_MIN: usize = 8;
/// A number with fewer digits says which version or which chain.
const NUMBER_LEN_MAX: usize = 5;

/// Words that are in the paths of many providers and in many errors, and in no key.
const PUBLIC_WORDS: [&str; 59] = [
    "api",
    "arbitrum",
    "archive",
    "avalanche",
    "base",
    "beacon",
    "berachain",
    "binance",
    "blast",
    "bsc",
    "celo",
    "chain",
    "chains",
    "cronos",
    "debug",
    "devnet",
    "endpoint",
    "erpc",
    "eth",
    "ethereum",
    "evm",
    "execution",
    "ext",
    "fantom",
    "full",
    "geth",
    "gnosis",
    "goerli",
    "holesky",
    "hoodi",
    "http",
    "https",
    "json",
    "jsonrpc",
    "linea",
    "main",
    "mainnet",
    "mantle",
    "moonbeam",
    "network",
    "node",
    "nodes",
    "one",
    "optimism",
    "polygon",
    "project",
    "projects",
    "public",
    "rpc",
    "scroll",
    "sepolia",
    "test",
    "testnet",
    "trace",
    "websocket",
    "ws",
    "wss",
    "zkevm",
    "zksync",
];

/// All of it: the headers as they are sent, tokens and passwords, and the parts of its URLs.
pub(crate) fn of(upstream: &Upstream) -> HiddenSecrets {
    let mut secrets = HiddenSecrets::default();
    for (name, value) in upstream.headers.iter() {
        secrets.header(name.as_ref(), value.expose());
    }
    match &upstream.auth {
        Some(Auth { basic: Some(basic), .. }) => {
            secrets.basic(basic.user.0.as_str(), basic.password.expose());
        }
        Some(Auth { bearer: Some(token), .. }) => {
            secrets.header("authorization", &format!("Bearer {}", token.expose()));
        }
        Some(Auth { basic: None, bearer: None }) | None => {}
    }
    for url in [Some(&upstream.url), upstream.ws.as_ref()].into_iter().flatten() {
        with_url(&mut secrets, url.expose());
    }
    secrets
}

fn with_url(secrets: &mut HiddenSecrets, url: &Url) {
    // Only the command line takes a URL with them.
    if !url.username().is_empty() || url.password().is_some() {
        let plain = |text: &str| {
            let pair = format!("a={}", text.replace('+', "%2B"));
            let mut pairs = url::form_urlencoded::parse(pair.as_bytes());
            pairs.next().map(|(_, text)| text.into_owned()).unwrap_or_default()
        };
        secrets.basic(&plain(url.username()), &plain(url.password().unwrap_or_default()));
    }
    let host = url.host_str().unwrap_or_default();
    key_in_host(host).into_iter().for_each(|label| secrets.word(&host[label]));
    for segment in url.path().split('/') {
        with_part(secrets, segment);
    }
    for part in url.query().unwrap_or_default().split('&') {
        match part.split_once('=') {
            Some((name, value)) if value.len() < URL_PART_BYTES_MIN => {
                secrets.parameter(name, value);
            }
            // Also what is public elsewhere: the name says that it is a value.
            Some((_, value)) => secrets.word(value),
            None => with_part(secrets, part),
        }
    }
}

/// A part of a path: all of it, and what stands between its signs.
fn with_part(secrets: &mut HiddenSecrets, part: &str) {
    for word in std::iter::once(part).chain(part.split([':', ';', ',', '=', '@'])) {
        if word.len() >= URL_PART_BYTES_MIN && !is_public(word) {
            secrets.word(word);
        }
    }
}

/// Whether it says which chain or which service, and so is no secret.
fn is_public(word: &str) -> bool {
    word.split(['-', '_', '.', ':', ';', ',', '=', '@']).all(|piece| {
        let piece = piece.to_ascii_lowercase();
        let number = piece.strip_prefix('v').unwrap_or(&piece);
        let is_number =
            number.len() <= NUMBER_LEN_MAX && number.bytes().all(|b| b.is_ascii_digit());
        is_number || PUBLIC_WORDS.binary_search(&piece.as_str()).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use wellhead_upstream::Redactor;

    use super::*;
    use crate::config;

    /// What of `error` a client is told by an upstream with these settings.
    fn check(settings: &str, error: &str, told: &str) {
        let source =
            format!("chains: {{ ethereum: {{ id: 1, upstreams: [{{ id: a, {settings} }}] }} }}");
        let settings = config::sound(&source);
        let (_, chain) = settings.chains.iter().next().expect("one chain");
        assert_eq!(Redactor::of(&of(&chain.upstreams[0])).hidden(error.to_owned()), told);
    }

    #[test]
    fn a_server_that_quotes_the_head_of_the_request_tells_no_secret() {
        check(
            r#"url: "https://eth.example/v2/opensesame?apikey=abracadabra&chain=1", headers: { x-key: "headervalue", x-team: "a" }"#,
            "POST /v2/opensesame?apikey=abracadabra&chain=1 HTTP/1.1\r\nx-key: headervalue\r\nx-team: a\r\n",
            "POST /v2/***?apikey=***&chain=*** HTTP/1.1\r\nx-key: ***\r\nx-team: ***\r\n",
        );
        check(
            r#"url: "http://b", auth: { bearer: "bearertoken" }"#,
            "authorization: Bearer bearertoken, bearertoken, BEARERTOKEN",
            "authorization: ***, ***, ***",
        );
        check(
            r#"url: "http://c", auth: { basic: { user: someone, password: basicpassword } }"#,
            "authorization: Basic c29tZW9uZTpiYXNpY3Bhc3N3b3Jk is someone:basicpassword",
            "authorization: *** is ***",
        );
        check(
            r#"url: "http://c", auth: { basic: { user: a, password: b } }"#,
            "authorization: Basic YTpi",
            "authorization: ***",
        );
        check(
            r#"url: "https://eth.example/", ws: "wss://eth.example/ws/fedcba98;key=hocuspocus""#,
            "GET /ws/fedcba98;key=hocuspocus, hocuspocus",
            "GET /ws/***, ***",
        );
        check(
            r#"url: "https://a1b2c3d4e5f6.eth.example.com/""#,
            "no such host a1b2c3d4e5f6.eth.example.com",
            "no such host ***.eth.example.com",
        );
    }

    #[test]
    fn words_of_chains_and_versions_stay_readable() {
        check(
            r#"url: "https://eth.example/v2/ethereum-mainnet/json-rpc/rpc.1/chain:11155""#,
            "ethereum-mainnet: no json-rpc on chain:11155",
            "ethereum-mainnet: no json-rpc on chain:11155",
        );
    }

    #[test]
    fn a_url_of_the_command_line_may_hold_user_and_password() {
        let mut secrets = HiddenSecrets::default();
        with_url(&mut secrets, &Url::parse("http://someone:p%40ss+word@a/").expect("a URL"));
        let told = Redactor::of(&secrets).hidden("p@ss+word c29tZW9uZTpwQHNzK3dvcmQ=".to_owned());
        assert_eq!(told, "*** ***");
    }

    #[test]
    fn the_public_words_are_sorted() {
        assert!(PUBLIC_WORDS.is_sorted());
    }
}
