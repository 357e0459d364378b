//! `wellhead doctor`: what is wrong here, and what to do about it.
//!
//! Every check has facts, which are gathered side by side within a time, and a judgement, which is a plain
//! function of them: `machine` and `folder` of this machine, `listener` of the addresses of wellhead,
//! `upstream` of upstreams, `diagnosis` how what was found is told. Nothing is changed and no secret is told;
//! at each upstream it costs five calls, and two over WebSocket.

mod diagnosis;
mod folder;
mod listener;
mod machine;
mod upstream;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout_at};
use wellhead_net::Resolver;
use wellhead_store::{StoreReport, look_at};
use wellhead_telemetry::{SecretUrl, clock};

use crate::cli::Doctor;
use crate::config::{self, Admin, Loaded, Overrides, ProblemReport, Settings, Severity};
use crate::serve;
use crate::terminal::{CommandError, environment, say};
use diagnosis::{Diagnosis, HealthCheck};
use folder::FolderFacts;
use listener::{PortState, RunningFacts};
use machine::{ClockReading, FileDemand, MemoryFacts, TimeSync};
use upstream::{UpstreamFacts, UpstreamPlace, judge};

/// Upstreams that are looked at at one time: each takes up to three connections and a thread for its name.
const UPSTREAMS_AT_ONCE: usize = 64;

const CONFIG: HealthCheck<'_> = HealthCheck::new("config", "config");

/// Checks everything, prints what was found, and fails if something does not work.
pub(crate) fn command(arguments: &Doctor) -> Result<(), CommandError> {
    let (mut found, settings) = read_config(arguments);
    if let Some(settings) = settings {
        let runtime = serve::runtime().map_err(CommandError::system)?;
        found.extend(runtime.block_on(check(&settings, arguments.timeout)));
        // A name server that hangs would else hold it up.
        runtime.shutdown_background();
    }
    match arguments.json {
        true => say(&diagnosis::json(&found).to_string()),
        false => say(&diagnosis::lines(&found)),
    }
    match diagnosis::has_failed(&found) {
        true => Err(CommandError::Unwell),
        false => Ok(()),
    }
}

/// The config, or the URLs in its place; and what is to be said of it.
fn read_config(arguments: &Doctor) -> (Vec<Diagnosis>, Option<Settings>) {
    let (listen, admin) = (arguments.listen, arguments.admin.clone());
    if !arguments.urls.is_empty() {
        return match Settings::from_urls(&arguments.urls, listen, admin) {
            Ok((settings, warnings)) => {
                (config_lines("the command line", &settings, &warnings), Some(settings))
            }
            Err(report) => (problems(&report), None),
        };
    }
    let path = match config::find(arguments.config.as_deref()) {
        Ok(path) => path,
        Err(error) => {
            let told = error.to_string();
            let reason = told.lines().next().unwrap_or_default().to_owned();
            let advice = "name one with `-c FILE`, or give the URLs of upstreams";
            return (vec![CONFIG.failed(reason, advice)], None);
        }
    };
    let overrides = Overrides { listen, admin, ..Overrides::default() };
    match config::load(&path, &environment, overrides) {
        Ok(Loaded { settings, warnings }) => {
            (config_lines(&path.display().to_string(), &settings, &warnings), Some(settings))
        }
        Err(report) => (problems(&report), None),
    }
}

fn config_lines(name: &str, settings: &Settings, warnings: &ProblemReport) -> Vec<Diagnosis> {
    let chains = settings.chains.iter().count();
    let upstreams: usize = settings.chains.iter().map(|(_, chain)| chain.upstreams.len()).sum();
    let count = |number, one: &str| format!("{number} {one}{}", if number == 1 { "" } else { "s" });
    let reason = format!("{name}: {}, {}", count(chains, "chain"), count(upstreams, "upstream"));
    let mut found = vec![CONFIG.well(reason)];
    found.extend(problems(warnings));
    found
}

/// A line for each problem; excerpts are for `wellhead check`.
fn problems(report: &ProblemReport) -> Vec<Diagnosis> {
    let told = report.problems().iter().map(|problem| {
        let place = report.line_and_column(problem).map(|(line, _)| format!("line {line}: "));
        let reason = format!("{}{}", place.unwrap_or_default(), problem.message);
        let advice = match problem.hints.is_empty() {
            true => "see `wellhead check`".to_owned(),
            false => problem.hints.join("; "),
        };
        match problem.severity {
            Severity::Error => CONFIG.failed(reason, advice),
            Severity::Warning => CONFIG.doubtful(reason, advice),
        }
    });
    told.collect()
}

/// All checks of these settings, side by side.
async fn check(settings: &Settings, timeout: Duration) -> Vec<Diagnosis> {
    let now_unix = clock::unix_seconds();
    let (own, folders, stores, upstreams) = tokio::join!(
        own_places(settings, timeout),
        folders(settings, timeout),
        stores(settings, timeout),
        look_at_all(settings, timeout),
    );
    let mut found = vec![
        machine::judge_files(machine::open_files_max(), FileDemand::of(settings)),
        machine::judge_memory(MemoryFacts::read(), machine::memory_most(settings)),
        judge_clock(&upstreams, now_unix),
    ];
    found.extend(own);
    found.extend(listener::certificates(settings, now_unix));
    found.extend(folders);
    found.extend(stores);
    for (chain, (name, _)) in settings.chains.iter().enumerate() {
        let of_chain: Vec<_> = upstreams.iter().filter(|it| it.place.chain == chain).collect();
        for facts in &of_chain {
            found.extend(judge::judge(facts, now_unix));
        }
        found.extend(judge::judge_chain(name.as_ref(), &of_chain, now_unix));
    }
    found
}

/// By the dates of answers, and by the newest block of all.
fn judge_clock(upstreams: &[UpstreamFacts], now_unix: u64) -> Diagnosis {
    let reading = |facts: &UpstreamFacts| {
        let clock = facts.report.as_ref().ok()?.clock?;
        let unsure_seconds = clock.round_trip.as_secs();
        Some(ClockReading { ahead_seconds: clock.ahead_seconds, unsure_seconds })
    };
    let newest = upstreams.iter().filter_map(|facts| {
        let block = facts.chain.as_ref()?.head.as_ref().ok()?;
        i64::try_from(i128::from(block.timestamp) - i128::from(now_unix)).ok()
    });
    let readings = upstreams.iter().filter_map(reading).collect();
    machine::judge_clock(readings, newest.max(), TimeSync::read())
}

/// The addresses of wellhead itself.
async fn own_places(settings: &Settings, timeout: Duration) -> Vec<Diagnosis> {
    let (listen, admin) = (settings.listen, settings.admin.clone());
    let has_tls = settings.admin_access.tls.is_some();
    let look = move || {
        let running = RunningFacts::ask(&admin, timeout);
        let state = |admin: &Admin| match admin {
            Admin::At(address) => Some(listener::port_state(*address)),
            Admin::Unix(_) | Admin::Off => None,
        };
        let admin_state: Option<PortState> = state(&admin);
        let mut found =
            vec![listener::judge_listen(listen, listener::port_state(listen), running.as_ref())];
        if admin != Admin::Off {
            found.push(listener::judge_admin(&admin, admin_state, running.as_ref(), has_tls));
        }
        found
    };
    spawn_blocking(look).await.unwrap_or_default()
}

/// The folders that wellhead writes to. One on a disk that hangs is told, and not waited for.
async fn folders(settings: &Settings, timeout: Duration) -> Vec<Diagnosis> {
    let mut looks = Vec::new();
    for place in folder::places(settings) {
        let looked = place.clone();
        looks.push((place, spawn_blocking(move || FolderFacts::read(&looked))));
    }
    let deadline = Instant::now() + timeout;
    let mut found = Vec::new();
    for (place, look) in looks {
        found.push(match timeout_at(deadline, look).await {
            Ok(Ok(facts)) => folder::judge(&place, &facts),
            Ok(Err(_)) | Err(_) => folder::hangs(&place),
        });
    }
    found
}

/// Redis or Valkey, where the settings name one.
async fn stores(settings: &Settings, timeout: Duration) -> Vec<Diagnosis> {
    let cache = settings.cache.redis.as_ref().filter(|_| settings.cache.enabled);
    let look = |setting: &'static str, url: Option<&SecretUrl>| {
        let url = url.cloned();
        async move {
            let url = url?;
            let looked = look_at(&url, timeout).await.map_err(|it| it.to_string());
            Some(judge_store(setting, &url.authority(), looked))
        }
    };
    let (cache, shared) = tokio::join!(
        look("cache.redis", cache.map(|redis| &redis.url)),
        look("shared.redis", settings.shared.as_ref().map(|shared| &shared.redis)),
    );
    cache.into_iter().chain(shared).collect()
}

fn judge_store(setting: &str, place: &str, looked: Result<StoreReport, String>) -> Diagnosis {
    let check = HealthCheck::new(setting, "store");
    match looked {
        Err(why) => check.failed(
            format!("{place}: {why}"),
            "start it, or correct host, port and password; wellhead serves on without it",
        ),
        Ok(StoreReport { software, version, ping }) => {
            let named = match software.is_empty() {
                true => "a server that hides its version".to_owned(),
                false => format!("{software} {version}"),
            };
            let reason = format!("{place}: {named}, ping {:.1} ms", ping.as_secs_f64() * 1e3);
            let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
            match major {
                Some(major) if major < STORE_MAJOR_MIN => check.doubtful(
                    reason,
                    format!("install a Redis from {STORE_MAJOR_MIN} on, or a Valkey"),
                ),
                Some(_) | None => check.well(reason),
            }
        }
    }
}

/// Messages are pushed over RESP3, which older ones do not speak.
const STORE_MAJOR_MIN: u32 = 6;

/// All upstreams in their order.
async fn look_at_all(settings: &Settings, timeout: Duration) -> Vec<UpstreamFacts> {
    let resolver = Arc::new(Resolver::new());
    let turns = Arc::new(Semaphore::new(UPSTREAMS_AT_ONCE));
    let mut looks = JoinSet::new();
    for (chain, (name, of_chain)) in settings.chains.iter().enumerate() {
        for upstream in &of_chain.upstreams {
            let place = UpstreamPlace {
                name: format!("{}/{}", name.as_ref(), upstream.id.as_str()),
                chain,
                expected_id: of_chain.id.map(|id| id.0),
                lag_blocks_max: upstream.lag_blocks_max.or(of_chain.lag_blocks_max),
                has_own_authorities: upstream.ca_file.is_some(),
                is_named: upstream::is_named(&upstream.url),
            };
            let (upstream, resolver) = (upstream.clone(), Arc::clone(&resolver));
            let (turns, number) = (Arc::clone(&turns), looks.len());
            looks.spawn(async move {
                let _turn = turns.acquire().await;
                let deadline = Instant::now() + timeout;
                (number, upstream::look(place, &upstream, resolver, deadline).await)
            });
        }
    }
    let mut all = looks.join_all().await;
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, facts)| facts).collect()
}

#[cfg(test)]
mod tests {
    use super::diagnosis::tests::shown;
    use super::*;

    #[test]
    fn stores_are_told_with_their_version() {
        let report = |software: &str, version: &str| {
            let (software, version) = (software.to_owned(), version.to_owned());
            Ok(StoreReport { software, version, ping: Duration::from_micros(300) })
        };
        for (looked, expected) in [
            (report("valkey", "8.1.8"), "ok store: redis:6379: valkey 8.1.8, ping 0.3 ms"),
            (
                report("redis", "5.0.14"),
                "warn store: redis:6379: redis 5.0.14, ping 0.3 ms -> install",
            ),
            (report("", ""), "ok store: redis:6379: a server that hides its version"),
            (Err("Redis refuses the password".to_owned()), "FAIL store: redis:6379: Redis refuses"),
        ] {
            let found = shown(&[judge_store("cache.redis", "redis:6379", looked)]).remove(0);
            assert!(found.starts_with(expected), "{found}");
        }
    }

    #[test]
    fn problems_of_a_config_have_a_line_each() {
        let wrong = "lisen: x\nchains:\n  a:\n    id: nonsense\n    upstreams: []\n";
        let report = config::parse("c", wrong, &|_| None, Overrides::default()).expect_err("wrong");
        let found = shown(&problems(&report));
        assert!(found.len() >= 2, "{found:?}");
        assert!(found.iter().all(|it| it.starts_with("FAIL config: line ")), "{found:?}");
    }
}
