//! Profiles that upstreams name: what is taken from them, and what is told when they are wrong.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use wellhead_app::config::{self, Loaded, Overrides, ProblemReport};

const PROFILE: &str = r#"measured: "2026-11-22 10:15"
upstreams:
  - host: eth.example
    http: "1.1"
    connections_max: 60
    connection: { streams_max: 93, requests_max: 900, idle: 48s }
    budget: { calls_per_second: 125, calls_window: 10s, calls_burst: 1000, in_flight: 40 }
    history: { state: 128, range_max: 10_000 }
    methods: { deny: [debug_traceCall] }
  - host: "other.example:8545"
    budget: { credits_per_second: 500 }
"#;

fn load(dir: &Path, upstream: &str) -> Result<Loaded, ProblemReport> {
    let text = format!(
        "chains:\n  a:\n    upstreams:\n      - url: https://eth.example/v2/k\n{upstream}\nworkers: 4\n"
    );
    let file = dir.join("wellhead.yaml");
    std::fs::write(&file, text).expect("a file");
    config::load(&file, &|_| None, Overrides::default())
}

fn folder(profile: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("profiles")).expect("a directory");
    std::fs::write(dir.path().join("profiles/p.yaml"), profile).expect("a file");
    dir
}

const NAMED: &str = "        profile: profiles/p.yaml\n";

fn upstream(loaded: &Loaded) -> &config::Upstream {
    &loaded.settings.chains.0[0].1.upstreams[0]
}

#[test]
fn what_was_measured_counts_where_nothing_is_said() {
    let dir = folder(PROFILE);
    let loaded = load(dir.path(), NAMED).unwrap_or_else(|report| panic!("{report}"));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    let found = upstream(&loaded);
    let same = "
        http: \"1.1\"
        connections_max: 15
        connection: { streams_max: 93, requests_max: 900, idle: 48s }
        budget: { calls_per_second: 125, calls_window: 10s, calls_burst: 1000, in_flight: 40 }
        history: { state: 128, range_max: 10_000 }
        methods: { deny: [debug_traceCall] }
";
    let written = load(dir.path(), same).unwrap_or_else(|report| panic!("{report}"));
    let without = config::Upstream { profile: None, ..found.clone() };
    assert_eq!(&without, upstream(&written));
    let profile = found.profile.as_ref().expect("it is named");
    assert_eq!(profile.file, dir.path().join("profiles/p.yaml"));
    let keys = &profile.taken.as_ref().expect("it was read").keys;
    assert_eq!(keys.len(), 12, "{keys:?}");
    let measured = profile.measured("connection.idle").map(ToString::to_string);
    assert_eq!(measured.as_deref(), Some("2026-11-22 10:15"));
    assert_eq!(profile.measured("budget.credits_per_day"), None);
}

#[test]
fn what_the_upstream_says_itself_goes_first() {
    let dir = folder(PROFILE);
    let own = format!(
        "{NAMED}        http: auto\n        budget: {{ calls_per_second: 10 }}\n        \
         connection: {{ idle: 5s }}\n        methods: {{ deny: [] }}\n"
    );
    let loaded = load(dir.path(), &own).unwrap_or_else(|report| panic!("{report}"));
    let found = upstream(&loaded);
    assert_eq!(found.http, wellhead_net::HttpVersion::Auto);
    assert_eq!(found.methods.deny, []);
    let budget = &found.budget;
    // A window and a burst without their rate say nothing.
    let of_calls = (budget.calls_per_second, budget.calls_window, budget.calls_burst);
    assert_eq!(of_calls, (Some(10), None, None));
    assert_eq!(budget.in_flight, Some(40));
    assert_eq!(found.connection.streams_max, Some(93));
    assert_eq!(found.connection.idle, Some(std::time::Duration::from_secs(5)));
    let keys = &found.profile.as_ref().and_then(|it| it.taken.as_ref()).expect("read").keys;
    assert_eq!(
        *keys,
        [
            "connections_max",
            "connection.streams_max",
            "connection.requests_max",
            "budget.in_flight",
            "history.state",
            "history.range_max"
        ]
    );
}

#[test]
fn check_tells_what_was_taken_and_when() {
    let dir = folder(PROFILE);
    let loaded = load(dir.path(), NAMED).unwrap_or_else(|report| panic!("{report}"));
    let rendered = loaded.settings.render();
    let line = rendered.lines().find(|line| line.contains("profile: ")).expect("a line");
    assert!(
        line.contains("# measured 2026-11-22 10:15 UTC: http, connections_max, connection."),
        "{line}"
    );
    assert!(rendered.contains("calls_per_second: 125\n"), "{rendered}");
    // And it is still a config.
    let again = config::parse("again", &rendered, &|_| None, Overrides::default());
    assert!(again.is_ok(), "{rendered}");
}

#[test]
fn one_entry_counts_whatever_the_host() {
    let dir = folder("measured: 2026-11-22 10:15\nupstreams:\n  - host: h\n    http: \"2\"\n");
    let loaded = load(dir.path(), NAMED).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(upstream(&loaded).http, wellhead_net::HttpVersion::H2);
}

#[test]
fn a_profile_that_gives_nothing_is_told() {
    let dir = folder("measured: 2026-11-22 10:15\nupstreams:\n  - host: h\n");
    let loaded = load(dir.path(), NAMED).unwrap_or_else(|report| panic!("{report}"));
    let message = &loaded.warnings.problems()[0].message;
    assert_eq!(message, "`profile` has no effect: nothing is taken from it");
}

/// The problem that a profile makes, as it is shown.
fn check(profile: &str, expected: &str, hint: &str) {
    let dir = folder(profile);
    let report = load(dir.path(), NAMED).expect_err("a problem");
    let place: PathBuf = dir.path().into();
    let shown = report.render(false).replace(&place.display().to_string(), "DIR");
    assert_eq!(
        shown,
        format!(
            "error: `DIR/profiles/p.yaml` {expected}\n \
             --> DIR/wellhead.yaml:5:18\n  \
             |\n\
             5 |         profile: profiles/p.yaml\n  \
             |                  ^^^^^^^^^^^^^^^\n  \
             |\n  \
             = help: {hint}\n\n\
             1 error in DIR/wellhead.yaml\n"
        )
    );
}

#[test]
fn what_is_wrong_with_a_profile_is_told_with_its_line() {
    check(
        "measured: 2026-11-22 10:15\nupstreams:\n  - host: h\n    budget: { call_per_second: 5 }\n",
        "line 4: unknown key `call_per_second`",
        "did you mean `calls_per_second`?",
    );
    check(
        "measured: 2026-11-22 10:15\nupstreams:\n  - host: h\n    tier: public\n",
        "line 4: unknown key `tier`",
        "`tier` is a key of `chains.NAME.upstreams[]`",
    );
    check(
        "upstreams: [{ host: h }]\n",
        "line 1: the key `measured` is missing",
        "`measured`: When, in UTC",
    );
    check("", "is empty", "write one: `wellhead analyze quick URL --profile FILE`");
    check(
        "measured: 2026-11-22 10:15\nupstreams: [{ host: b }, { host: c }]\n",
        "measured `b` and `c`, and not `eth.example`",
        "leave the one that is meant in a file of its own: it then counts whatever the host",
    );
}

/// Three that were measured at one host: two of a chain, and one that does not say which.
const ONE_HOST: &str = r#"measured: 2026-11-22 10:15
upstreams:
  - { host: eth.example, id: free, chain_id: 1, budget: { calls_per_second: 25 } }
  - { host: eth.example, id: paid, chain_id: 1, budget: { calls_per_second: 500 } }
  - { host: eth.example, id: other, chain_id: 10, budget: { calls_per_second: 77 } }
"#;

/// Calls a second of an upstream with these keys, on a chain with these.
fn taken(profile: &str, chain: &str, id: &str) -> Result<Option<u64>, String> {
    let dir = folder(profile);
    let text = format!(
        "chains:\n  a:\n{chain}    upstreams:\n      - url: https://eth.example/v2/k\n{id}{NAMED}"
    );
    let file = dir.path().join("wellhead.yaml");
    std::fs::write(&file, text).expect("a file");
    match config::load(&file, &|_| None, Overrides::default()) {
        Ok(loaded) => Ok(upstream(&loaded).budget.calls_per_second),
        Err(report) => {
            let problem = &report.problems()[0];
            let message = problem.message.split_once("` ").map(|(_, rest)| rest.to_owned());
            assert_eq!(
                problem.hints,
                [
                    "give the upstream the `id` of the one that is meant, or leave that in a file of \
                  its own"
                ]
            );
            Err(message.unwrap_or_default())
        }
    }
}

#[test]
fn of_several_with_one_host_the_chain_and_then_the_id_decide() {
    assert_eq!(taken(ONE_HOST, "", "        id: paid\n"), Ok(Some(500)));
    assert_eq!(taken(ONE_HOST, "", "        id: free\n"), Ok(Some(25)));
    assert_eq!(taken(ONE_HOST, "    id: 10\n", ""), Ok(Some(77)));
    assert_eq!(taken(ONE_HOST, "    id: 1\n", "        id: paid\n"), Ok(Some(500)));
}

#[test]
fn which_of_two_was_meant_is_not_guessed() {
    let measured = "measured `eth.example` 3 times, as `free on chain 1`, `paid on chain 1` and \
                    `other on chain 10`: none of them alone is for ";
    for (chain, id, own) in [
        ("", "", "an upstream without an `id`"),
        ("    id: 1\n", "", "an upstream without an `id` on chain 1"),
        ("    id: 5\n", "        id: free\n", "`free` on chain 5"),
    ] {
        assert_eq!(taken(ONE_HOST, chain, id), Err(format!("{measured}{own}")));
    }
    // An old profile, which tells no ids.
    let old =
        "measured: 2026-11-22 10:15\nupstreams: [{ host: eth.example }, { host: eth.example }]";
    let told = taken(old, "", "").expect_err("two");
    assert!(told.starts_with("measured `eth.example` 2 times, as `no id` and `no id`:"), "{told}");
}

#[test]
fn a_profile_that_is_not_there_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let report = load(dir.path(), NAMED).expect_err("a problem");
    let problem = &report.problems()[0];
    assert_eq!(problem.path.to_string(), "chains.a.upstreams[0].profile");
    assert!(problem.message.contains("cannot be read: No such file"), "{}", problem.message);
    assert_eq!(problem.hints, ["relative paths are seen from the directory of the config"]);
}

#[test]
fn a_date_is_one() {
    let dir = folder("measured: yesterday\nupstreams: [{ host: h, http: \"2\" }]\n");
    let report = load(dir.path(), NAMED).expect_err("a problem");
    let message = &report.problems()[0].message;
    assert!(message.ends_with("line 1: expected a day and a minute such as `2026-11-22 10:15`"));
}

/// What a study leaves in the directory of upstream `u` of chain `a`.
fn studied(dir: &Path, budget: &str) {
    let place = dir.join("study/a/u");
    std::fs::create_dir_all(&place).expect("a directory");
    let profile = format!(
        "measured: \"2026-11-25 08:00\"\nupstreams:\n  - host: eth.example\n    id: u\n{budget}"
    );
    std::fs::write(place.join("profile.yaml"), profile).expect("a file");
}

/// The calls per second, window and burst of the upstream.
fn rate(loaded: &Loaded) -> (Option<u64>, Option<std::time::Duration>, Option<u64>) {
    let budget = &upstream(loaded).budget;
    (budget.calls_per_second, budget.calls_window, budget.calls_burst)
}

const STUDY: &str = "        id: u\n        study: { dir: study }\n";

#[test]
fn what_a_study_found_goes_before_a_profile_and_after_the_upstream() {
    let dir = folder(PROFILE);
    let load = |more: &str| {
        load(dir.path(), &format!("{STUDY}{more}")).unwrap_or_else(|report| panic!("{report}"))
    };
    assert_eq!(rate(&load("")), (None, None, None), "nothing was found yet");
    studied(dir.path(), "    budget: { calls_per_second: 40, calls_burst: 11 }\n");
    let alone = load("");
    assert!(alone.warnings.is_empty(), "{}", alone.warnings);
    assert_eq!(rate(&alone), (Some(40), None, Some(11)));
    let profile = upstream(&alone).profile.as_ref().expect("in the place of one");
    assert_eq!(profile.file, dir.path().join("study/a/u/profile.yaml"));

    let both = load(NAMED);
    // The window of the older profile does not belong to this rate.
    assert_eq!(rate(&both), (Some(40), None, Some(11)));
    assert_eq!(upstream(&both).budget.in_flight, Some(40), "no study looks at it");
    let profile = upstream(&both).profile.as_ref().expect("it is named");
    let measured = |key| profile.measured(key).map(ToString::to_string);
    assert_eq!(measured("budget.calls_per_second").as_deref(), Some("2026-11-25 08:00"));
    assert_eq!(measured("budget.calls_window"), None);
    assert_eq!(measured("budget.in_flight").as_deref(), Some("2026-11-22 10:15"));
    let rendered = both.settings.render();
    let line = rendered.lines().find(|line| line.contains("profile: ")).expect("a line");
    assert!(line.ends_with(
        "study/a/u/profile.yaml: measured 2026-11-25 08:00 UTC: budget.calls_per_second, budget.calls_burst"
    ), "{line}");

    let own = load("        budget: { calls_per_second: 7 }\n");
    assert_eq!(rate(&own), (Some(7), None, None));
}

#[test]
fn a_study_that_found_no_limit_ends_that_of_a_profile() {
    let dir = folder(PROFILE);
    studied(dir.path(), "");
    let loaded = load(dir.path(), &format!("{STUDY}{NAMED}"));
    let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(rate(&loaded), (None, None, None));
    assert_eq!(upstream(&loaded).budget.in_flight, Some(40));
}

#[test]
fn a_profile_of_a_study_that_cannot_be_used_is_told_and_hinders_nothing() {
    let dir = folder(PROFILE);
    studied(dir.path(), "    budget: { calls_per_second: many }\n");
    let loaded = load(dir.path(), STUDY).unwrap_or_else(|report| panic!("{report}"));
    let [problem] = loaded.warnings.problems() else { panic!("{}", loaded.warnings) };
    assert_eq!(problem.path.to_string(), "chains.a.upstreams[0].study");
    assert!(problem.message.contains("study/a/u/profile.yaml` line 5: "), "{}", problem.message);
    assert!(problem.message.ends_with(": it is ignored"), "{}", problem.message);
    assert_eq!(rate(&loaded), (None, None, None));
}
