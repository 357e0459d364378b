//! The three providers of the study, as fakes, measured in one run: its findings are told, corrected
//! where the study was wrong, and the report shows them.
//!
//! Time is paused. `scripts/study` does the same in real time, with the command itself.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod browser;
#[path = "../it/synthetic.rs"]
#[expect(dead_code, reason = "the tests of whole runs use all of it")]
mod synthetic;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tempfile::TempDir;
use wellhead_analyze::conclude::verdict::{ExperimentVerdict, verdicts};
use wellhead_analyze::measure::client::TargetEndpoint;
use wellhead_analyze::measure::plan::{
    ExperimentPlan, FixedPlan, RatePlan, SoakPlan, Stage, StreamsPlan, WindowPlan,
};
use wellhead_analyze::measure::run::{CallBudget, Player, RunTerms, StopSignal, Unwatched};
use wellhead_analyze::record::Machine;
use wellhead_analyze::report::report;
use wellhead_analyze::stored::StoredRun;
use wellhead_analyze::work::WorkKind;
use wellhead_sim::provider::Preset;
use wellhead_sim::{FakeProvider, World, WorldConfig};
use wellhead_telemetry::SecretUrl;

const SECOND: Duration = Duration::from_secs(1);

/// What `wellhead analyze limits` plays, with fewer calls, and a soak.
fn plans() -> Vec<Box<dyn ExperimentPlan>> {
    let mut rng = SmallRng::seed_from_u64(1);
    let sizes = [1, 5, 10, 20, 40, 80, 100, 120];
    vec![
        Box::new(StreamsPlan::new(8, 128, SECOND)),
        Box::new(RatePlan::new(20.0, 160.0, 2.0, SECOND * 6, SECOND * 2)),
        Box::new(WindowPlan::new(600.0, 800, SECOND * 60, SECOND * 2)),
        Box::new(FixedPlan::throttle(&sizes, &[2, 4], 250, SECOND, &mut rng)),
        Box::new(SoakPlan::new(Stage::Rate(5.0), SECOND * 120, SECOND * 10, WorkKind::Mix, 2)),
    ]
}

/// A directory with a run and its report.
struct Study {
    dir: TempDir,
    told: Vec<ExperimentVerdict>,
}

impl Study {
    async fn play() -> Self {
        let world = World::new(WorldConfig { history_blocks: 16, ..WorldConfig::default() });
        let start = |preset: Preset| {
            FakeProvider::start(preset.word(), world.clone(), preset.dials()).unwrap()
        };
        let providers = Preset::ALL.map(start);
        let endpoint = |(preset, provider): (&Preset, &FakeProvider)| {
            TargetEndpoint::new(
                preset.word().to_owned(),
                SecretUrl::parse(&provider.url()).unwrap(),
            )
        };
        let endpoints: Vec<TargetEndpoint> =
            Preset::ALL.iter().zip(&providers).map(endpoint).collect();
        let dir = TempDir::new().unwrap();
        let (budget, stop) = (CallBudget::new(u64::MAX), StopSignal::default());
        let machine = Machine { os: "linux".to_owned(), cores: 2, note: None };
        let wellhead = "0.1.0".to_owned();
        let terms = RunTerms { seed: 7, started_unix: 1_795_000_000, wellhead, machine };
        let player = Player::begin(dir.path(), terms, &endpoints, &budget, &stop).unwrap();
        // Seconds of paused time pass in none of the processor's.
        let mut player = player.with_cpu(|| None);
        for (target, endpoint) in endpoints.iter().enumerate() {
            let target = target as u32;
            let greeting = player.greet(target, endpoint).await.unwrap();
            for mut plan in plans() {
                player.play(&mut *plan, target, endpoint, &greeting, &mut Unwatched).await.unwrap();
            }
        }
        let StoredRun { run, records, .. } = StoredRun::read(dir.path()).unwrap();
        for file in report(&run, &records) {
            fs::write(dir.path().join(file.name), file.text).unwrap();
        }
        Self { told: verdicts(&run, &records), dir }
    }

    fn page(&self) -> PathBuf {
        self.dir.path().join("report.html")
    }

    /// What is said of a preset, by experiment.
    fn of(&self, preset: Preset, experiment: &str) -> Vec<&str> {
        let target = Preset::ALL.iter().position(|known| *known == preset).unwrap();
        let own = |told: &&ExperimentVerdict| {
            told.target as usize == target && told.experiment == experiment
        };
        self.told.iter().filter(own).map(|told| told.sentence.as_str()).collect()
    }
}

/// Where pages and pictures are kept to be looked at: the directory in `WELLHEAD_STUDY`, if any.
fn kept() -> Option<PathBuf> {
    std::env::var_os("WELLHEAD_STUDY").map(PathBuf::from)
}

/// The study: refusals after about 40 calls at once, taken for 12 calls a second. It is 125.
fn the_metered_one(study: &Study) {
    let of = |experiment| study.of(Preset::PerSecond125, experiment);
    assert_eq!(
        of("streams"),
        ["At most 128 concurrent streams per connection (announced; 3 of 3)"]
    );
    let [rate] = of("rate")[..] else { panic!("{:?}", of("rate")) };
    let number = rate.strip_prefix("Rate limit: ").unwrap_or_default();
    assert!(
        is_near(number, 125.0) && rate.ends_with(" req/s sustained; excess gets 429"),
        "{rate}"
    );
    let [window] = of("window")[..] else { panic!("{:?}", of("window")) };
    let number = window.strip_prefix("Token bucket: ").unwrap_or_default();
    assert!(is_near(number, 125.0), "{window}");
    assert!(window.ends_with("; excess gets 429 without Retry-After"));
    assert!(
        of("throttle")[0].contains("an explicit limit, not silent shaping"),
        "{:?}",
        of("throttle")
    );
}

/// The study: 99 streams and then nothing. The settings announce 128, which the study did not see;
/// and it shapes in silence, all connections together.
fn the_silent_one(study: &Study) {
    let of = |experiment| study.of(Preset::SilentWithFatalCap99, experiment);
    assert_eq!(
        of("streams"),
        ["Connection is closed at the 100th concurrent stream (not announced; 3 of 3)"]
    );
    assert_eq!(of("rate"), ["No rate limit up to 160 req/s, sustained for 6 s"]);
    assert_eq!(of("window"), ["Burst of 800 requests is served without throttling"]);
    let [shaped] = of("throttle")[..] else { panic!("{:?}", of("throttle")) };
    let number = shaped.strip_prefix("Shaped to ").unwrap_or_default();
    assert!(is_near(number, 250.0) && shaped.ends_with("per account; excess waits"), "{shaped}");
}

/// The study: slow answers now and then, no limit. So it is.
fn the_elastic_one(study: &Study) {
    let of = |experiment| study.of(Preset::Elastic, experiment);
    assert_eq!(
        of("streams"),
        ["At most 128 concurrent streams per connection (announced; 3 of 3)"]
    );
    assert_eq!(of("rate"), ["No rate limit up to 160 req/s, sustained for 6 s"]);
    assert_eq!(of("window"), ["Burst of 800 requests is served without throttling"]);
    assert!(of("throttle")[0].starts_with("No shaping up to "), "{:?}", of("throttle"));
    assert!(of("soak")[1].starts_with("No drift"), "{:?}", of("soak"));
}

/// Whether a text begins with a number within a tenth.
fn is_near(text: &str, truth: f64) -> bool {
    let number: String = text.chars().take_while(char::is_ascii_digit).collect();
    number.parse::<f64>().is_ok_and(|seen| (seen / truth - 1.0).abs() <= 0.1)
}

#[tokio::test(start_paused = true)]
async fn the_findings_of_the_study_are_told() {
    let study = Study::play().await;
    the_metered_one(&study);
    the_silent_one(&study);
    the_elastic_one(&study);
    let page = fs::read_to_string(study.page()).unwrap();
    for told in &study.told {
        let sentence = told.sentence.replace('\'', "&#39;");
        assert!(page.contains(&sentence), "{sentence}");
    }
}

mod with_chromium {
    use wellhead_analyze::report::{Side, history, merge};

    use super::synthetic::{self, elastic, metered, shaped};
    use super::*;

    /// On a screen and on a phone.
    const WIDTHS: [u32; 2] = [1_280, 390];

    /// Nothing of a page is missing, cut off, covered or too small, in light and dark, on a screen
    /// and on a phone.
    fn check(page: &Path, name: &str, charts_min: usize) {
        for (width, is_dark) in WIDTHS.into_iter().flat_map(|width| [(width, false), (width, true)])
        {
            let name = format!("{name}-{width}-{}", if is_dark { "dark" } else { "light" });
            let seen = browser::look(page, &name, width, is_dark, kept().is_some());
            assert_eq!(seen.errors, Vec::<String>::new(), "{name}");
            assert_eq!(seen.width, width, "{name}: the window is not as wide as asked");
            assert_eq!(seen.overflow, Vec::<String>::new(), "{name}");
            assert_eq!(seen.empty, Vec::<String>::new(), "{name}");
            assert_eq!(seen.texts, Vec::<String>::new(), "{name}");
            assert_eq!(seen.small, Vec::<String>::new(), "{name}");
            assert_eq!(
                seen.saved,
                [
                    "csv data:text/csv true",
                    "svg data:image/svg+xml true",
                    "png data:image/png true"
                ],
                "{name}"
            );
            assert_eq!((seen.charts, seen.planned), (seen.planned, seen.planned), "{name}");
            assert!(seen.planned >= charts_min, "{name}: {} charts", seen.planned);
            assert_eq!(seen.is_dark, is_dark, "{name}");
        }
        let Some(dir) = kept() else { return };
        fs::create_dir_all(&dir).unwrap();
        for file in fs::read_dir(page.parent().unwrap()).unwrap().flatten() {
            if file.file_name().to_string_lossy().starts_with(name) {
                fs::copy(file.path(), dir.join(file.file_name())).unwrap();
            }
        }
        fs::copy(page, dir.join(format!("{name}.html"))).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_report_on_the_study_is_whole_in_a_browser() {
        let study = Study::play().await;
        check(&study.page(), "study", 3 * 7);
    }

    fn world(count: usize) -> synthetic::World {
        let dials = [metered, shaped, elastic, shaped, metered, elastic, metered, elastic];
        let ids =
            ["a", "b", "c", "a-name-that-is-longer-than-most-names-of-targets", "e", "f", "g", "h"];
        let dials = dials.iter().zip(ids).take(count);
        let dials = dials.map(|(dials, id)| synthetic::Dials { id, ..dials() });
        let mut world = synthetic::World::new(7, dials.collect());
        world.play_all();
        world
    }

    #[test]
    fn reports_on_one_and_on_eight_targets_are_whole_in_a_browser() {
        for (count, name) in [(1, "one"), (8, "eight")] {
            let (dir, world) = (TempDir::new().unwrap(), world(count));
            let page = dir.path().join("report.html");
            fs::write(&page, &report(&world.run, &world.records)[0].text).unwrap();
            check(&page, name, 20 * count);
        }
    }

    #[test]
    fn runs_over_time_and_of_several_places_are_whole_in_a_browser() {
        let (first, mut second) = (world(3), world(3));
        second.run.started_unix += 86_400;
        second.run.machine.note = Some("Frankfurt".to_owned());
        let sides = [("first", &first), ("second", &second)].map(|(name, it)| Side {
            name,
            run: &it.run,
            records: &it.records,
        });
        let dir = TempDir::new().unwrap();
        let page = dir.path().join("page.html");
        fs::write(&page, history(&sides).html).unwrap();
        check(&page, "history", 30);
        fs::write(&page, &merge(&sides)[0].text).unwrap();
        check(&page, "merged", 60);
    }
}
