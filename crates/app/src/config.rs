//! The config file: found, read, checked, and turned into [`Settings`].
//!
//! Only this crate knows that there is a file. Every problem in it is found in one
//! run and shown with line, excerpt and hint ([`ProblemReport`]); settings with a problem
//! are never handed out. Each setting is described once, in [`settings`] and
//! [`chain`]: the struct, its reader, the JSON schema, the reference page and the
//! answer of `wellhead check` are made from that.
//!
//! Does not watch the file and does not start anything with it.
//!
//! The way of a text: `tree` (YAML as written, with places) -> `env` (`${VAR}`) ->
//! `read` and `value` (as meant, one value at a time) -> `check` (together).

use std::fmt;
use std::iter;
use std::net::SocketAddr;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

pub mod access;
mod access_files;
pub mod acme;
pub(crate) mod callers;
pub mod chain;
mod changes;
mod check;
pub mod docs;
mod env;
pub(crate) mod file;
mod identity;
mod lifetime;
mod mask;
mod name;
mod near;
mod network;
mod nodecore;
mod place;
mod problem;
mod profile;
mod read;
mod rule;
mod schema;
pub mod settings;
pub mod traces;
mod tree;
mod unit;
mod urls;
pub mod usage;
mod value;
mod write;

use access::QuotaConfig;
pub use access::{Access, AccessKeys, Jwt};
use access_files::found;
pub(crate) use access_files::{KEYS_BYTES_MAX, read_keys};
pub use chain::{
    Auth, Basic, Chain, Checks, Connection, History, Methods, Quorum, Route, Study, Upstream,
};
pub use env::EnvLookup;
pub(crate) use identity::{IdentityFiles, ReadIdentity};
pub use lifetime::{lifetime, overlap};
pub(crate) use name::is_clickhouse_table;
pub use name::{ClickHouseTable, HeaderName, LabelName, ListenerName, ReplicaName};
pub use network::Network;
pub(crate) use nodecore::{ForeignEntry, nodecore_keys};
pub(crate) use place::is_local;
pub use problem::{Problem, ProblemReport, SettingPath, Severity, Wrong};
pub(crate) use profile::STUDY_PROFILE;
pub use read::Map;
pub use schema::schema;
use settings::TlsClients;
pub use settings::{AdminTls, Cache, CacheDisk, CacheRedis, Log, Settings, SharedStore, Tls};
pub use traces::TracesConfig;
pub use unit::ByteSize;
pub use usage::{UsageConfig, UsageFileConfig, UsagePushConfig, UsageWebhookConfig};
pub use value::{Admin, CallsOver, ReloadTrigger, SharedProbes, TextLine, UsageFormat};

pub(crate) use changes::{SettingChange, as_far_as_it_reloads, changes};
use read::{ConfigReader, Setting, SettingWord};
use wellhead_server::{AdminRole, ClientFiles, TlsFile, TlsFiles, TlsProblem};
use write::Yaml;

/// Where a config is looked for when none is named, in this order.
pub const PLACES: [&str; 2] = ["wellhead.yaml", "/etc/wellhead/wellhead.yaml"];

/// What the command line says over the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Instead of `listen`.
    pub listen: Option<SocketAddr>,
    /// Instead of `admin`.
    pub admin: Option<Admin>,
    /// The file of keys may be missing: the command makes it.
    pub may_lack_keys: bool,
}

/// Settings without an error, and the warnings.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The settings as meant.
    pub settings: Settings,
    /// What we can live with; often empty.
    pub warnings: ProblemReport,
}

/// No config file is where one could be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFound {
    /// The file that was named, if one was.
    pub named: Option<PathBuf>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.named {
            Some(path) => write!(f, "there is no config file at `{}`", path.display())?,
            None => {
                write!(
                    f,
                    "there is no config file: neither `./{}` nor `{}`",
                    PLACES[0], PLACES[1]
                )?;
            }
        }
        f.write_str(
            "\n\nstart with the URLs of your upstreams:\n    \
             wellhead serve https://eth.example/v2/KEY http://geth:8545\n\
             or write a config and name it:\n    \
             wellhead serve -c wellhead.yaml",
        )
    }
}

impl std::error::Error for NotFound {}

/// The config file to read: the one named, or the first of [`PLACES`] that exists.
pub fn find(named: Option<&FilePath>) -> Result<PathBuf, NotFound> {
    match named {
        Some(path) if path.exists() => Ok(path.to_owned()),
        Some(path) => Err(NotFound { named: Some(path.to_owned()) }),
        None => PLACES
            .iter()
            .map(PathBuf::from)
            .find(|path| path.exists())
            .ok_or(NotFound { named: None }),
    }
}

/// Reads a file. Relative paths inside it are seen from its directory.
pub fn load(
    path: &FilePath,
    lookup: EnvLookup<'_>,
    overrides: Overrides,
) -> Result<Loaded, ProblemReport> {
    let name = path.display().to_string();
    let failed = |wrong: Wrong| {
        ProblemReport::new(&name, None, vec![Problem::wrong(&SettingPath::root(), wrong)])
    };
    let read = file::read_any(path, READ_MAX)
        .map_err(|error| failed(Wrong::new(format!("`{name}` cannot be read: {error}"))))?;
    let source = String::from_utf8(read).map_err(|error| {
        let line = file::line_of(error.as_bytes(), error.utf8_error().valid_up_to());
        let message = format!("line {line} of `{name}` is not UTF-8 text");
        failed(Wrong::hinted(message, "save the file as UTF-8"))
    })?;
    let base = path.parent().unwrap_or_else(|| FilePath::new(""));
    parse_with(&name, &source, lookup, overrides, Some(base))
}

/// Reads a text that does not come from a file; `name` is only shown.
pub fn parse(
    name: &str,
    source: &str,
    lookup: EnvLookup<'_>,
    overrides: Overrides,
) -> Result<Loaded, ProblemReport> {
    parse_with(name, source, lookup, overrides, None)
}

/// The settings of a config without a mistake.
#[cfg(test)]
#[track_caller]
pub(crate) fn sound(source: &str) -> Settings {
    let loaded = parse("test", source, &|_| None, Overrides::default());
    loaded.unwrap_or_else(|report| panic!("{}", report.render(false))).settings
}

/// Longer configs and profiles are refused.
const READ_MAX: u64 = tree::SOURCE_BYTES_MAX as u64;

/// Longer files of certificates are refused.
const CA_BYTES_MAX: u64 = 16 << 20;

fn parse_with(
    name: &str,
    source: &str,
    lookup: EnvLookup<'_>,
    overrides: Overrides,
    base: Option<&FilePath>,
) -> Result<Loaded, ProblemReport> {
    let mut problems = Vec::new();
    let (settings, hidden) = match ConfigSource::parse(source, &mut problems) {
        Some(file) => {
            let (settings, hidden) = file.resolve(lookup, overrides, base, &mut problems);
            (settings, Some(hidden))
        }
        None => (None, None),
    };
    let failed = problems.iter().any(|problem| problem.severity == Severity::Error);
    let masked = (!problems.is_empty()).then(|| match &hidden {
        Some(hidden) => mask::mask(source, hidden),
        None => mask::mask_all_but(source, &known_words()),
    });
    let report = ProblemReport::new(name, masked, problems);
    match settings {
        Some(settings) if !failed => Ok(Loaded { settings, warnings: report }),
        Some(_) | None => Err(report),
    }
}

/// Words that excerpts may always show: keys and choices.
fn known_words() -> Vec<&'static str> {
    let keys = docs::homes().iter().map(|(key, _)| *key);
    keys.chain(["true", "false", "auto", "on", "ephemeral", "off", "primary", "fallback", "public"])
        .collect()
}

/// The config as written.
struct ConfigSource<'a> {
    source: &'a str,
    root: tree::Node,
    dropped: Vec<std::ops::Range<usize>>,
}

/// What excerpts must not show.
type Hidden = Vec<(std::ops::Range<usize>, mask::Hide)>;

impl<'a> ConfigSource<'a> {
    fn parse(source: &'a str, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut dropped = Vec::new();
        let root = tree::parse(source, problems, &mut dropped);
        if root.as_ref().is_none_or(|root| matches!(root.kind, tree::NodeKind::Null)) {
            if problems.is_empty() {
                let hint = "write `chains:` with a chain and its upstreams; see `wellhead schema`";
                let problem =
                    Problem::error(&SettingPath::root(), "the config is empty").at(Some(0..0));
                problems.push(problem.hint(hint));
            }
            return None;
        }
        root.map(|root| Self { source, root, dropped })
    }

    /// As meant. The settings are only sound when no problem is an error.
    fn resolve(
        mut self,
        lookup: EnvLookup<'_>,
        overrides: Overrides,
        base: Option<&FilePath>,
        problems: &mut Vec<Problem>,
    ) -> (Option<Settings>, Hidden) {
        tree::fill(&mut self.root, self.source, lookup, problems);
        let mut reader = ConfigReader {
            path: SettingPath::root(),
            problems,
            blanks: Vec::new(),
            hidden: self.dropped.into_iter().map(|span| (span, mask::Hide::Whole)).collect(),
            known_keys: docs::homes(),
        };
        let settings = Settings::read(&self.root, &mut reader);
        let ConfigReader { hidden, blanks, .. } = reader;
        let Some(mut settings) = settings else { return (None, hidden) };
        settings.listen = overrides.listen.unwrap_or(settings.listen);
        settings.admin = overrides.admin.unwrap_or(settings.admin);
        let mut keys = None;
        if let Some(base) = base {
            settings.find_files(base, problems);
            keys = settings.access.find_files(base, overrides.may_lack_keys, problems);
            settings.usage.find_files(base, problems);
            settings.take_profiles(&self.root, base, problems);
        }
        check::name_upstreams(&mut settings);
        if let Some(base) = base {
            settings.take_studies(&self.root, base, problems);
        }
        check::check(&settings, Some(&self.root), &blanks, keys, problems);
        for problem in problems.iter_mut().filter(|problem| problem.span.is_none()) {
            problem.span = Some(self.root.span_of(&problem.path));
        }
        (Some(settings), hidden)
    }
}

impl Settings {
    /// Whether what some upstream, tenant or key may spend in a day or a month has a cap.
    pub fn has_caps(&self) -> bool {
        let is_capped = |quota: &QuotaConfig| {
            quota.credits_per_day.is_some() || quota.credits_per_month.is_some()
        };
        self.capped().is_some() || self.quotas.iter().any(|(_, quota)| is_capped(quota))
    }

    /// The first upstream with such a cap.
    pub(crate) fn capped(&self) -> Option<SettingPath> {
        self.chains.iter().find_map(|(name, chain)| {
            let index = chain.upstreams.iter().position(Upstream::has_cap)?;
            Some(SettingPath::root().key("chains").key(name.as_ref()).key("upstreams").item(index))
        })
    }

    /// As YAML, defaults filled in, secrets as `***`. Each upstream has a comment on what is
    /// derived from where it stands.
    pub fn render(&self) -> String {
        let mut yaml = Setting::write(self);
        for (name, chain) in self.chains.iter().filter(|(_, chain)| chain.verify.level.is_none()) {
            let written = yaml.at(&["chains", name.as_ref(), "upstreams"]);
            let Some(Yaml::List(items)) = written else { continue };
            for (upstream, item) in chain.upstreams.iter().zip(items) {
                let words = match upstream.is_own() {
                    true => "off, as for upstreams of your own",
                    false => "cheap, as for upstreams of others",
                };
                item.note("verify", words);
            }
        }
        yaml.document()
    }

    /// With the keys of this file, beside nothing else that is said of callers.
    #[must_use]
    pub fn with_keys(mut self, file: PathBuf) -> Self {
        self.access.keys = Some(AccessKeys { file: Some(file), ..AccessKeys::default() });
        self
    }

    /// Makes the paths of files absolute to the config's directory and reports those that
    /// are missing or cannot be used.
    fn find_files(&mut self, base: &FilePath, problems: &mut Vec<Problem>) {
        if let Some(tls) = self.tls.as_mut() {
            tls.find_files(&SettingPath::root().key("tls"), base, problems);
        }
        if let Some(tls) = self.admin_access.tls.as_mut() {
            tls.find_files(&SettingPath::root().key("admin_access").key("tls"), base, problems);
        }
        self.each_upstream(|path, _, upstream| {
            let ca_file = upstream.ca_file.as_mut();
            find_authorities(ca_file, &path.key("ca_file"), base, problems);
            identity::find_identity(upstream, path, base, problems);
        });
    }
}

/// Makes the path of a file of certificates absolute, and reports it if it cannot be used.
fn find_authorities(
    file: Option<&mut PathBuf>,
    path: &SettingPath,
    base: &FilePath,
    problems: &mut Vec<Problem>,
) {
    let Some(file) = found(file, base) else { return };
    let told = match authorities(file) {
        Ok(_) => return,
        Err(UnusableCertificates::Missing) => {
            format!("there is no file at `{}`", file.display())
        }
        Err(UnusableCertificates::Other(why)) => {
            format!("`{}` cannot be used: {why}", file.display())
        }
    };
    problems.push(Problem::error(path, told).hint(RELATIVE_PATHS));
}

/// Why a file of certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnusableCertificates {
    /// There is none.
    #[error("there is no such file")]
    Missing,
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

/// The certificates in a `ca_file`, in PEM, each of which can be trusted.
pub(crate) fn authorities(path: &FilePath) -> Result<Vec<u8>, UnusableCertificates> {
    let pem = file::read_regular(path, CA_BYTES_MAX).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => UnusableCertificates::Missing,
        _ => UnusableCertificates::Other(error.to_string()),
    })?;
    match wellhead_net::TrustedRoots::Only(&pem).check() {
        Ok(()) => Ok(pem),
        Err(error) => Err(UnusableCertificates::Other(error.to_string())),
    }
}

/// What makes `mixed` unusable, and neither of the settings that it is a mixture of.
pub(crate) fn misfits(mixed: &Settings, of: [&Settings; 2]) -> Vec<String> {
    let errors = |settings: &Settings| {
        let mut problems = Vec::new();
        check::check(settings, None, &[], None, &mut problems);
        problems.retain(|problem| problem.severity == Severity::Error);
        problems
    };
    // What takes the text to be seen is found in each of them, or in none.
    let known = of.map(errors).concat();
    let misfits = errors(mixed).into_iter().filter(|problem| !known.contains(problem));
    misfits.map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
}

/// The hint at a file that is not there.
const RELATIVE_PATHS: &str = "relative paths are seen from the directory of the config";

impl TlsClients {
    /// As `server` takes them.
    fn files(&self) -> ClientFiles {
        ClientFiles { ca: self.ca.clone(), required: self.required, crl: self.crl.clone() }
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        iter::once(&self.ca).chain(&self.crl)
    }

    fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        iter::once(&mut self.ca).chain(&mut self.crl)
    }
}

impl Tls {
    /// Where the files are. Without `acme` the check has seen to it that they are given.
    pub fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.certificate.clone().unwrap_or_default(),
            key: self.key.clone().map(|key| key.0).unwrap_or_default(),
            clients: self.clients(),
        }
    }

    /// What clients are verified by.
    pub fn clients(&self) -> Option<ClientFiles> {
        self.clients.as_ref().map(TlsClients::files)
    }

    /// All files, and the directory of `acme`.
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let key = self.key.as_ref().map(|key| &key.0);
        let acme = self.acme.iter().flat_map(|acme| iter::once(&acme.cache).chain(&acme.ca));
        let clients = self.clients.iter().flat_map(TlsClients::paths);
        self.certificate.iter().chain(key).chain(acme).chain(clients)
    }

    fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let key = self.key.as_mut().map(|key| &mut key.0);
        let acme = self.acme.iter_mut();
        let acme = acme.flat_map(|acme| iter::once(&mut acme.cache).chain(&mut acme.ca));
        let clients = self.clients.iter_mut().flat_map(TlsClients::paths_mut);
        self.certificate.iter_mut().chain(key).chain(acme).chain(clients)
    }

    /// Makes the paths absolute and reports files that cannot be used.
    fn find_files(&mut self, at: &SettingPath, base: &FilePath, problems: &mut Vec<Problem>) {
        // What could not be read has its problem already.
        if !make_absolute(self.paths_mut(), base) {
            return;
        }
        let found = match (&self.acme, &self.certificate, &self.key) {
            (Some(acme), None, None) => {
                let clients = self.clients().map(|clients| clients.problems());
                acme.order().problems().into_iter().chain(clients.unwrap_or_default()).collect()
            }
            (None, Some(_), Some(_)) => self.files().problems(),
            // The check tells what is missing, or too much.
            (_, _, _) => Vec::new(),
        };
        tell_files(&found, at, problems);
    }
}

impl AdminTls {
    /// Where the files are.
    pub fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.certificate.clone(),
            key: self.key.0.clone(),
            clients: self.clients.as_ref().map(TlsClients::files),
        }
    }

    /// All files.
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let clients = self.clients.iter().flat_map(TlsClients::paths);
        [&self.certificate, &self.key.0].into_iter().chain(clients)
    }

    /// Makes the paths absolute and reports files that cannot be used.
    fn find_files(&mut self, at: &SettingPath, base: &FilePath, problems: &mut Vec<Problem>) {
        let clients = self.clients.iter_mut().flat_map(TlsClients::paths_mut);
        let paths = [&mut self.certificate, &mut self.key.0].into_iter().chain(clients);
        if make_absolute(paths, base) {
            tell_files(&self.files().problems(), at, problems);
        }
    }
}

/// Makes paths absolute to `base`; says no if one of them could not be read.
fn make_absolute<'a>(paths: impl Iterator<Item = &'a mut PathBuf>, base: &FilePath) -> bool {
    let mut paths: Vec<_> = paths.collect();
    if paths.iter().any(|path| path.as_os_str().is_empty()) {
        return false;
    }
    for path in &mut paths {
        **path = base.join(&**path);
    }
    true
}

/// Reports what is wrong with the files of a listener's TLS.
fn tell_files(found: &[TlsProblem], at: &SettingPath, problems: &mut Vec<Problem>) {
    for problem in found {
        let path = match problem.file {
            TlsFile::Certificate => at.key("certificate"),
            TlsFile::Key => at.key("key"),
            TlsFile::ClientAuthority => at.key("clients").key("ca"),
            TlsFile::RevocationList(index) => at.key("clients").key("crl").item(index),
            TlsFile::AcmeCache => at.key("acme").key("cache"),
            TlsFile::AcmeAuthority => at.key("acme").key("ca"),
        };
        let told = Problem::error(&path, problem.to_string());
        problems.push(if problem.path.exists() { told } else { told.hint(RELATIVE_PATHS) });
    }
}

/// Reads an `--admin` argument.
pub fn parse_admin(text: &str) -> Result<Admin, String> {
    argument(text)
}

/// Reads a time on the command line: `5s`, `10m`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let time: Duration = argument(text)?;
    match time.is_zero() {
        true => Err("it is longer than nothing".to_owned()),
        false => Ok(time),
    }
}

/// Reads a `--role` argument.
pub fn parse_role(text: &str) -> Result<AdminRole, String> {
    argument(text)
}

/// Reads a `--listen` argument.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    argument(text)
}

/// The message and hint of a value as one line, for the command line.
fn argument<T: SettingWord>(text: &str) -> Result<T, String> {
    T::parse(text).map_err(|wrong| match wrong.hint {
        Some(hint) => format!("{}: {hint}", wrong.message),
        None => wrong.message,
    })
}
