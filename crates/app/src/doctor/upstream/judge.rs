//! What the facts of upstreams mean: each by itself, then those of one chain beside each other.
//!
//! A step that failed is told, and those behind it are not: they could not be seen.

use std::net::SocketAddr;

use wellhead_net::{CertificateFault, EndpointReport};
use wellhead_server::CertificateSummary;
use wellhead_transport::{TransportError, TransportErrorKind};

use super::{ChainFacts, FeedFacts, NewestBlock, UpstreamAnswer, UpstreamFacts, UpstreamPlace};
use crate::doctor::diagnosis::{Diagnosis, HealthCheck};

/// A certificate of an upstream that ends sooner is about to be forgotten.
const CERTIFICATE_DAYS_MIN: u64 = 14;
const DAY: u64 = 86_400;
/// Addresses of one name that are shown.
const ADDRESSES_MAX: usize = 4;
/// Without a bound in the settings, wellhead leaves an upstream out that lags by this many blocks and by
/// [`LAG_SECONDS`].
const LAG_BLOCKS_MIN: u64 = 3;
const LAG_SECONDS: u64 = 20;
/// A chain whose newest block is older has probably stopped; no public chain is slower for long.
const STALE_SECONDS: u64 = 300;

/// Of one upstream by itself.
pub(crate) fn judge(facts: &UpstreamFacts, now_unix: u64) -> Vec<Diagnosis> {
    let UpstreamFacts { place, report, chain, feed } = facts;
    let report = match report {
        Ok(report) => report,
        Err(why) => {
            let advice = "correct its settings; `wellhead check` shows them";
            return vec![place.check("settings").failed(why, advice)];
        }
    };
    let mut found = connection(place, report, now_unix);
    if let Some(chain) = chain {
        found.extend(answers(place, chain));
    }
    if let Some(feed) = feed {
        found.push(judge_feed(place, feed));
    }
    found
}

/// DNS, TCP and TLS.
fn connection(place: &UpstreamPlace, report: &EndpointReport, now_unix: u64) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    if report.addresses.is_empty() {
        let why = report.failure.as_ref().map(|failure| failure.detail.clone());
        let advice = "correct the host of `url`, or ask the name server: `getent hosts NAME`";
        found.push(place.check("dns").failed(why.unwrap_or_default(), advice));
        return found;
    }
    if place.is_named {
        found.push(place.check("dns").well(addresses(&report.addresses)));
    }
    let Some(peer) = report.peer else {
        let reason = report.failure.as_ref().map(TransportError::to_string).unwrap_or_default();
        let reason = format!("{}: {reason}", addresses(&report.addresses));
        found.push(place.check("connect").failed(reason, connect_advice(report)));
        return found;
    };
    let reason = format!("{peer} after {} ms", report.took.as_millis());
    found.push(place.check("connect").well(reason));
    found.extend(certificate(place, report, now_unix));
    found
}

fn addresses(all: &[SocketAddr]) -> String {
    let shown: Vec<_> = all.iter().take(ADDRESSES_MAX).map(SocketAddr::to_string).collect();
    match all.len().checked_sub(ADDRESSES_MAX) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{}, +{more}", shown.join(", ")),
    }
}

fn connect_advice(report: &EndpointReport) -> &'static str {
    match report.failure.as_ref().map(|failure| failure.kind) {
        Some(TransportErrorKind::ConnectTimeout) => {
            "nothing answers: see firewalls and routes, and whether the port of `url` is right"
        }
        _ => {
            "start the node, or correct the port of `url`; geth needs `--http.addr` for other machines"
        }
    }
}

/// What it showed under TLS; nothing in plain text.
fn certificate(place: &UpstreamPlace, report: &EndpointReport, now_unix: u64) -> Option<Diagnosis> {
    let check = place.check("tls");
    let failure = report.failure.as_ref();
    let shown = match (&report.certificate, failure) {
        (Some(shown), _) => shown,
        (None, Some(failure)) => {
            let reason = failure.to_string();
            let advice = "see whether the port speaks TLS at all: `http://` instead of `https://`?";
            return Some(check.failed(reason, advice));
        }
        (None, None) => return None,
    };
    let summary = CertificateSummary::read(&shown.der);
    let issuer = summary.as_ref().and_then(|it| it.issuer.clone());
    let issuer = issuer.as_deref().unwrap_or("an issuer without a name");
    let end = summary.as_ref().and_then(|it| it.not_after).map(|end| end.as_secs());
    let days = end.map(|end| end.abs_diff(now_unix) / DAY);
    let of = format!("certificate of {issuer}");
    let failed = |reason: String, advice: &str| Some(check.failed(reason, advice));
    match shown.fault {
        Some(CertificateFault::Expired) => {
            let since = days.map_or(String::new(), |days| format!(" {days} days ago"));
            let advice = "its operator has to renew it; until then use another upstream";
            failed(format!("{of} expired{since}"), advice)
        }
        Some(CertificateFault::NotYetValid) => failed(
            format!("{of} is not valid yet"),
            "see whether the clock of this machine is right",
        ),
        Some(CertificateFault::UnknownIssuer) if place.has_own_authorities => failed(
            format!("{of} is not by an authority of `ca_file`"),
            "put the certificate of its authority into `ca_file`; `ca_file_adds: true` keeps the public ones",
        ),
        Some(CertificateFault::UnknownIssuer) => failed(
            format!("{of} is by no public authority"),
            "for a private authority set `ca_file` of this upstream to its certificate",
        ),
        Some(CertificateFault::OtherName) => {
            failed(format!("{of} is for another name"), "use the name of the certificate in `url`")
        }
        Some(CertificateFault::Other) => {
            let reason = failure.map(TransportError::to_string).unwrap_or_default();
            failed(format!("{of} is refused: {reason}"), "its operator has to replace it")
        }
        None => match failure {
            Some(failure) => failed(failure.to_string(), "see whether a proxy stands between"),
            None => Some(valid(place, &of, end, now_unix)),
        },
    }
}

fn valid(place: &UpstreamPlace, of: &str, end: Option<u64>, now_unix: u64) -> Diagnosis {
    let check = place.check("tls");
    let private = if place.has_own_authorities { " (`ca_file`)" } else { "" };
    let Some(days) = end.map(|end| end.saturating_sub(now_unix) / DAY) else {
        return check.well(format!("{of}{private}"));
    };
    let reason = format!("{of}{private}, valid for {days} days more");
    match days < CERTIFICATE_DAYS_MIN {
        true => check.doubtful(reason, "its operator has to renew it"),
        false => check.well(reason),
    }
}

/// What it says of its chain. One that does not even tell its chain id is not asked further.
fn answers(place: &UpstreamPlace, facts: &ChainFacts) -> Vec<Diagnosis> {
    let id = match &facts.chain_id {
        Ok(id) => *id,
        Err(why) => return vec![place.check("chain id").failed(why, call_advice(why))],
    };
    let mut found = vec![chain_id(place, place.check("chain id"), id)];
    found.push(match &facts.version {
        Ok(version) => place.check("version").well(version),
        // Many providers do not tell it, and nothing needs it.
        Err(why) => place.check("version").well(format!("not told: {why}")),
    });
    found.push(match &facts.is_syncing {
        Ok(false) => place.check("syncing").well("no"),
        Ok(true) => place.check("syncing").doubtful(
            "it is still syncing, and gets no calls until it is done",
            "wait; see the log of the node",
        ),
        Err(why) => place.check("syncing").doubtful(
            why,
            "take `syncing` out of `checks.calls` if it does not have `eth_syncing`",
        ),
    });
    if let Err(why) = &facts.head {
        found.push(place.check("head").failed(why, call_advice(why)));
    }
    found
}

fn chain_id(place: &UpstreamPlace, check: HealthCheck<'_>, id: u64) -> Diagnosis {
    match place.expected_id {
        Some(expected) if expected != id => check.failed(
            format!("it serves chain {id}, and the config says {expected}"),
            "correct `url`, or move the upstream to its own chain",
        ),
        Some(_) | None => check.well(id.to_string()),
    }
}

/// What to do about a call that failed, by the status in its text.
fn call_advice(why: &str) -> &'static str {
    match why.get(..8) {
        Some("HTTP 401" | "HTTP 403") => {
            "see the key in `url`, `auth` or `headers`, and the provider's list of allowed addresses"
        }
        Some("HTTP 402") => "see the account at the provider: it may have run out of credits",
        Some("HTTP 404") => "correct the path of `url`",
        Some("HTTP 429") => "the provider limits the rate: set `budget`, or try again later",
        Some(status) if status.starts_with("HTTP 5") => {
            "it is in trouble: see its status page, or the log of the node"
        }
        Some(_) | None => "see whether `url` leads to JSON-RPC of an Ethereum node",
    }
}

fn judge_feed(place: &UpstreamPlace, facts: &FeedFacts) -> Diagnosis {
    let check = place.check("websocket");
    if let Some(failure) = &facts.report.failure {
        let advice = "correct `ws`, or take it out: the upstream is polled then; geth needs `--ws`";
        return check.failed(failure.to_string(), advice);
    }
    match (&facts.chain_id, &facts.subscribed) {
        (Err(why), _) => check.failed(why, "see whether `ws` leads to JSON-RPC over WebSocket"),
        (Ok(id), _) if place.expected_id.is_some_and(|expected| expected != *id) => {
            chain_id(place, check, *id)
        }
        (Ok(id), Ok(())) => check.well(format!("chain {id}; takes subscriptions to new blocks")),
        (Ok(id), Err(why)) => check.doubtful(
            format!("chain {id}; refuses `eth_subscribe`: {why}"),
            "take `ws` out: the upstream is polled in any case",
        ),
    }
}

/// Of the upstreams of one chain beside each other: heads and lag, ids that differ, and whether one can serve.
pub(crate) fn judge_chain(
    name: &str,
    upstreams: &[&UpstreamFacts],
    now_unix: u64,
) -> Vec<Diagnosis> {
    let chain_of = |facts: &&UpstreamFacts| facts.chain.clone();
    let heads = upstreams.iter().filter_map(|facts| {
        let chain = chain_of(facts)?;
        let is_right = facts.place.expected_id.is_none_or(|id| chain.chain_id == Ok(id));
        is_right.then_some(())?;
        Some((&facts.place, chain.head.ok()?))
    });
    let heads: Vec<(&UpstreamPlace, NewestBlock)> = heads.collect();
    let best = heads.iter().map(|(_, block)| *block).max_by_key(|block| block.number);
    let mut found = Vec::new();
    if let Some(best) = best {
        found.extend(heads.iter().map(|(place, block)| lag(place, *block, best)));
    }
    let ids: Vec<UpstreamAnswer<u64>> =
        upstreams.iter().filter_map(|it| chain_of(it).map(|chain| chain.chain_id)).collect();
    let mut ids: Vec<u64> = ids.into_iter().flatten().collect();
    ids.sort_unstable();
    ids.dedup();
    let is_expected = upstreams.iter().any(|facts| facts.place.expected_id.is_some());
    if ids.len() > 1 && !is_expected {
        let shown: Vec<_> = ids.iter().map(u64::to_string).collect();
        let reason = format!("its upstreams serve different chains: {}", shown.join(", "));
        let advice = "set `id` of the chain, and move the others to chains of their own";
        found.push(HealthCheck::new(name, "chain id").failed(reason, advice));
    }
    found.push(state_of(name, heads.len(), upstreams.len(), best, now_unix));
    found
}

fn lag(place: &UpstreamPlace, block: NewestBlock, best: NewestBlock) -> Diagnosis {
    let (blocks, seconds) =
        (best.number.saturating_sub(block.number), best.timestamp.saturating_sub(block.timestamp));
    let is_late = match place.lag_blocks_max {
        Some(most) => blocks > most,
        None => blocks > LAG_BLOCKS_MIN && seconds > LAG_SECONDS,
    };
    let number = block.number;
    match (is_late, blocks) {
        (true, _) => place.check("head").doubtful(
            format!(
                "block {number}, {blocks} blocks and {seconds} s behind the best: it gets no calls"
            ),
            "see its peers and its disk; or raise `lag_blocks_max`",
        ),
        (false, 0) => place.check("head").well(format!("block {number}")),
        (false, _) => place.check("head").well(format!("block {number}, {blocks} behind the best")),
    }
}

/// Whether calls of the chain can be answered, and whether it moves.
fn state_of(
    name: &str,
    well: usize,
    count: usize,
    best: Option<NewestBlock>,
    now_unix: u64,
) -> Diagnosis {
    let check = HealthCheck::new(name, "chain");
    let Some(best) = best else {
        let reason = format!("none of its {count} upstreams can serve");
        return check.failed(reason, "see their lines");
    };
    if best.number == 0 {
        let reason = format!("{well} of {count} upstreams can serve; none has a block yet");
        let advice = "a new test chain makes its first block with its first transaction";
        return check.doubtful(reason, advice);
    }
    let age = now_unix.saturating_sub(best.timestamp);
    let reason =
        format!("{well} of {count} upstreams can serve; block {}, {age} s old", best.number);
    match age > STALE_SECONDS {
        true => check.doubtful(
            reason,
            "either the chain has stopped, or all upstreams are stuck, or this clock is ahead",
        ),
        false => check.well(reason),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wellhead_net::ShownCertificate;
    use wellhead_transport::Sent;

    use super::*;
    use crate::doctor::diagnosis::tests::shown;

    const NOW: u64 = 1_795_000_000;

    fn place(name: &str, expected_id: Option<u64>) -> UpstreamPlace {
        let name = name.to_owned();
        UpstreamPlace {
            name,
            chain: 0,
            expected_id,
            lag_blocks_max: None,
            has_own_authorities: false,
            is_named: false,
        }
    }

    fn report() -> EndpointReport {
        let address = SocketAddr::from(([10, 0, 0, 7], 8545));
        let took = Duration::from_millis(3);
        EndpointReport { addresses: vec![address], peer: Some(address), took, ..Default::default() }
    }

    fn failing(kind: TransportErrorKind, detail: &str) -> EndpointReport {
        let failure = Some(TransportError::new(kind, Sent::No, detail));
        EndpointReport { peer: None, failure, ..report() }
    }

    fn chain(id: u64, number: u64, age: u64) -> ChainFacts {
        ChainFacts {
            chain_id: Ok(id),
            version: Ok("Geth/v1".to_owned()),
            is_syncing: Ok(false),
            head: Ok(NewestBlock { number, timestamp: NOW - age }),
        }
    }

    fn facts(
        place: UpstreamPlace,
        report: EndpointReport,
        chain: Option<ChainFacts>,
    ) -> UpstreamFacts {
        UpstreamFacts { place, report: Ok(report), chain, feed: None }
    }

    #[track_caller]
    fn check_all(found: &[Diagnosis], expected: &[&str]) {
        let found = shown(found);
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "`{found}` is not `{expected}`");
        }
    }

    #[track_caller]
    fn check(facts: &UpstreamFacts, is_named: bool, expected: &[&str]) {
        let place = UpstreamPlace { is_named, ..facts.place.clone() };
        check_all(&judge(&UpstreamFacts { place, ..facts.clone() }, NOW), expected);
    }

    #[test]
    fn steps_of_a_connection() {
        use TransportErrorKind::{Connect, ConnectTimeout, Dns};
        let at = |report| facts(place("eth/a", Some(1)), report, None);
        check(
            &at(report()),
            true,
            &["ok dns: 10.0.0.7:8545", "ok connect: 10.0.0.7:8545 after 3 ms"],
        );
        check(&at(report()), false, &["ok connect: "]);
        let unknown = EndpointReport { addresses: Vec::new(), ..failing(Dns, "no such name") };
        check(&at(unknown), true, &["FAIL dns: no such name -> correct the host"]);
        check(
            &at(failing(Connect, "connection refused")),
            false,
            &[
                "FAIL connect: 10.0.0.7:8545: could not connect: connection refused -> start the node",
            ],
        );
        check(
            &at(failing(ConnectTimeout, "no TCP connection yet")),
            false,
            &[
                "FAIL connect: 10.0.0.7:8545: connecting took too long: no TCP connection yet -> nothing answers",
            ],
        );
        let wrong = UpstreamFacts { report: Err("`ca_file`: x".to_owned()), ..at(report()) };
        check(&wrong, false, &["FAIL settings: `ca_file`: x"]);
    }

    #[test]
    fn certificates_by_fault_and_days() {
        let made = |not_after| {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(rcgen::DnType::CommonName, "Example R11");
            params.not_after = not_after;
            let key = rcgen::KeyPair::generate().expect("a key");
            params.self_signed(&key).expect("a certificate").der().to_vec()
        };
        // 2026-11-18 and later.
        let (long, soon, past) = (
            made(rcgen::date_time_ymd(2027, 11, 18)),
            made(rcgen::date_time_ymd(2026, 11, 20)),
            made(rcgen::date_time_ymd(2026, 11, 1)),
        );
        let check = |der: &[u8], fault, own, state: &str, expected: &str| {
            let certificate = Some(ShownCertificate { der: der.to_vec(), fault });
            let place = UpstreamPlace { has_own_authorities: own, ..place("eth/a", None) };
            let failed = fault.map(|_| TransportError::new(TransportErrorKind::Tls, Sent::No, "x"));
            let report = EndpointReport { certificate, failure: failed, ..report() };
            let found = shown(&connection(&place, &report, NOW)).remove(1);
            let expected = format!("{state} tls: certificate of Example R11{expected}");
            assert!(found.starts_with(&expected), "`{found}` is not `{expected}`");
        };
        check(&long, None, false, "ok", ", valid for 36");
        check(&long, None, true, "ok", " (`ca_file`), valid");
        check(&soon, None, false, "warn", ", valid for ");
        use CertificateFault::{Expired, NotYetValid, Other, OtherName, UnknownIssuer};
        let refused = |der, fault, own, expected| check(der, Some(fault), own, "FAIL", expected);
        refused(&past, Expired, false, " expired 1");
        refused(&long, NotYetValid, false, " is not valid yet -> see whether the clock");
        refused(&long, UnknownIssuer, false, " is by no public authority -> for a private");
        refused(&long, UnknownIssuer, true, " is not by an authority of `ca_file`");
        refused(&long, OtherName, false, " is for another name");
        refused(&long, Other, false, " is refused");
        let plain = EndpointReport {
            failure: Some(TransportError::new(TransportErrorKind::Tls, Sent::No, "no TLS")),
            ..report()
        };
        let found = shown(&connection(&place("eth/a", None), &plain, NOW));
        assert!(
            found[1].starts_with("FAIL tls: TLS handshake failed: no TLS -> see whether the port")
        );
    }

    #[test]
    fn answers_of_good_and_bad_upstreams() {
        let of = |chain: ChainFacts| facts(place("eth/a", Some(1)), report(), Some(chain));
        let well = chain(1, 100, 5);
        check(
            &of(well.clone()),
            false,
            &["ok connect", "ok chain id: 1", "ok version: Geth/v1", "ok syncing: no"],
        );
        check(
            &of(chain(5, 100, 5)),
            false,
            &["ok connect", "FAIL chain id: it serves chain 5, and the config says 1", "ok", "ok"],
        );
        let syncing = ChainFacts { is_syncing: Ok(true), ..well.clone() };
        check(&of(syncing), false, &["ok", "ok", "ok", "warn syncing: it is still syncing"]);
        let bare = ChainFacts {
            version: Err("no such method".to_owned()),
            is_syncing: Err("no such method".to_owned()),
            head: Err("HTTP 503: away".to_owned()),
            ..well.clone()
        };
        check(
            &of(bare),
            false,
            &[
                "ok",
                "ok",
                "ok version: not told",
                "warn syncing: no such",
                "FAIL head: HTTP 503: away -> it is in trouble",
            ],
        );
        for (why, advice) in [
            ("HTTP 401: bad key", "see the key"),
            ("HTTP 402: pay", "see the account"),
            ("HTTP 404: it answers `x`", "correct the path"),
            ("HTTP 429: slow down", "the provider limits"),
            ("HTTP 502: it answers `x`", "it is in trouble"),
            ("it answers `hello`", "see whether `url` leads"),
        ] {
            let refused = ChainFacts { chain_id: Err(why.to_owned()), ..well.clone() };
            check(
                &of(refused),
                false,
                &["ok connect", &format!("FAIL chain id: {why} -> {advice}")],
            );
        }
    }

    #[test]
    fn feeds() {
        let feed = |chain_id, subscribed| {
            let feed = Some(FeedFacts { report: report(), chain_id, subscribed });
            UpstreamFacts { feed, ..facts(place("eth/a", Some(1)), report(), None) }
        };
        let no = || "not found".to_owned();
        check(&feed(Ok(1), Ok(())), false, &["ok", "ok websocket: chain 1; takes subscriptions"]);
        check(&feed(Ok(5), Ok(())), false, &["ok", "FAIL websocket: it serves chain 5"]);
        check(&feed(Ok(1), Err(no())), false, &["ok", "warn websocket: chain 1; refuses"]);
        check(&feed(Err(no()), Err(no())), false, &["ok", "FAIL websocket: not found"]);
        let dead = FeedFacts {
            report: failing(TransportErrorKind::Connect, "connection refused"),
            chain_id: Err(String::new()),
            subscribed: Err(String::new()),
        };
        let dead =
            UpstreamFacts { feed: Some(dead), ..facts(place("eth/a", None), report(), None) };
        check(
            &dead,
            false,
            &["ok", "FAIL websocket: could not connect: connection refused -> correct `ws`"],
        );
    }

    #[track_caller]
    fn check_chain(id: Option<u64>, upstreams: &[(&str, Option<ChainFacts>)], expected: &[&str]) {
        let all =
            upstreams.iter().map(|(name, chain)| facts(place(name, id), report(), chain.clone()));
        let all: Vec<_> = all.collect();
        check_all(&judge_chain("eth", &all.iter().collect::<Vec<_>>(), NOW), expected);
    }

    #[test]
    fn upstreams_of_a_chain_are_compared() {
        let at = |number, age| Some(chain(1, number, age));
        check_chain(
            Some(1),
            &[("a", at(100, 5)), ("b", at(98, 29)), ("c", at(50, 600))],
            &[
                "ok head: block 100",
                "ok head: block 98, 2 behind the best",
                "warn head: block 50, 50 blocks and 595 s behind the best",
                "ok chain: 3 of 3 upstreams can serve; block 100, 5 s old",
            ],
        );
        // One on the wrong chain neither counts nor is the best.
        check_chain(
            Some(1),
            &[("a", at(100, 5)), ("b", Some(chain(5, 9000, 1)))],
            &["ok head: block 100", "ok chain: 1 of 2 upstreams"],
        );
        check_chain(
            None,
            &[("a", at(100, 5)), ("b", Some(chain(5, 100, 5)))],
            &["ok", "ok", "FAIL chain id: its upstreams serve different chains: 1, 5", "ok chain"],
        );
        check_chain(Some(1), &[("a", None)], &["FAIL chain: none of its 1 upstreams can serve"]);
        check_chain(
            Some(1),
            &[("a", at(0, NOW))],
            &["ok head", "warn chain: 1 of 1 upstreams can serve; none has"],
        );
        check_chain(Some(1), &[("a", at(100, 4000))], &["ok head", "warn chain: 1 of 1"]);
    }

    #[test]
    fn a_bound_of_the_settings_decides_on_lag() {
        let block = |number, timestamp| NewestBlock { number, timestamp };
        let bound = UpstreamPlace { lag_blocks_max: Some(1), ..place("a", None) };
        let found = lag(&bound, block(98, NOW), block(100, NOW));
        assert!(shown(&[found])[0].starts_with("warn head"));
        // Quick blocks: many of them are no time.
        let found = lag(&place("a", None), block(90, NOW - 3), block(100, NOW));
        assert!(shown(&[found])[0].starts_with("ok head"));
    }
}
