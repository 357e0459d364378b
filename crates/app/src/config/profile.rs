//! Profiles: what `wellhead analyze` measured of an upstream, in a file of its own.
//!
//! A profile says what the settings of an upstream say, with the same keys. A key that the
//! upstream gives itself is taken from there; of a plan, which only names what a provider
//! promises, the profile goes before. What was taken is remembered, so that `wellhead check` and
//! `/status` can tell what was measured and when. Problems of a profile are told at the setting
//! that names it, with the line in the profile. No variables are replaced in a profile.
//!
//! A study of the proxy (`crate::study`) leaves a profile as well, in a directory that `study` names. It is newer than
//! one that `profile` names, so it goes before that; of rates, what a `profile` says counts no more, also where the
//! study found no limit. It is no setting of the operator's: one that is missing or cannot be used hinders nothing.
//!
//! Writes no profile: that is `wellhead_analyze::conclude::profile`'s.

#![expect(unreachable_pub, reason = "`section!` makes public types, and these are read here alone")]

use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use wellhead_analyze::measure::client;
use wellhead_eth::{ChainId, MethodGlob};
use wellhead_net::HttpVersion;

use super::access_files::found;
use super::chain::{Budget, CREDITS_MAX, Connection, History, Upstream};
use super::docs;
use super::name::names;
use super::problem::{Problem, SettingPath, Severity, Wrong};
use super::read::{ConfigReader, Setting as _, SettingWord, listed, section, with_defaults};
use super::rule::{ValueShape, derived, ms, required, secs};
use super::settings::Settings;
use super::tree::{self, Node};
use super::value::TextLine;
use super::write::Yaml;

/// The profile of a study, in the directory of its upstream.
pub(crate) const STUDY_PROFILE: &str = "profile.yaml";

/// Problems of one profile that are told.
const TOLD_MAX: usize = 10;

/// A profile that an upstream names, and what was taken from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Where it is.
    pub file: PathBuf,
    /// `None` until it was read.
    pub taken: Option<ProfileValues>,
    /// What a study found beside it, which goes before it.
    pub study: Option<StudyProfile>,
}

/// The profile that a study left, beside one that the upstream names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StudyProfile {
    /// Where it is.
    pub file: PathBuf,
    /// What was taken from it.
    pub taken: ProfileValues,
}

/// What was taken from a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileValues {
    /// When it was measured.
    pub measured: Moment,
    /// Keys of the upstream, such as `budget.calls_per_second`.
    pub keys: Vec<&'static str>,
}

impl Profile {
    /// When a key of the upstream was measured, where its value is from here.
    pub fn measured(&self, key: &str) -> Option<&Moment> {
        let all = self.study.iter().map(|study| &study.taken).chain(&self.taken);
        let mut of_key = all.filter(|taken| taken.keys.contains(&key));
        of_key.next().map(|taken| &taken.measured)
    }
}

impl ProfileValues {
    /// `measured 2026-11-22 10:15 UTC: http, budget.in_flight`.
    fn told(&self) -> String {
        let Self { measured, keys } = self;
        let keys = if keys.is_empty() { "no limit".to_owned() } else { keys.join(", ") };
        format!("measured {measured} UTC: {keys}")
    }
}

impl SettingWord for Profile {
    const EXPECTED: &'static str = PathBuf::EXPECTED;
    const SHAPE: ValueShape = PathBuf::SHAPE;

    fn parse(text: &str) -> Result<Self, Wrong> {
        <PathBuf as SettingWord>::parse(text).map(|file| Self { file, taken: None, study: None })
    }

    fn write(&self) -> Yaml {
        let file = self.file.display().to_string();
        let study = self.study.as_ref();
        let study = study.map(|it| format!("{}: {}", it.file.display(), it.taken.told()));
        let told: Vec<String> = self.taken.iter().map(ProfileValues::told).chain(study).collect();
        match told.is_empty() {
            true => Yaml::Text(file),
            false => Yaml::Noted(file, told.join("; ")),
        }
    }

    fn blank() -> Self {
        Self { file: PathBuf::new(), taken: None, study: None }
    }
}

names! {
    /// A day and a minute, UTC: `2026-11-22 10:15`.
    Moment = "a day and a minute such as `2026-11-22 10:15`", "day and minute",
    "[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}", |text| {
        const FORM: &[u8] = b"0000-00-00 00:00";
        let fits = |(found, form): (u8, &u8)| match form {
            b'0' => found.is_ascii_digit(),
            other => found == *other,
        };
        match text.len() == FORM.len() && text.bytes().zip(FORM).all(fits) {
            true => Ok(()),
            false => Err(Wrong::new(Self::expected())),
        }
    }
}

section! {
    /// A profile: what was measured, of one upstream or of several.
    Written {
        /// When, in UTC.
        measured: Moment = required(),
        /// The upstreams that were measured. One alone counts for each upstream that names the file,
        /// else the one whose host the upstream has; of several with that host the one with its
        /// chain, and of several of these the one with its `id`.
        upstreams: Vec<Found> = required(),
    }
}

section! {
    /// What was measured of one upstream. Each key is as in `chains.NAME.upstreams[]`.
    Found {
        /// The host, and its port where it is not the usual one.
        host: TextLine = required(),
        /// The name that it was measured under.
        id: Option<TextLine> = derived("none"),
        /// The chain that it served.
        chain_id: Option<ChainId> = derived("not known"),
        /// Which HTTP to speak.
        http: Option<HttpVersion> = derived("not measured"),
        /// Connections that it accepts from one address. Each worker gets its share.
        connections_max: Option<usize> = derived("not measured").if_given_within(1, 65_536),
        /// What one connection bears.
        connection: Connection = derived("not measured"),
        /// Its limits and what it may cost.
        budget: Rates = derived("not measured"),
        /// How far it reaches.
        history: History = derived("not measured"),
        /// What it does not serve.
        methods: Bans = derived("not measured"),
    }
}

section! {
    /// The part of `budget` that can be measured.
    Rates {
        /// Credits a second.
        credits_per_second: Option<u64> = derived("not measured").if_given_within(1, CREDITS_MAX),
        /// Calls a second.
        calls_per_second: Option<u64> = derived("not measured").if_given_within(1, CREDITS_MAX),
        /// In which time they are counted.
        calls_window: Option<Duration> = derived("not measured")
            .if_given_within(ms(10), secs(86_400)),
        /// How many pass at once.
        calls_burst: Option<u64> = derived("not measured").if_given_within(1, CREDITS_MAX),
        /// Concurrent requests.
        in_flight: Option<u32> = derived("not measured").if_given_within(1, 65_536),
    }
}

section! {
    /// The part of `methods` that can be measured.
    Bans {
        /// Methods that are not served.
        deny: Vec<MethodGlob> = derived("not measured"),
    }
}

with_defaults!(Rates, Bans);

impl Settings {
    /// Reads the profiles that upstreams name, and takes from each what the upstream does not
    /// give itself. Relative paths are seen from `base`.
    pub(super) fn take_profiles(
        &mut self,
        tree: &Node,
        base: &FilePath,
        problems: &mut Vec<Problem>,
    ) {
        let workers = self.workers();
        self.each_upstream(|path, (_, chain_id), upstream| {
            let named = upstream.profile.as_mut().map(|profile| &mut profile.file);
            let Some(file) = found(named, base).map(FilePath::to_owned) else { return };
            let place = path.key("profile");
            match read(&file).and_then(|written| pick(written, chain_id, upstream)) {
                Ok((measured, found)) => {
                    let given = |key: &str| is_given(tree, path, key);
                    let keys = take(upstream, found, workers, &given);
                    if keys.is_empty() {
                        let message = "`profile` has no effect: nothing is taken from it";
                        let hint =
                            "the config sets all of its settings itself, or the profile has none";
                        problems.push(Problem::warning(&place, message).hint(hint));
                    }
                    let taken = Some(ProfileValues { measured, keys });
                    upstream.profile = Some(Profile { file, taken, study: None });
                }
                Err(wrongs) => {
                    for Wrong { message, hint } in wrongs.into_iter().take(TOLD_MAX) {
                        let message = format!("`{}` {message}", file.display());
                        problems.push(Problem::wrong(&place, Wrong { message, hint }));
                    }
                }
            }
        });
    }
}

/// Settings that a study finds anew, whatever a profile says.
const STUDIED: [&str; 4] = [
    "budget.credits_per_second",
    "budget.calls_per_second",
    "budget.calls_window",
    "budget.calls_burst",
];

impl Settings {
    /// Takes what studies found, each from the directory of its upstream, which has its name by now. `tree` tells what
    /// the upstreams give themselves.
    pub(super) fn take_studies(
        &mut self,
        tree: &Node,
        base: &FilePath,
        problems: &mut Vec<Problem>,
    ) {
        let workers = self.workers();
        self.each_upstream(|path, (chain, chain_id), upstream| {
            let Some(study) = upstream.study.as_mut() else { return };
            if found(Some(&mut study.dir), base).is_none() {
                return;
            }
            let file = study.place(chain.as_ref(), &upstream.id).join(STUDY_PROFILE);
            if !file.exists() {
                return;
            }
            match read(&file).and_then(|written| pick(written, chain_id, upstream)) {
                Ok((measured, found)) => {
                    let given = |key: &str| is_given(tree, path, key);
                    forget_rates(upstream, &given);
                    let keys = take(upstream, found, workers, &given);
                    note_study(upstream, file, ProfileValues { measured, keys });
                }
                Err(wrongs) => {
                    let why = wrongs.first().map_or("", |wrong| wrong.message.as_str());
                    let message = format!("`{}` {why}: it is ignored", file.display());
                    let hint = "the next study writes it again";
                    problems.push(Problem::warning(&path.key("study"), message).hint(hint));
                }
            }
        });
    }
}

/// Whether the settings of the upstream at `path` have this key, such as `budget.calls_burst`.
fn is_given(tree: &Node, path: &SettingPath, key: &str) -> bool {
    tree.has(&key.split('.').fold(path.clone(), |path, step| path.key(step)))
}

/// Makes rates free that a profile has set.
fn forget_rates(upstream: &mut Upstream, given: &dyn Fn(&str) -> bool) {
    let own = &mut upstream.budget;
    if !given("budget.credits_per_second") {
        own.credits_per_second = None;
    }
    if !given("budget.calls_per_second") {
        own.calls_per_second = None;
        own.calls_window = own.calls_window.filter(|_| given("budget.calls_window"));
        own.calls_burst = own.calls_burst.filter(|_| given("budget.calls_burst"));
    }
}

/// Remembers what a study found, beside the profile that the upstream names or in its place.
fn note_study(upstream: &mut Upstream, file: PathBuf, taken: ProfileValues) {
    match &mut upstream.profile {
        Some(profile) => {
            if let Some(older) = &mut profile.taken {
                older.keys.retain(|key| !STUDIED.contains(key) && !taken.keys.contains(key));
            }
            profile.study = Some(StudyProfile { file, taken });
        }
        None => upstream.profile = Some(Profile { file, taken: Some(taken), study: None }),
    }
}

/// A profile as written, or what is wrong with it: each continues the name of the file.
fn read(file: &FilePath) -> Result<Written, Vec<Wrong>> {
    let seen_from = "relative paths are seen from the directory of the config";
    let source = super::file::read_regular(file, super::READ_MAX)
        .and_then(super::file::text)
        .map_err(|error| vec![Wrong::hinted(format!("cannot be read: {error}"), seen_from)])?;
    let mut problems = Vec::new();
    let root = tree::parse(&source, &mut problems, &mut Vec::new());
    let written = root.and_then(|root| {
        let mut reader = ConfigReader {
            path: SettingPath::root(),
            problems: &mut problems,
            blanks: Vec::new(),
            hidden: Vec::new(),
            known_keys: docs::homes(),
        };
        Written::read(&root, &mut reader)
    });
    let told = |problem: Problem| {
        let start = problem.span.map_or(0, |span| span.start);
        let line = super::file::line_of(source.as_bytes(), start);
        let message = format!("line {line}: {}", problem.message);
        Wrong { message, hint: problem.hints.into_iter().next() }
    };
    let wrongs: Vec<Wrong> = problems
        .into_iter()
        .filter(|problem| problem.severity == Severity::Error)
        .map(told)
        .collect();
    match written {
        Some(written) if wrongs.is_empty() => Ok(written),
        Some(_) | None if !wrongs.is_empty() => Err(wrongs),
        Some(_) | None => Err(vec![Wrong::hinted(
            "is empty",
            "write one: `wellhead analyze quick URL --profile FILE`",
        )]),
    }
}

/// The entry that is meant for an upstream of a chain: that of its host, and where there are
/// several that of its chain, and then of its id. Which of two was meant is not guessed: one of
/// them has limits that are not those of the upstream.
fn pick(
    mut written: Written,
    chain_id: Option<ChainId>,
    upstream: &Upstream,
) -> Result<(Moment, Found), Vec<Wrong>> {
    let host = client::host(&upstream.url);
    let all = &written.upstreams;
    let mut fit: Vec<usize> = (0..all.len()).collect();
    if all.len() > 1 {
        fit.retain(|at| all[*at].host.0.eq_ignore_ascii_case(&host));
        if fit.is_empty() {
            let hosts: Vec<String> = all.iter().map(|it| it.host.0.clone()).collect();
            return Err(vec![Wrong::hinted(
                format!("measured {}, and not `{host}`", listed(&hosts)),
                "leave the one that is meant in a file of its own: it then counts whatever the host",
            )]);
        }
    }
    let of_host = fit.clone();
    // Entries that do not tell their chain, or their id, may be meant.
    if let (2.., Some(chain)) = (fit.len(), chain_id) {
        fit.retain(|at| all[*at].chain_id.is_none_or(|own| own == chain));
    }
    if fit.len() > 1 {
        let id = upstream.id.as_str();
        fit.retain(|at| all[*at].id.as_ref().is_some_and(|own| own.0 == id && !id.is_empty()));
    }
    match fit[..] {
        [at] => Ok((written.measured, written.upstreams.swap_remove(at))),
        _ if all.is_empty() => Err(vec![Wrong::new("has no upstreams")]),
        _ => {
            let entries: Vec<&Found> = of_host.iter().map(|at| &all[*at]).collect();
            Err(vec![several(&entries, &host, chain_id, upstream)])
        }
    }
}

/// Several entries have the host, and chain and id leave none of them, or more than one.
fn several(
    entries: &[&Found],
    host: &str,
    chain_id: Option<ChainId>,
    upstream: &Upstream,
) -> Wrong {
    let on_chain = |id: &str, chain: Option<ChainId>| match chain {
        Some(ChainId(chain)) => format!("{id} on chain {chain}"),
        None => id.to_owned(),
    };
    let told = |entry: &&Found| {
        on_chain(entry.id.as_ref().map_or("no id", |id| id.0.as_str()), entry.chain_id)
    };
    let names: Vec<String> = entries.iter().map(told).collect();
    let id = match upstream.id.as_str() {
        "" => "an upstream without an `id`".to_owned(),
        id => format!("`{id}`"),
    };
    let own = on_chain(&id, chain_id);
    Wrong::hinted(
        format!(
            "measured `{host}` {} times, as {}: none of them alone is for {own}",
            names.len(),
            listed(&names)
        ),
        "give the upstream the `id` of the one that is meant, or leave that in a file of its own",
    )
}

/// Sets each optional setting that was measured and that is free.
macro_rules! options {
    ($free:ident: $($own:expr, $measured:expr, $key:literal;)+) => {
        $(if $free($key, $measured.is_some()) {
            $own = $measured;
        })+
    };
}

/// Takes what the upstream does not give itself; the keys that were taken.
fn take(
    upstream: &mut Upstream,
    found: Found,
    workers: usize,
    given: &dyn Fn(&str) -> bool,
) -> Vec<&'static str> {
    let mut keys = Vec::new();
    let mut free = |key: &'static str, is_measured: bool| {
        let is_free = is_measured && !given(key);
        if is_free {
            keys.push(key);
        }
        is_free
    };
    let Found { http, connections_max, connection, budget, history, methods, .. } = found;
    if let Some(http) = http
        && free("http", true)
    {
        upstream.http = http;
    }
    if let Some(most) = connections_max
        && free("connections_max", true)
    {
        // The setting counts for each worker, and the upstream counts all of them.
        upstream.connections_max = (most / workers.max(1)).max(1);
    }
    let Connection { streams_max, requests_max, idle } = connection;
    let own = &mut upstream.connection;
    options! {
        free: own.streams_max, streams_max, "connection.streams_max";
        own.requests_max, requests_max, "connection.requests_max";
        own.idle, idle, "connection.idle";
    }
    let own: &mut Budget = &mut upstream.budget;
    options! {
        free: own.credits_per_second, budget.credits_per_second, "budget.credits_per_second";
        own.in_flight, budget.in_flight, "budget.in_flight";
    }
    // Window and burst belong to their rate.
    if free("budget.calls_per_second", budget.calls_per_second.is_some()) {
        own.calls_per_second = budget.calls_per_second;
        options! {
            free: own.calls_window, budget.calls_window, "budget.calls_window";
            own.calls_burst, budget.calls_burst, "budget.calls_burst";
        }
    }
    let History { state, blocks, logs, traces, range_max } = history;
    let own = &mut upstream.history;
    options! {
        free: own.state, state, "history.state";
        own.blocks, blocks, "history.blocks";
        own.logs, logs, "history.logs";
        own.traces, traces, "history.traces";
        own.range_max, range_max, "history.range_max";
    }
    if free("methods.deny", !methods.deny.is_empty()) {
        upstream.methods.deny = methods.deny;
    }
    keys
}

#[cfg(test)]
mod tests {
    use wellhead_analyze::conclude::setting::ProfileKey;

    use super::*;
    use crate::config::read::Setting;

    /// The settings below a section, as paths.
    fn paths(shape: ValueShape, above: &str, out: &mut Vec<String>) {
        let ValueShape::Section(table) = shape else {
            return out.push(above.to_owned());
        };
        for row in table.rows {
            let dot = if above.is_empty() { "" } else { "." };
            paths(row.shape, &format!("{above}{dot}{}", row.key), out);
        }
    }

    fn all<T: Setting>() -> Vec<String> {
        let mut out = Vec::new();
        paths(T::shape(), "", &mut out);
        out.sort();
        out
    }

    #[test]
    fn what_the_analyser_writes_is_what_a_profile_takes() {
        let mut written: Vec<String> =
            ProfileKey::ALL.iter().map(|key| key.path().to_owned()).collect();
        // What tells for which upstream an entry is.
        written.extend(["host", "id", "chain_id"].map(str::to_owned));
        written.sort();
        assert_eq!(all::<Found>(), written);
    }

    #[test]
    fn what_the_analyser_writes_is_a_setting_of_an_upstream() {
        let known = all::<Upstream>();
        for key in ProfileKey::ALL {
            assert!(known.iter().any(|path| path == key.path()), "{}", key.path());
        }
    }
}
