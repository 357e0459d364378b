//! What differs between two settings, in words; and which of it needs a restart.

use super::access::AccessKeys;
use super::callers::tells_callers_apart;
use super::read::Setting;
use super::settings::Settings;
use super::traces::TracesConfig;
use super::write::Yaml;

/// What became of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// It is new: an upstream, a chain, a tenant.
    Added,
    /// It is gone.
    Removed,
    /// It has another value.
    Changed,
    /// It names the file that it named, which has another content.
    Content,
}

impl ChangeKind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed | Self::Content => "changed",
        }
    }

    /// `+`, `-` or `~`.
    pub(crate) fn sign(self) -> char {
        match self {
            Self::Added => '+',
            Self::Removed => '-',
            Self::Changed | Self::Content => '~',
        }
    }
}

/// One setting that differs. Secrets are hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettingChange {
    pub(crate) kind: ChangeKind,
    /// `chains.ethereum.upstreams.geth-a.tier`; of a list whose items have ids, the id is in the place of the number.
    pub(crate) path: String,
    pub(crate) from: String,
    pub(crate) to: String,
}

impl SettingChange {
    /// The file that this setting names has another content.
    pub(crate) fn content(path: String) -> Self {
        Self { kind: ChangeKind::Content, path, from: String::new(), to: String::new() }
    }
}

impl std::fmt::Display for SettingChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, path, from, to } = self;
        write!(f, "{} {path}", kind.sign())?;
        match kind {
            ChangeKind::Changed if from == to => f.write_str(": another secret"),
            ChangeKind::Changed => write!(f, ": {from} -> {to}"),
            ChangeKind::Content => f.write_str(": the file has another content"),
            ChangeKind::Added | ChangeKind::Removed => Ok(()),
        }
    }
}

/// What differs, in the order of the settings.
pub(crate) fn changes(old: &Settings, new: &Settings) -> Vec<SettingChange> {
    let mut found = Vec::new();
    compare("", &Setting::write(old), &Setting::write(new), &mut found);
    hidden(old, new, &mut found);
    found
}

/// Secrets that differ, which look alike when they are written.
fn hidden(old: &Settings, new: &Settings, found: &mut Vec<SettingChange>) {
    let mut note = |path: String, differs: bool| {
        let is_told = |change: &SettingChange| change.path.starts_with(&path);
        if differs && !found.iter().any(is_told) {
            let (from, to) = ("***".to_owned(), "***".to_owned());
            found.push(SettingChange { kind: ChangeKind::Changed, path, from, to });
        }
    };
    for (name, chain) in new.chains.iter() {
        let Some((_, before)) = old.chains.iter().find(|(known, _)| *known == *name) else {
            continue;
        };
        for upstream in &chain.upstreams {
            let Some(before) = before.upstreams.iter().find(|it| it.id == upstream.id) else {
                continue;
            };
            let path =
                |key: &str| format!("chains.{}.upstreams.{}.{key}", name.as_ref(), upstream.id);
            note(path("url"), before.url != upstream.url);
            note(path("ws"), before.ws != upstream.ws);
            note(path("headers"), before.headers != upstream.headers);
            note(path("auth"), before.auth != upstream.auth);
        }
    }
    note("access".to_owned(), old.access != new.access);
    note("shared".to_owned(), old.shared != new.shared);
    note("cache".to_owned(), old.cache != new.cache);
    note("usage".to_owned(), old.usage != new.usage);
    note("traces".to_owned(), old.traces != new.traces);
    note("admin_access".to_owned(), old.admin_access != new.admin_access);
    note("tls".to_owned(), old.tls != new.tls);
}

fn compare(path: &str, old: &Yaml, new: &Yaml, found: &mut Vec<SettingChange>) {
    let entries = |yaml: &Yaml| match yaml {
        Yaml::Map(entries) => Some(entries.clone()),
        Yaml::List(items) => by_id(items),
        Yaml::Plain(_) | Yaml::Text(_) | Yaml::Noted(..) | Yaml::Absent | Yaml::Derived(_) => None,
    };
    if let (Some(old), Some(new)) = (entries(old), entries(new)) {
        return compare_entries(path, &old, &new, found);
    }
    let (from, to) = (old.inline(), new.inline());
    if from != to {
        found.push(SettingChange { kind: ChangeKind::Changed, path: path.to_owned(), from, to });
    }
}

fn compare_entries(
    path: &str,
    old: &[(String, Yaml)],
    new: &[(String, Yaml)],
    found: &mut Vec<SettingChange>,
) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    let mut note = |kind, key: &str| {
        let (from, to) = (String::new(), String::new());
        found.push(SettingChange { kind, path: below(key), from, to });
    };
    let has = |entries: &[(String, Yaml)], key: &str| entries.iter().any(|(known, _)| known == key);
    for (key, _) in old.iter().filter(|(key, _)| !has(new, key)) {
        note(ChangeKind::Removed, key);
    }
    for (key, _) in new.iter().filter(|(key, _)| !has(old, key)) {
        note(ChangeKind::Added, key);
    }
    for (key, value) in new {
        if let Some((_, before)) = old.iter().find(|(known, _)| known == key) {
            compare(&below(key), before, value, found);
        }
    }
}

/// The items of a list by their ids, if each has one.
fn by_id(items: &[Yaml]) -> Option<Vec<(String, Yaml)>> {
    let id = |item: &Yaml| {
        let Yaml::Map(entries) = item else { return None };
        match entries.iter().find(|(key, _)| key == "id")?.1.clone() {
            Yaml::Plain(id) | Yaml::Text(id) | Yaml::Noted(id, _) => Some((id, item.clone())),
            Yaml::List(_) | Yaml::Map(_) | Yaml::Absent | Yaml::Derived(_) => None,
        }
    };
    items.iter().map(id).collect()
}

/// Writes the list of settings that need a restart, and what keeps them as they are.
macro_rules! needs_restart {
    ($($first:ident $(. $rest:ident)*),+ $(,)?) => {
        /// Settings that need a restart, as the reference marks them: what listens, where threads, files and stores
        /// are opened once, and what is read once.
        pub(crate) const NEEDS_RESTART: &[&str] = &[
            $(concat!(stringify!($first) $(, ".", stringify!($rest))*),)+
            // Of sections that may be absent: what reads and writes keys,
            "access.keys.file",
            "access.keys.redis",
            "access.keys.stale_max",
            // and how traces are sent.
            "traces.endpoint",
            "traces.headers",
            "traces.auth",
            "traces.queue",
            "traces.timeout",
            "traces.service",
            "traces.instance",
        ];

        fn keep(kept: &mut Settings, old: &Settings) {
            $(kept.$first $(. $rest)* = old.$first $(. $rest)*.clone();)+
        }
    };
}

needs_restart! {
    listen,
    hosts,
    tls,
    admin,
    admin_hosts,
    admin_access,
    state,
    workers,
    reload,
    log,
    limits.body_bytes,
    limits.bodies_total_bytes,
    limits.header_bytes,
    limits.answers_total_bytes,
    limits.connections,
    limits.connections_per_address,
    limits.in_flight,
    limits.shares,
    timeouts.header,
    timeouts.body,
    timeouts.idle,
    timeouts.write,
    timeouts.shutdown_delay,
    timeouts.drain,
    cache,
    compression,
    cors,
    access.jwt,
    access.proxies,
    shared,
    usage,
}

/// `new`, but for what needs a restart, which stays as it is in `old`; and whether callers are told apart, which stays,
/// too.
pub(crate) fn as_far_as_it_reloads(old: &Settings, new: &Settings) -> Settings {
    let mut kept = new.clone();
    if tells_callers_apart(old) != tells_callers_apart(&kept) {
        kept.access = old.access.clone();
        (kept.tenants, kept.quotas) = (old.tenants.clone(), old.quotas.clone());
    }
    keep(&mut kept, old);
    kept.access.keys = match (kept.access.keys, &old.access.keys) {
        (Some(new), Some(AccessKeys { file, redis, stale_max, .. })) => {
            let (file, redis, stale_max) = (file.clone(), *redis, *stale_max);
            Some(AccessKeys { file, redis, stale_max, ..new })
        }
        // Without keys there is nothing that reads and writes them.
        (_, old) => old.clone(),
    };
    kept.traces = match (&new.traces, &old.traces) {
        (Some(new), Some(old)) => {
            let TracesConfig { sample, always, parent, .. } = new.clone();
            Some(TracesConfig { sample, always, parent, ..old.clone() })
        }
        // Nothing sends them yet, or still does.
        (_, old) => old.clone(),
    };
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sound;

    fn told(old: &str, new: &str) -> Vec<String> {
        let found = changes(&sound(old), &sound(new));
        found.iter().map(ToString::to_string).collect()
    }

    const BASE: &str = "chains: { eth: { id: 1, upstreams: [{ id: a, url: 'http://a/key' }, { id: b, url: 'http://b' }] } }";

    #[test]
    fn differences_are_told_by_name() {
        assert_eq!(told(BASE, BASE), [""; 0]);
        let new = "timeouts: { total: 20s }\nchains: { eth: { id: 1, upstreams: [{ id: b, url: 'http://b', tier: fallback }, { id: c, url: 'http://c' }] }, base: { id: 8453, upstreams: [{ url: 'http://d' }] } }";
        assert_eq!(
            told(BASE, new),
            [
                "~ timeouts.total: 30s -> 20s",
                "+ chains.base",
                "- chains.eth.upstreams.a",
                "+ chains.eth.upstreams.c",
                "~ chains.eth.upstreams.b.tier: primary -> fallback",
            ]
        );
    }

    #[test]
    fn a_secret_is_told_and_not_shown() {
        let new = BASE.replace("http://a/key", "http://a/other");
        assert_eq!(told(BASE, &new), ["~ chains.eth.upstreams.a.url: another secret"]);
    }

    #[test]
    fn what_needs_a_restart_stays() {
        let new = format!(
            "listen: 127.0.0.1:9\nworkers: 3\nlimits: {{ in_flight: 5, batch_items: 7 }}\n{BASE}"
        );
        let (old, new) = (sound(BASE), sound(&new));
        let kept = as_far_as_it_reloads(&old, &new);
        let applied: Vec<_> = changes(&old, &kept).iter().map(ToString::to_string).collect();
        assert_eq!(applied, ["~ limits.batch_items: 1000 -> 7"]);
        let left: Vec<_> = changes(&kept, &new).into_iter().map(|change| change.path).collect();
        assert_eq!(left, ["listen", "workers", "limits.in_flight"]);
        let is_listed = |path: &String| NEEDS_RESTART.contains(&path.as_str());
        assert!(left.iter().all(is_listed));
    }

    #[test]
    fn which_traces_are_kept_is_reloaded_and_where_they_go_is_not() {
        let traces = |more: &str| sound(&format!("traces: {{ {more} }}\n{BASE}"));
        let old = traces("endpoint: 'http://c/v1/traces'");
        let new = traces(
            "endpoint: 'http://d/v1/traces', queue: 100, sample: 100%, parent: follow, always: { slow: 2s }",
        );
        let check = |old: &Settings, new: &Settings, applied: &[&str], left: &[&str]| {
            let kept = as_far_as_it_reloads(old, new);
            let paths = |found: Vec<SettingChange>| -> Vec<String> {
                found.into_iter().map(|change| change.path).collect()
            };
            assert_eq!(paths(changes(old, &kept)), applied);
            assert_eq!(paths(changes(&kept, new)), left);
        };
        let rules = ["traces.sample", "traces.always.slow", "traces.parent"];
        check(&old, &new, &rules, &["traces.endpoint", "traces.queue"]);
        check(&sound(BASE), &new, &[], &["traces"]);
        check(&new, &sound(BASE), &[], &["traces"]);
    }
}
