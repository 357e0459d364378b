//! The settings that follow from verdicts: valid YAML, and a reason beside each.

use granit_parser::{Event, Parser};
use wellhead_analyze::profile::profile;
use wellhead_analyze::verdict::verdicts;

use super::synthetic::{Dials, World, elastic, metered, shaped};

fn of(dials: Vec<Dials>, experiments: &[&str]) -> String {
    let targets = dials.len();
    let mut world = World::new(7, dials);
    for target in 0..targets {
        experiments.iter().for_each(|experiment| world.play(experiment, target));
    }
    profile(&world.run, &verdicts(&world.run, &world.records))
}

#[test]
fn the_profile_of_three() {
    let experiments = ["streams", "connection", "rate", "window", "throttle", "reach"];
    let text = of(vec![metered(), shaped(), elastic()], &experiments);
    for line in [
        "      calls_per_second: 118 # 95 % of what was measured, rate: 125 calls/s, above that \
         HTTP 429",
        "      range_max: 10000 # reach: blocks in one search for logs: 10,000, not 50,000",
        "    #   window: bucket of 125, filled evenly in 1 s; above that HTTP 429, no Retry-After",
        "    #   streams: 99 streams, fatal, 3 of 3",
        "    #   connection: a connection ends after 1,002 requests",
        "    provider: \"chainstack\"",
        "        - \"debug_traceCall\"",
        "    url: \"${UPSTREAM_3_URL}\"",
    ] {
        assert!(text.lines().any(|seen| seen == line), "{line}\nin\n{text}");
    }
    let in_flight = text.lines().find(|line| line.contains("in_flight: ")).expect("a knee");
    assert!(in_flight.contains("more at once only takes longer, throttle: shaped at 25"));
    assert_eq!(text.matches("calls_per_second:").count(), 1, "{text}");
}

#[test]
fn it_is_yaml_whatever_a_target_is_called() {
    let evil = Dials { id: "a: \"b\" # ${c}\n- d", host: "h\n- e", ..metered() };
    let text = of(vec![evil], &["rate"]);
    let events: Result<Vec<_>, _> = Parser::new_from_str(&text).collect();
    let scalars: Vec<String> = events
        .expect("it is YAML")
        .into_iter()
        .filter_map(|(event, _)| match event {
            Event::Scalar(text, ..) => Some(text.into_owned()),
            _ => None,
        })
        .collect();
    let expected = [
        "upstreams",
        "id",
        "a: \"b\" # $${c}\n- d",
        "url",
        "${UPSTREAM_1_URL}",
        "provider",
        "quicknode",
        "budget",
        "calls_per_second",
        "118",
    ];
    assert_eq!(scalars, expected, "{text}");
}

#[test]
fn what_nobody_can_tell_sets_nothing() {
    let mut world = World::new(7, vec![metered()]);
    world.play("rate", 0);
    world.overload("rate", 1);
    let text = profile(&world.run, &verdicts(&world.run, &world.records));
    assert!(!text.contains("budget"), "{text}");
    assert!(text.contains("#   rate: cannot tell: the generator fell behind in 7 of 7 cells"));
}
