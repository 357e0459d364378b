//! `wellhead serve URL URL`: settings from a handful of addresses.
//!
//! All URLs are of one chain, whose id is asked for later. WebSocket URLs are feeds
//! of the upstream on the same host, or upstreams of their own where there is none. Problems name the position of an argument, not
//! its text, which may hold a key.

use std::net::SocketAddr;

use wellhead_telemetry::SecretUrl;

use super::chain::{Chain, Upstream};
use super::check;
use super::name::ChainName;
use super::problem::{Problem, ProblemReport, SettingPath, Severity};
use super::read::{Map, Setting, SettingWord};
use super::settings::Settings;
use super::value::Admin;

/// What the one chain is called; its path is `/` anyway.
const CHAIN: &str = "default";

impl Settings {
    /// For `wellhead serve URL URL`: one chain, whose id is found by asking. The report
    /// holds warnings.
    pub fn from_urls(
        urls: &[String],
        listen: Option<SocketAddr>,
        admin: Option<Admin>,
    ) -> Result<(Self, ProblemReport), ProblemReport> {
        let mut problems = Vec::new();
        let mut upstreams: Vec<Upstream> = Vec::new();
        let mut feeds: Vec<SecretUrl> = Vec::new();
        for (index, text) in urls.iter().enumerate() {
            let path = SettingPath::root().key(&format!("URL {}", index + 1));
            let url = match <SecretUrl as SettingWord>::parse(text) {
                Ok(url) => url,
                Err(wrong) => {
                    problems.push(Problem::wrong(&path, wrong));
                    continue;
                }
            };
            match url.expose().scheme() {
                "http" | "https" => upstreams.push(Upstream { url, ..Upstream::blank() }),
                "ws" | "wss" => feeds.push(url),
                _ => problems.push(
                    Problem::error(&path, "the URL begins with an unknown scheme")
                        .hint("begin it with `http://`, `https://`, `ws://` or `wss://`"),
                ),
            }
        }
        for feed in feeds {
            let host = feed.expose().host_str();
            let same = |upstream: &&mut Upstream| {
                !upstream.is_socket()
                    && upstream.ws.is_none()
                    && upstream.url.expose().host_str() == host
            };
            match upstreams.iter_mut().find(same) {
                Some(upstream) => upstream.ws = Some(feed),
                None => upstreams.push(Upstream { url: feed, ..Upstream::blank() }),
            }
        }
        let chain = Chain { upstreams, ..Chain::blank() };
        let mut settings = Self::blank();
        settings.chains = Map(vec![(ChainName(CHAIN.to_owned()), chain)]);
        settings.listen = listen.unwrap_or(settings.listen);
        settings.admin = admin.unwrap_or(settings.admin);
        check::name_upstreams(&mut settings);
        if problems.is_empty() {
            check::check(&settings, None, &[], None, &mut problems);
        }
        let failed = problems.iter().any(|problem| problem.severity == Severity::Error);
        let report = ProblemReport::new("the command line", None, problems);
        if failed { Err(report) } else { Ok((settings, report)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The upstreams as `id url ws`, or the messages.
    fn check(urls: &[&str], expected: &str) {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        let found = match Settings::from_urls(&urls, None, None) {
            Ok((settings, _)) => settings.chains.0[0]
                .1
                .upstreams
                .iter()
                .map(|upstream| {
                    let ws = upstream.ws.as_ref().map_or("-".to_owned(), ToString::to_string);
                    format!("{} {} {ws}", upstream.id, upstream.url)
                })
                .collect::<Vec<_>>()
                .join("; "),
            Err(report) => report
                .problems()
                .iter()
                .map(|problem| format!("{}: {}", problem.path, problem.message))
                .collect::<Vec<_>>()
                .join("; "),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn http_urls_are_upstreams_and_websockets_feed_them() {
        check(&["http://a:8545"], "a http://a:8545 -");
        check(
            &["http://a:8545", "https://b/KEY", "wss://b/ws/KEY"],
            "a http://a:8545 -; b https://b/… wss://b/…",
        );
        check(
            &["http://h:1", "http://h:2", "http://h:2/x"],
            "h http://h:1 -; h:2 http://h:2 -; h-2 http://h:2/… -",
        );
    }

    #[test]
    fn a_websocket_that_feeds_none_is_an_upstream() {
        check(
            &["ws://b:1", "http://a:8545", "ws://a:8546", "ws://a:8547"],
            "a http://a:8545 ws://a:8546; b ws://b:1 -; a:8547 ws://a:8547 -",
        );
    }

    #[test]
    fn a_key_in_the_host_names_no_upstream() {
        check(
            &["https://a1b2c3d4e5f6.eth.example.com", "https://deadbeefcafe.eth.example.com/v1"],
            "eth.example.com https://***.eth.example.com -; \
             eth.example.com-2 https://***.eth.example.com/… -",
        );
        check(&["http://a1b2c3d4e5f6:8545"], "a1b2c3d4e5f6 http://a1b2c3d4e5f6:8545 -");
    }

    #[test]
    fn every_bad_url_is_reported() {
        check(
            &["a:8545/KEY", "ftp://x", "ws://c:1", "http://"],
            "URL 1: the URL has no scheme; \
             URL 2: the URL begins with an unknown scheme; \
             URL 4: the URL has no host",
        );
        check(
            &["http://127.0.0.1:4545"],
            "chains.default.upstreams[0].url: the URL is wellhead's own `listen` address",
        );
    }

    #[test]
    fn the_addresses_are_taken() {
        let listen = Some(SocketAddr::from(([0, 0, 0, 0], 1)));
        let (settings, _) =
            Settings::from_urls(&["http://a".to_owned()], listen, Some(Admin::Off)).expect("sound");
        assert_eq!(settings.listen, SocketAddr::from(([0, 0, 0, 0], 1)));
        assert_eq!(settings.admin, Admin::Off);
    }
}
