//! What a report holds, that nothing from outside becomes markup, and that it is the same again.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use wellhead_analyze::record::{Record, WireEvent};
use wellhead_analyze::report::{Comparison, ReportFile, Side, compare, report};
use wellhead_analyze::stored::REPORT_FILES;

use super::synthetic::{World, elastic, metered, shaped};

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let mut world = World::new(7, vec![metered(), shaped(), elastic()]);
        world.play_all();
        world
    })
}

fn files() -> &'static [ReportFile] {
    static FILES: OnceLock<Vec<ReportFile>> = OnceLock::new();
    FILES.get_or_init(|| report(&world().run, &world().records))
}

fn text(name: &str) -> &'static str {
    let file = files().iter().find(|file| file.name == name);
    &file.unwrap_or_else(|| panic!("no {name}")).text
}

/// The charts of a page.
fn charts(page: &str) -> Vec<serde_json::Value> {
    let begin = "<script type=\"application/json\" id=\"charts\">";
    let (_, rest) = page.split_once(begin).expect("a page with charts");
    let (json, _) = rest.split_once("</script>").expect("it ends");
    serde_json::from_str(json).expect("plain JSON")
}

#[test]
fn the_names_of_all_files_are_known() {
    let names: Vec<&str> = files().iter().map(|file| file.name).collect();
    assert_eq!(names, REPORT_FILES);
}

#[test]
fn every_question_has_its_sentence() {
    let page = text("report.html");
    for sentence in [
        "Connection is closed at the 100th concurrent stream (not announced; 3 of 3)",
        "Rate limit: 125 req/s sustained; excess gets 429",
        "Token bucket: 125 req/s sustained, burst 125; excess gets 429 without Retry-After",
        " req/s per account; excess waits",
        "No rate limit up to 244 req/s",
        "5 of 200 answers differ from most targets",
        "inconclusive: up to 100 % of the calls failed with h2, 1 connection",
    ] {
        assert!(page.contains(sentence), "{sentence}");
    }
}

#[test]
fn every_chart_has_its_place_and_its_figures() {
    let page = text("report.html");
    let charts = charts(page);
    for n in 0..charts.len() {
        assert_eq!(page.matches(&format!("data-chart=\"{n}\"")).count(), 1);
    }
    let of = |kind: &str| charts.iter().filter(|chart| chart["kind"] == kind).count();
    // Two protocols by two numbers of connections at three targets.
    assert_eq!(of("waterfall"), 12);
    // Phases, costs, and requests on connections.
    assert_eq!((of("stack"), of("matrix")), (9, 2));
    for chart in charts.iter().filter(|chart| chart["kind"] == "plot") {
        let points = chart["xs"].as_array().map_or(0, Vec::len);
        assert!(points > 1, "{chart}");
        for series in chart["series"].as_array().expect("a list") {
            assert_eq!(series["data"].as_array().map_or(0, Vec::len), points, "{chart}");
        }
        let xs: Vec<f64> = chart["xs"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|x| x.as_f64().expect("a number"))
            .collect();
        assert!(xs.is_sorted(), "uPlot takes them in order: {chart}");
    }
}

#[test]
fn the_catalogue_predicts_where_it_can() {
    let marks: Vec<String> = charts(text("report.html"))
        .iter()
        .filter(|chart| chart["title"] == "throughput and success by offered rate")
        .flat_map(|chart| chart["marks"].as_array().cloned().unwrap_or_default())
        .map(|mark| mark["label"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(marks.contains(&"measured 125".to_owned()), "{marks:?}");
    assert!(marks.iter().any(|mark| mark.starts_with("plan ")), "{marks:?}");
}

#[test]
fn the_page_needs_no_network_and_stays_small() {
    let page = text("report.html");
    assert!(page.contains("default-src 'none'"));
    for way in ["src=\"", "href=\"http", "@import", "url(", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(way), "{way}");
    }
    assert!(page.len() < 2 << 20, "{} bytes", page.len());
}

#[test]
fn the_same_records_give_the_same_files() {
    assert_eq!(report(&world().run, &world().records), files());
}

#[test]
fn what_comes_from_outside_is_no_markup() {
    const EVIL: &str = "</script><img src=x onerror=alert(1)>\"'&|`\u{202e}";
    let mut world = World::new(7, vec![shaped(), elastic()]);
    world.play("streams", 0);
    world.play("protocol", 0);
    world.agree(50);
    for target in &mut world.run.targets {
        target.host = EVIL.to_owned();
        target.id = format!("={EVIL}{}", target.id);
        target.provider = Some(EVIL.to_owned());
    }
    (world.run.wellhead, world.run.machine.os) = (EVIL.to_owned(), EVIL.to_owned());
    world.run.machine.note = Some(EVIL.to_owned());
    for record in &mut world.records {
        match record {
            Record::Wire(wire) => {
                if let WireEvent::Goaway { debug, .. } = &mut wire.event {
                    EVIL.clone_into(debug);
                }
            }
            Record::Call(call) => call.error = call.error.take().map(|_| EVIL.to_owned()),
            Record::Rollup(rollup) => rollup.unserved = [(EVIL.to_owned(), 1)].into(),
            Record::Cell(cell) => {
                for (name, value) in &mut cell.factors {
                    if ["params", "path", "here", "method", "body"].contains(&name.as_str()) {
                        *value = format!("{EVIL}{value}");
                    }
                }
            }
        }
    }
    for file in report(&world.run, &world.records) {
        match file.name {
            "report.html" => {
                assert!(!file.text.contains("<img"), "markup");
                assert!(file.text.contains("&lt;img src=x onerror=alert(1)&gt;"), "it is told");
                assert!(!file.text.contains('\u{202e}'), "turned around");
                assert!(!charts(&file.text).is_empty());
                assert_eq!(file.text.matches("</script>").count(), 3, "ours alone");
            }
            "summary.md" => assert!(!file.text.contains("<img"), "{}", file.text),
            "summary.csv" => {
                assert!(file.text.contains(",\"'=</script>"), "no formula: {}", file.text);
            }
            "profile.yaml" => {
                let lines = file.text.lines().map(str::trim_start);
                let outside = lines.filter(|line| line.contains("<img"));
                for line in outside {
                    let held = ["#", "- host: \"", "id: \"", "- \""];
                    assert!(held.iter().any(|begin| line.starts_with(begin)), "{line}");
                }
            }
            _ => {}
        }
    }
    let Comparison { markdown, html, .. } = compare(side(EVIL, &world), side(EVIL, &world));
    assert!(!html.contains("<img") && !markdown.contains("<img"));
}

#[test]
fn settings_stand_side_by_side() {
    let page = text("report.html");
    let row = page.lines().find(|line| line.starts_with("<tr><td>rate 244</td>")).expect("a row");
    assert_eq!(row.matches("<td").count(), 1 + 3 * 4, "{row}");
    assert_eq!(row.matches("class=\"n bad\"").count(), 1, "one of three refuses: {row}");
}

#[test]
fn what_is_served_stands_side_by_side() {
    let page = text("report.html");
    for row in [
        "<tr><td>trace</td><td class=\"n\">1 of 1</td><td class=\"n\">0 of 1</td>\
         <td class=\"n\">0 of 1</td></tr>",
        "<tr><td>eth_getProof</td><td class=\"n\">yes</td><td class=\"n\">yes</td>\
         <td class=\"n\">yes</td></tr>",
        "<tr><td>debug_traceCall</td><td class=\"n\">yes</td><td class=\"n bad\">no</td>\
         <td class=\"n bad\">no</td></tr>",
    ] {
        assert!(page.contains(row), "{row}");
    }
}

#[test]
fn a_call_that_shows_a_difference_can_be_made_by_anybody() {
    let page = text("report.html");
    assert!(
        page.contains("for url in &quot;$URL_B&quot; &quot;$URL_C&quot;; do curl -s"),
        "the liar"
    );
    assert!(page.contains("<td><code>result[0].data</code></td>"));
}

#[test]
fn a_line_for_each_cell() {
    let csv = text("summary.csv");
    let told = |record: &&Record| matches!(record, Record::Cell(_) | Record::Rollup(_));
    let cells = world().records.iter().filter(told).count();
    assert_eq!(csv.lines().count(), cells + 1);
    let rate = csv.lines().find(|line| line.starts_with("rate,metered,") && line.contains("=50,"));
    let rate = rate.expect("a cell of 50 calls/s");
    assert!(rate.contains(",rate=50,600,600,0,0,"), "{rate}");
}

#[test]
fn a_table_for_a_pull_request() {
    let table = text("summary.md");
    assert!(table.contains("| | metered | shaped | elastic |\n|---|---|---|---|\n"), "{table}");
    assert!(
        table.contains(
            "| window | Token bucket: 125 req/s sustained, burst 125; excess gets 429 without Retry-After | "
        ),
        "{table}"
    );
}

#[test]
fn nothing_makes_a_page_as_well() {
    let files = report(&wellhead_analyze::record::RunRecord::default(), &[]);
    assert_eq!(files.len(), REPORT_FILES.len());
    assert!(files[0].text.contains("0 calls in 0 cells"));
}

fn side<'a>(name: &'a str, world: &'a World) -> Side<'a> {
    Side { name, run: &world.run, records: &world.records }
}

#[test]
fn two_runs_of_the_same_differ_in_nothing() {
    let play = |seed: u64, share: f64| {
        let dials = super::synthetic::Dials { h2_share: share, ..elastic() };
        let mut world = World::new(seed, vec![dials]);
        world.play("protocol", 0);
        world
    };
    let (a, b, c) = (play(1, 0.4), play(2, 0.4), play(3, 0.9));
    let same = compare(side("a", &a), side("b", &b)).markdown;
    assert!(same.contains("\n0 of 4 settings differ in time"), "{same}");
    assert!(!same.contains("| changed |"), "{same}");
    let other = compare(side("a", &a), side("c", &c)).markdown;
    assert!(other.contains("\n2 of 4 settings differ in time"), "{other}");
    assert!(other.contains("protocol: body large, concurrency 100, connections 1, protocol h2"));
    assert!(other.contains("| changed |"), "{other}");
    let (same, told) =
        (compare(side("a", &a), side("b", &b)), compare(side("a", &a), side("c", &c)));
    assert!(!same.differs && told.differs);
    // What changed is told first, and "slower" only of what is.
    let verdicts: Vec<&str> = told
        .text
        .lines()
        .filter(|line| line.starts_with("  same ") || line.starts_with("  changed "))
        .map(|line| line.split_whitespace().next().unwrap_or_default())
        .collect();
    assert!(verdicts.first() == Some(&"changed"), "{}", told.text);
    assert!(verdicts.is_sorted(), "{}", told.text);
    assert_eq!(told.text.matches(" slower: +").count(), 2, "{}", told.text);
    assert_eq!(told.text.matches(" faster: ").count(), 0, "{}", told.text);
    assert_eq!(same.text.matches(" no difference: ").count(), 4, "{}", same.text);
    assert_eq!(compare(side("a", &a), side("c", &c)).markdown, other);
}

/// Two runs in which each setting has one cell, as most have.
#[test]
fn one_cell_tells_no_difference() {
    let play = |seed: u64, base_ms: f64| {
        let mut world = World::new(seed, vec![super::synthetic::Dials { base_ms, ..elastic() }]);
        world.play("rate", 0);
        world
    };
    let (a, b) = (play(1, 60.0), play(2, 70.0));
    let told = compare(side("a", &a), side("b", &b));
    assert!(!told.differs, "{}", told.text);
    let counted = "\n0 of 7 settings differ in time (medians of cells, tested together); 7 were \
                   measured only once in a run, which shows no difference below a third\n";
    assert!(told.text.contains(counted), "{}", told.text);
    assert_eq!(
        told.text.matches(" %, which a single cell cannot distinguish from chance").count(),
        7
    );
}

/// A hundred pairs of runs of the same provider, whose minutes differ by 15 %, in settings that
/// were played once.
#[test]
fn of_a_hundred_equal_pairs_at_most_five_differ() {
    let play = |seed: u64, slower: f64| {
        let mut world = World::new(seed, vec![elastic()]);
        world.play("rate", 0);
        world.play("load", 0);
        let mut rng = SmallRng::seed_from_u64(seed);
        let by: BTreeMap<u32, f64> = (0..=100_u32)
            .map(|cell| (cell, slower * (0.3 * (rng.random::<f64>() - 0.5)).exp()))
            .collect();
        for record in &mut world.records {
            match record {
                Record::Call(call) => {
                    let took = (call.ended_at - call.intended_at) as f64 * by[&call.cell];
                    call.ended_at = call.intended_at + took as u64;
                }
                Record::Cell(cell) => cell.ended_at += 60_000_000,
                Record::Wire(_) | Record::Rollup(_) => {}
            }
        }
        world
    };
    let told = |seed: u64, slower: f64| {
        let (a, b) = (play(2 * seed, 1.0), play(2 * seed + 1, slower));
        compare(side("a", &a), side("b", &b))
    };
    let alarms: Vec<u64> = (0..100).filter(|seed| told(*seed, 1.0).differs).collect();
    assert!(alarms.len() <= 5, "{alarms:?}");
    // What takes 2.69 times as long is worse in each setting.
    let found = told(100, 2.69);
    assert!(found.differs && !found.worse.is_empty(), "{}", found.text);
    assert!(found.text.contains(" slower: +1"), "{}", found.text);
}

#[test]
fn of_a_run_and_itself_nothing_is_listed() {
    let mut world = World::new(1, vec![elastic()]);
    world.play("rate", 0);
    let told = compare(side("a", &world), side("a", &world));
    assert!(!told.differs && told.worse.is_empty());
    assert!(told.text.ends_with("\nBoth runs have the same records: nothing differs.\n"));
}

/// Minutes of equal runs differ by a tenth: of a hundred pairs of runs few are said to differ.
#[test]
fn runs_whose_minutes_scatter_do_not_differ() {
    let play = |seed: u64, slower: f64| {
        let mut world = World::new(seed, vec![elastic()]);
        (0..4).for_each(|_| world.play("protocol", 0));
        let mut rng = SmallRng::seed_from_u64(seed);
        let by: BTreeMap<u32, f64> = (0..=100_u32)
            .map(|cell| (cell, slower * (0.3 * (rng.random::<f64>() - 0.5)).exp()))
            .collect();
        for record in &mut world.records {
            if let Record::Call(call) = record {
                let took = (call.ended_at - call.intended_at) as f64 * by[&call.cell];
                call.ended_at = call.intended_at + took as u64;
            }
        }
        for record in &mut world.records {
            // Calls that became longer still belong to their cell.
            if let Record::Cell(cell) = record {
                cell.ended_at += 60_000_000;
            }
        }
        world
    };
    let differ = |seed: u64, slower: f64| {
        let (a, b) = (play(2 * seed, 1.0), play(2 * seed + 1, slower));
        compare(side("a", &a), side("b", &b)).text.contains("\n0 of 4 settings differ")
    };
    let same = (0..20).filter(|seed| differ(*seed, 1.0)).count();
    assert!(same >= 18, "{same} of 20 are the same");
    assert!(!differ(50, 1.5), "half as much again is found");
}
