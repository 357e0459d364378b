//! `wellhead analyze resume`: what was asked for is asked for again, and goes on where it was cut.
//!
//! `run.json` has the words of the command line with the host alone of each URL. A URL that had
//! more has to be given again, and is found by its host.

use std::path::Path;

use clap::Parser as _;
use wellhead_analyze::measure::client;
use wellhead_analyze::measure::run::EarlierRun;
use wellhead_telemetry::SecretUrl;

use super::named;
use crate::cli::analyze::endpoint::EndpointArgs;
use crate::cli::analyze::{CommonArgs, ResumeArgs};
use crate::cli::{Cli, Command};
use crate::terminal::{CommandError, complain};

/// What stands for path, query and user of a URL.
const LEFT_OUT: char = '…';
/// Where one word says where WebSocket is.
const WS: &str = "--ws=";
/// Likewise a header, and a proxy.
const HEADER: &str = "--header=";
const PROXY: &str = "--proxy=";

/// Goes on with a run.
pub(super) fn command(it: &ResumeArgs) -> Result<(), CommandError> {
    let earlier = read(&it.dir)?;
    complain(&format!("{} cells were completed before", earlier.cells()));
    let words = earlier.run().asked.clone();
    if words.is_empty() {
        return Err(CommandError::Config("the run has no command line".to_owned()));
    }
    let words = ["wellhead", "analyze"].into_iter().map(str::to_owned).chain(words);
    let cli = Cli::try_parse_from(words).map_err(|error| {
        CommandError::Config(format!(
            "the command line of the run is not valid for this version: {error}"
        ))
    })?;
    let Command::Analyze(mut analyze) = cli.command else {
        return Err(CommandError::Config("the run has no command line".to_owned()));
    };
    let mut given = it.urls.clone();
    if let Some(kept) = analyze.what.sockets_mut().filter(|kept| !kept.is_empty()) {
        // The same host may be there for HTTP and for WebSocket.
        let (sockets, others) = given.into_iter().partition::<Vec<_>, _>(|url| is_socket(url));
        *kept = urls(kept, &sockets)?;
        given = others;
    }
    let Some(common) = analyze.what.common_mut() else {
        return Err(CommandError::Config(
            "the command line of the run measures nothing".to_owned(),
        ));
    };
    common.targets.urls = urls(&common.targets.urls, &given)?;
    let EndpointArgs { headers: kept, proxy, .. } = &mut common.targets.endpoint;
    *kept = headers(kept, &it.secrets.headers)?;
    *proxy = whole_proxy(proxy.take(), it.secrets.proxy.clone())?;
    common.goes_on = Some(it.dir.clone());
    common.targets.seed = earlier.run().seed;
    common.profile = it.profile.clone().or(common.profile.take());
    common.yes |= it.yes;
    super::command(&analyze.what)
}

/// The run in `dir`.
pub(super) fn read(dir: &Path) -> Result<EarlierRun, CommandError> {
    EarlierRun::read(dir)
        .map_err(|error| CommandError::Config(format!("`{}`: {error}", dir.display())))
}

/// The words after `analyze`, without what may be secret: the URLs of `common` and `sockets`, the
/// values of headers, the user of the proxy.
pub(super) fn words(common: &CommonArgs, sockets: &[String]) -> Vec<String> {
    // A path that is no text is kept as it is shown.
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let after = words.skip_while(|word| word != "analyze").skip(1);
    let after = after.map(|word| without_header(word, &common.targets.endpoint));
    without_secrets(after, &[&common.targets.urls[..], sockets].concat())
}

/// A header keeps its name, and the proxy its place. A file is named, not read.
fn without_header(word: String, args: &EndpointArgs) -> String {
    let (flag, value) = [HEADER, PROXY]
        .into_iter()
        .find_map(|flag| word.strip_prefix(flag).map(|value| (flag, value)))
        .unwrap_or(("", &word));
    if args.proxy.as_deref() == Some(value) {
        return format!("{flag}{}", shown(value));
    }
    match value.split_once(':') {
        Some((name, _)) if args.headers.iter().any(|it| it == value && !it.starts_with('@')) => {
            format!("{flag}{name}: {LEFT_OUT}")
        }
        Some(_) | None => word,
    }
}

/// The headers that were sent, whole again.
fn headers(kept: &[String], given: &[String]) -> Result<Vec<String>, CommandError> {
    let name = |text: &str| text.split_once(':').map(|(name, _)| name.trim().to_lowercase());
    if let Some(other) = given.iter().find(|it| !kept.iter().any(|kept| name(kept) == name(it))) {
        let name = name(other).unwrap_or_default();
        return Err(CommandError::Config(format!("header `{name}` was not sent in this run")));
    }
    let whole = |text: &String| match given.iter().find(|it| name(it) == name(text)) {
        Some(given) => Ok(given.clone()),
        None if text.ends_with(LEFT_OUT) => {
            let name = name(text).unwrap_or_default();
            let hint = "give it again with `--header`: its value is not stored";
            Err(CommandError::Config(format!("header `{name}`: {hint}")))
        }
        None => Ok(text.clone()),
    };
    kept.iter().map(whole).collect()
}

/// The proxy that was used, whole again.
fn whole_proxy(
    kept: Option<String>,
    given: Option<String>,
) -> Result<Option<String>, CommandError> {
    match (kept, given) {
        (Some(kept), None) if kept.ends_with(LEFT_OUT) => {
            let hint = "give it again with `--proxy`: its password is not stored";
            Err(CommandError::Config(format!("the proxy of the run: {hint}")))
        }
        (None, Some(_)) => Err(CommandError::Config("the run went through no proxy".to_owned())),
        (kept, given) => Ok(given.or(kept)),
    }
}

fn without_secrets(words: impl Iterator<Item = String>, urls: &[String]) -> Vec<String> {
    let told = |word: String| {
        let own = word.strip_prefix(WS).unwrap_or(&word);
        if !urls.iter().any(|url| url == own) {
            return word;
        }
        if own.len() < word.len() {
            return format!("{WS}{}", shown(own));
        }
        let (name, url) = named(&word);
        name.map_or(shown(url), |name| format!("{name}={}", shown(url)))
    };
    words.map(told).collect()
}

/// What `SecretUrl` shows has neither path nor query nor user.
fn shown(url: &str) -> String {
    SecretUrl::parse(url).map_or(LEFT_OUT.to_string(), |url| url.to_string())
}

fn is_socket(url: &str) -> bool {
    SecretUrl::parse(url).is_ok_and(|url| matches!(url.expose().scheme(), "ws" | "wss"))
}

/// The URLs that were measured, whole again.
fn urls(kept: &[String], given: &[String]) -> Result<Vec<String>, CommandError> {
    let mut given: Vec<(Option<String>, &String)> =
        given.iter().map(|text| (host(text), text)).collect();
    let mut whole = Vec::new();
    for text in kept {
        let host = host(text.trim_end_matches(LEFT_OUT));
        let at = given.iter().position(|(other, _)| host.is_some() && *other == host);
        match at {
            Some(at) => {
                let given = given.remove(at).1;
                // The name that it has in the records.
                whole.push(match named(text).0 {
                    Some(name) => format!("{name}={}", named(given).1),
                    None => named(given).1.to_owned(),
                });
            }
            None if text.ends_with(LEFT_OUT) => {
                let host = host.unwrap_or_default();
                let hint = "give its URL again: path and query are not stored";
                return Err(CommandError::Config(format!("`{host}`: {hint}")));
            }
            None => whole.push(text.clone()),
        }
    }
    match given.first() {
        Some((host, _)) => {
            let host = host.as_deref().unwrap_or("a URL");
            Err(CommandError::Config(format!("`{host}` was not measured in this run")))
        }
        None => Ok(whole),
    }
}

/// The host, and the port where it is not the usual one.
fn host(text: &str) -> Option<String> {
    SecretUrl::parse(named(text).1).ok().as_ref().map(client::host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn check(kept: &[&str], given: &[&str], expected: Result<&[&str], &str>) {
        let found = urls(&texts(kept), &texts(given)).map_err(CommandError::text);
        assert_eq!(found, expected.map(texts).map_err(str::to_owned), "{kept:?} {given:?}");
    }

    #[test]
    fn words_hold_no_key() {
        let url = "https://me:PASSKEY@h.example:8545/v2/PATHKEY?k=QUERYKEY".to_owned();
        let plain = "http://127.0.0.1:8545".to_owned();
        let words = texts(&["load", "--rates", "1,2", &url, &plain]);
        let kept = without_secrets(words.into_iter(), &[url, plain]);
        assert!(kept.iter().all(|word| !word.contains("KEY")), "{kept:?}");
        assert_eq!(kept[..3], texts(&["load", "--rates", "1,2"]));
        assert!(kept[3].starts_with("https://h.example:8545/") && kept[3].ends_with(LEFT_OUT));
        assert_eq!(kept[4], "http://127.0.0.1:8545");
        let named = "a=https://h.example/v2/PATHKEY".to_owned();
        let kept = without_secrets([named.clone()].into_iter(), &[named]);
        assert_eq!(kept, [format!("a=https://h.example/{LEFT_OUT}")]);
    }

    #[test]
    fn a_socket_holds_no_key_either() {
        let urls = texts(&["https://h.example/v2/KEY", "wss://h.example/ws/KEY"]);
        let one = ["reach", "--ws", &urls[1], &urls[0]];
        let other = ["reach", &urls[0], "--ws=wss://h.example/ws/KEY"];
        let kept = |words: &[&str]| without_secrets(texts(words).into_iter(), &urls).join(" ");
        assert_eq!(kept(&one), "reach --ws wss://h.example/… https://h.example/…");
        assert_eq!(kept(&other), "reach https://h.example/… --ws=wss://h.example/…");
        assert!(is_socket(&urls[1]) && !is_socket(&urls[0]) && !is_socket("a=https://h.example"));
    }

    #[test]
    fn a_header_keeps_its_name_and_a_proxy_its_place() {
        let args = EndpointArgs {
            headers: texts(&["x-key: SECRET", "@keys/file"]),
            proxy: Some("http://me:SECRET@p.example:1".to_owned()),
            ..EndpointArgs::default()
        };
        for (word, expected) in [
            ("x-key: SECRET", "x-key: …"),
            ("--header=x-key: SECRET", "--header=x-key: …"),
            ("@keys/file", "@keys/file"),
            ("--header=@keys/file", "--header=@keys/file"),
            ("http://me:SECRET@p.example:1", "http://p.example:1/…"),
            ("--proxy=http://me:SECRET@p.example:1", "--proxy=http://p.example:1/…"),
            ("http://h.example", "http://h.example"),
        ] {
            assert_eq!(without_header(word.to_owned(), &args), expected);
        }
    }

    #[test]
    fn what_is_not_stored_is_given_again() {
        let told = |outcome: Result<Vec<String>, CommandError>| {
            outcome.map_or_else(CommandError::text, |found| found.join(" | "))
        };
        let kept = texts(&["x-key: …", "@file"]);
        let again = "header `x-key`: give it again with `--header`: its value is not stored";
        assert_eq!(told(headers(&kept, &[])), again);
        assert_eq!(told(headers(&kept, &texts(&["X-Key: S"]))), "X-Key: S | @file");
        let other = told(headers(&kept, &texts(&["x-key: S", "y: S"])));
        assert_eq!(other, "header `y` was not sent in this run");
        let proxy = |kept: Option<&str>, given: Option<&str>| {
            let found = whole_proxy(kept.map(str::to_owned), given.map(str::to_owned));
            told(found.map(|it| it.into_iter().collect()))
        };
        assert_eq!(proxy(Some("http://p:1"), None), "http://p:1");
        assert_eq!(proxy(Some("http://p:1/…"), Some("http://u:p@p:1")), "http://u:p@p:1");
        assert!(proxy(Some("http://p:1/…"), None).starts_with("the proxy of the run: give it"));
        assert_eq!(proxy(None, Some("http://p:1")), "the run went through no proxy");
    }

    #[test]
    fn urls_are_found_by_their_hosts() {
        let (kept, key) = ("https://a.example/…", "https://a.example/v2/k");
        check(&["http://h:1"], &[], Ok(&["http://h:1"]));
        check(&[kept, "http://h:1"], &[key], Ok(&[key, "http://h:1"]));
        check(&["x=https://a.example/…"], &[key], Ok(&["x=https://a.example/v2/k"]));
        check(&[kept, kept], &[key, "https://a.example/2"], Ok(&[key, "https://a.example/2"]));
        let again = "`a.example`: give its URL again: path and query are not stored";
        check(&[kept], &[], Err(again));
        check(&[kept], &["https://b.example/k"], Err(again));
        check(&["http://h:1"], &["http://h:2"], Err("`h:2` was not measured in this run"));
    }
}
