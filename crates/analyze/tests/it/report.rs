//! What a report holds, that nothing from outside becomes markup, and that it is the same again.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use wellhead_analyze::record::{CreditPrice, Record, WireEvent};
use wellhead_analyze::report::{Comparison, ReportFile, compare, report};
use wellhead_analyze::stored::REPORT_FILES;

use super::synthetic::{World, elastic, metered, shaped, side};

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
    let names: Vec<&str> = files().iter().map(|file| file.name.as_str()).collect();
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
    assert_eq!(of("matrix"), 2);
    // Of `rate` and of `load`, at each target.
    assert_eq!(of("heat"), 6);
    for chart in charts.iter().filter(|chart| chart["kind"] == "plot") {
        let points = chart["xs"].as_array().map_or(0, Vec::len);
        assert!(points > 1, "{chart}");
        for series in chart["series"].as_array().expect("a list") {
            assert_eq!(series["data"].as_array().map_or(0, Vec::len), points, "{chart}");
        }
        assert!(numbers(&chart["xs"]).is_sorted(), "{chart}");
    }
}

fn numbers(list: &serde_json::Value) -> Vec<f64> {
    list.as_array().expect("a list").iter().filter_map(serde_json::Value::as_f64).collect()
}

/// The sections of a page, each after its `<section`.
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("<section id=\"{id}\"")).expect("a section");
    rest.split_once("</section>").expect("it ends").0
}

#[test]
fn each_target_has_a_card_with_a_colour_and_its_word() {
    let page = text("report.html");
    let targets = section(page, "targets");
    let cards: Vec<&str> = targets.split("<article class=\"provider ").skip(1).collect();
    let expected = [
        (
            "metered",
            "limited",
            "Rate limit: 125 req/s sustained; excess gets 429",
            "credits_per_second: 2500",
        ),
        ("shaped", "unfit", "5 of 200 answers differ from most targets", "streams_max: 93"),
        ("elastic", "sound", "No rate limit up to 244 req/s", "state: 128"),
    ];
    assert_eq!(cards.len(), expected.len());
    for (card, (id, word, reason, setting)) in cards.iter().zip(expected) {
        assert!(
            card.starts_with(&format!("{word}\">\n<h2>{id}<b class=\"badge {word}\">")),
            "{card}"
        );
        assert!(card.contains(&format!("</span> {word}</b>")), "a colour has its word: {card}");
        for part in [reason, setting, "<dt>Confidence", "<dt>Latency</dt><dd>p50 ", "<dt>Price"] {
            assert!(card.contains(part), "{part}: {card}");
        }
        let settings = card.split_once("<pre>").map_or("", |(_, rest)| rest);
        let settings = settings.split_once("</pre>").map_or("", |(settings, _)| settings);
        assert!(!settings.contains('#') && !settings.contains("host:"), "{settings}");
    }
    // And before all evidence.
    assert!(page.find("id=\"targets\"") < page.find("id=\"overview\""));
}

#[test]
fn a_card_tells_the_price_where_it_is_known() {
    let mut world = World::new(7, vec![metered()]);
    world.play("rate", 0);
    for record in &mut world.records {
        if let Record::Call(call) = record {
            call.credits = Some(20.0);
        }
    }
    world.run.targets[0].price = Some(CreditPrice {
        unit: "CU".to_owned(),
        usd_per_million: Some(0.5),
        ..CreditPrice::default()
    });
    let page = &report(&world.run, &world.records)[0].text;
    let card = section(page, "targets");
    assert!(
        card.contains("<dt>Price of 1 million such calls</dt><dd>20000000 CU, 10 USD</dd>"),
        "{card}"
    );
    assert!(card.contains("<dt>This run</dt>"), "{card}");
}

#[test]
fn every_chart_is_described_in_words() {
    let page = text("report.html");
    let figures: Vec<&str> = page.split("<figure").skip(1).collect();
    assert_eq!(figures.len(), charts(page).len());
    for (n, figure) in figures.iter().enumerate() {
        let figure = figure.split_once("</figure>").expect("it ends").0;
        let tag = format!("role=\"img\" aria-labelledby=\"chart-{n}-t chart-{n}-d\"");
        assert!(figure.contains(&tag), "{figure}");
        for name in ["title", "desc"] {
            let begin = format!("<{name} id=\"chart-{n}-{}\">", &name[..1]);
            let (_, rest) = figure.split_once(&begin).expect("it has one");
            let told = rest.split_once(&format!("</{name}>")).expect("it ends").0;
            assert!(told.len() >= 4, "{name}: {told}");
        }
        assert_eq!(figure.matches("<figcaption>").count(), 1);
    }
}

/// Whatever the targets deliver, a chart that is drawn of each has the same axes, and each axis
/// names its unit.
#[test]
fn all_targets_have_the_same_axes() {
    let page = text("report.html");
    let charts = charts(page);
    let mut compared = 0;
    for part in page.split("<section id=\"").skip(1) {
        let mut axes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for figure in part.split("data-chart=\"").skip(1) {
            let (n, _) = figure.split_once('"').expect("a number");
            let chart = &charts[n.parse::<usize>().expect("a number")];
            let title = chart["title"].as_str().unwrap_or_default();
            let title = if chart["kind"] == "waterfall" { "waterfall" } else { title };
            let told = format!("{} {}", chart["x"], chart["y"]);
            axes.entry(format!("{} {title}", chart["kind"])).or_default().push(told);
            for axis in [&chart["x"], &chart["y"]].into_iter().filter(|axis| !axis.is_null()) {
                assert!(axis["label"].as_str().is_some_and(|label| !label.is_empty()), "{chart}");
                let ends = numbers(&axis["range"]);
                assert!(ends.len() == 2 && ends[0] < ends[1], "{chart}");
            }
            assert!(chart.get("second").is_none(), "one unit per axis: {chart}");
        }
        for (title, told) in axes.into_iter().filter(|(_, told)| told.len() > 1) {
            assert!(told.windows(2).all(|pair| pair[0] == pair[1]), "{title}: {told:?}");
            compared += 1;
        }
    }
    assert!(compared >= 12, "{compared}");
}

#[test]
fn every_colour_of_a_chart_has_a_word() {
    for chart in charts(text("report.html")) {
        for series in chart["series"].as_array().into_iter().flatten() {
            assert!(series["name"].as_str().is_some_and(|name| !name.is_empty()), "{chart}");
        }
    }
    // A key stands in the chart: a word for each colour that is drawn.
    let files = wellhead_analyze::report::charts(&world().run, &world().records);
    for file in &files {
        let groups = file.text.matches("<g class=").count();
        let words = file.text.matches("class=\"soft\"").count();
        assert!(groups == 0 || words > 0, "{}", file.name);
    }
}

/// p50, p95 and p99 stand at each distribution, in steps that only rise.
#[test]
fn distributions_rise_in_steps_to_all_calls() {
    let charts = charts(text("report.html"));
    let is_cdf = |chart: &&serde_json::Value| chart["y"]["label"] == "calls within, %";
    let mut seen = 0;
    for chart in charts.iter().filter(is_cdf) {
        let guides: Vec<&str> = chart["marks"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|it| it["label"].as_str())
            .collect();
        assert_eq!(guides, ["p50", "p95", "p99"]);
        for series in chart["series"].as_array().expect("a list") {
            assert_eq!(series["style"], "step");
            let data = numbers(&series["data"]);
            assert!(data.is_sorted() && data.last() == Some(&100.0), "{series}");
            let name = series["name"].as_str().unwrap_or_default();
            assert!(name.contains(": p50 ") && name.contains(", p99 "), "{name}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}

/// Each cell in which the generator fell behind is drawn hollow, and in no line.
#[test]
fn doubted_cells_are_hollow() {
    let mut world = World::new(7, vec![elastic()]);
    world.play("rate", 0);
    let mut cells = world.records.iter_mut().filter_map(|record| match record {
        Record::Cell(cell) => Some(cell),
        _ => None,
    });
    let cell = cells.nth(2).expect("a cell");
    cell.load.saturated = true;
    let rate: f64 = cell.factors["rate"].parse().expect("a rate");
    let page = &report(&world.run, &world.records)[0].text;
    let charts = charts(page);
    let chart = charts.iter().find(|chart| chart["title"] == "throughput by offered rate");
    let chart = chart.expect("it is drawn");
    let at = numbers(&chart["xs"]).iter().position(|x| *x == rate).expect("its place");
    for series in chart["series"].as_array().expect("a list") {
        let there = !series["data"][at].is_null();
        let expected = match series["style"].as_str() {
            Some("hollow") => true,
            Some("line") => false,
            _ => continue,
        };
        assert_eq!(there, expected, "{series}");
    }
    assert_eq!(page.matches("<circle class=\"ring\"").count(), 4, "two in charts, two in keys");
}

#[test]
fn each_chart_is_a_file_that_needs_no_other() {
    let files = wellhead_analyze::report::charts(&world().run, &world().records);
    assert_eq!(files.len(), charts(text("report.html")).len());
    let names: std::collections::BTreeSet<&str> =
        files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names.len(), files.len());
    assert!(names.contains("rate_metered_throughput-by-offered-rate.svg"), "{names:?}");
    for file in &files {
        assert!(file.text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
        assert!(file.text.contains("<style>") && file.text.ends_with("</svg>\n"), "{}", file.name);
        for outside in ["href", "url(", "@import", "<script"] {
            assert!(!file.text.contains(outside), "{}: {outside}", file.name);
        }
        assert!(file.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)));
    }
}

#[test]
fn the_catalogue_predicts_where_it_can() {
    let marks: Vec<String> = charts(text("report.html"))
        .iter()
        .filter(|chart| chart["title"] == "throughput by offered rate")
        .flat_map(|chart| chart["marks"].as_array().cloned().unwrap_or_default())
        .map(|mark| mark["label"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(marks.contains(&"limit 125".to_owned()), "{marks:?}");
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
        match file.name.as_str() {
            "report.html" => {
                assert!(!file.text.contains("<img"), "markup");
                assert!(file.text.contains("&lt;img src=x onerror=alert(1)&gt;"), "it is told");
                assert!(!file.text.contains('\u{202e}'), "turned around");
                assert!(!charts(&file.text).is_empty());
                assert_eq!(file.text.matches("</script>").count(), 2, "ours alone");
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
fn a_call_that_shows_a_difference_can_be_repeated_by_hand() {
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

/// Makes the calls of each cell longer or shorter, by a share that is drawn.
fn scatter(world: &mut World, seed: u64, slower: f64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut by = || slower * (0.3 * (rng.random::<f64>() - 0.5)).exp();
    let by: Vec<f64> = (0..=100).map(|_| by()).collect();
    for record in &mut world.records {
        match record {
            Record::Call(call) => {
                let took = (call.ended_at - call.intended_at) as f64 * by[call.cell as usize];
                call.ended_at = call.intended_at + took as u64;
            }
            // Calls that became longer still belong to their cell.
            Record::Cell(cell) => cell.ended_at += 60_000_000,
            Record::Wire(_) | Record::Rollup(_) => {}
        }
    }
}

/// A hundred pairs of runs of the same provider, whose minutes differ by 15 %, in settings that
/// were played once.
#[test]
fn of_a_hundred_equal_pairs_at_most_five_differ() {
    let play = |seed: u64, slower: f64| {
        let mut world = World::new(seed, vec![elastic()]);
        world.play("rate", 0);
        world.play("load", 0);
        scatter(&mut world, seed, slower);
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
        scatter(&mut world, seed, slower);
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
