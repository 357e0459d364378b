//! `wellhead key`: the keys of clients, made and changed on a file.
//!
//! - `order`: what a new key should be, and what the settings allow
//! - `change`: what is done to keys; shared with the admin listener
//! - `store`, `list`: the file
//! - `import`: files of other proxies
//! - `view`: how keys are shown
//!
//! The secret of a key is printed when it is made and when it is rotated, on standard output, and nowhere
//! else.

pub(crate) mod change;
mod import;
mod list;
mod order;
mod problem;
mod store;
pub(crate) mod view;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::json;
use wellhead_access::{
    KeyRecord, MeterBook, MethodRightsSettings, Pepper, RightsSettings, TenantDirectory,
};
use wellhead_telemetry::clock;

pub(crate) use change::{ShownKey, key_id};
pub(crate) use list::KeyList;
pub(crate) use order::{ChainNames, KeyOrder, KeyRules, overlap_from_json};
pub(crate) use problem::KeyProblem;
pub(crate) use store::{ChangedKeys, KeyStore};

use crate::cli::key::{
    CreateKey, ImportFormat, ImportKeys, KeyCommand, KeyPlaceArguments, ListKeys, RevokeKey,
    RotateKey, ShowKey,
};
use crate::config::callers;
use crate::config::file;
use crate::config::{self, Overrides, Settings};
use crate::terminal::{CommandError, complain, environment, rendered, say};

/// The old secret stays valid for so long if nothing else is said.
pub(crate) const ROTATION_OVERLAP: Duration = Duration::from_secs(86_400);

/// What the arguments and the config say of keys.
struct KeyContext {
    rules: KeyRules,
    /// `None`: no file is named, in these words.
    store: Result<KeyStore, KeyProblem>,
    /// Where a client sends calls: `http://127.0.0.1:4545`.
    url: String,
    /// Whether keys that were not made here are accepted, if that is known.
    accepts_foreign: Option<bool>,
}

impl From<KeyProblem> for CommandError {
    fn from(problem: KeyProblem) -> Self {
        match problem {
            KeyProblem::Wrong(text) | KeyProblem::NotFound(text) | KeyProblem::Conflict(text) => {
                Self::Config(text)
            }
            KeyProblem::Unavailable(text) | KeyProblem::System(text) => Self::System(text),
        }
    }
}

/// Does what the arguments say.
pub(crate) fn command(command: &KeyCommand) -> Result<(), CommandError> {
    let now = clock::unix_seconds();
    match command {
        KeyCommand::Create(arguments) => create(arguments, now),
        KeyCommand::List(arguments) => list_keys(arguments, now),
        KeyCommand::Show(arguments) => show(arguments, now),
        KeyCommand::Revoke(arguments) => revoke(arguments, now),
        KeyCommand::Rotate(arguments) => rotate(arguments, now),
        KeyCommand::Import(arguments) => import_keys(arguments, now),
    }
}

impl KeyContext {
    fn of(place: &KeyPlaceArguments) -> Result<Self, CommandError> {
        match (&place.config, &place.file) {
            (None, Some(file)) => Ok(Self::without_config(file)),
            (named, file) => {
                let path = config::find(named.as_deref()).map_err(|error| {
                    // What else it says is for `wellhead serve`.
                    let error = error.to_string();
                    let what = error.lines().next().unwrap_or_default();
                    let hint = "name one with -c CONFIG, or a file of keys with --file keys.jsonl";
                    CommandError::Config(format!("{what}\n{hint}"))
                })?;
                // The first key makes the file.
                let overrides = Overrides { may_lack_keys: true, ..Overrides::default() };
                let loaded = config::load(&path, &environment, overrides)
                    .map_err(|report| CommandError::Config(rendered(&report)))?;
                Self::with_config(&loaded.settings, file.as_deref())
            }
        }
    }

    fn without_config(file: &Path) -> Self {
        let quotas = std::iter::empty();
        let tenants = TenantDirectory::new(&[], quotas, Arc::default(), &mut Vec::new()).open();
        Self {
            rules: KeyRules {
                tenants: Arc::new(tenants),
                pepper: Pepper::well_known(),
                env: "live".to_owned(),
                chains: None,
                knows_quotas: false,
            },
            store: Ok(KeyStore(file.to_owned())),
            url: "http://127.0.0.1:4545".to_owned(),
            accepts_foreign: None,
        }
    }

    fn with_config(settings: &Settings, file: Option<&Path>) -> Result<Self, CommandError> {
        let mut problems = Vec::new();
        let tenants = callers::tenants(settings, Arc::new(MeterBook::default()), &mut problems);
        let keys = settings.access.keys.as_ref();
        let pepper = callers::pepper(keys, &mut problems);
        if !problems.is_empty() {
            return Err(CommandError::Config(problems.join("\n")));
        }
        let own = keys.and_then(|keys| keys.file.clone());
        let store = file.map(Path::to_owned).or(own).map(KeyStore);
        Ok(Self {
            rules: KeyRules {
                tenants,
                pepper,
                env: keys.map_or("live", |keys| keys.env.as_ref()).to_owned(),
                chains: Some(ChainNames::of(settings)),
                knows_quotas: true,
            },
            store: store.ok_or_else(|| no_store(keys.is_some_and(|keys| keys.redis))),
            url: url(settings),
            accepts_foreign: Some(keys.is_some_and(|keys| keys.foreign)),
        })
    }

    fn store(&self) -> Result<&KeyStore, KeyProblem> {
        self.store.as_ref().map_err(Clone::clone)
    }

    /// How a key is used, in a line for a shell.
    fn usage(&self, shown: &ShownKey) -> String {
        let all = self.rules.chains.as_ref().map_or(&[][..], |chains| &chains.names);
        let allowed = shown.record.rights.chains.iter().flatten().next();
        let chain = allowed.or(all.first()).filter(|_| all.len() > 1);
        let chain = chain.map(|chain| format!("/{chain}")).unwrap_or_default();
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}"#;
        let (url, key) = (&self.url, shown.text.expose());
        format!("curl {url}{chain}/{key} -H 'content-type: application/json' -d '{body}'")
    }
}

fn no_store(is_in_redis: bool) -> KeyProblem {
    KeyProblem::Wrong(match is_in_redis {
        true => {
            "`access.keys.redis` is set, and this command cannot change keys in Redis: use the \
                 admin API (POST /keys), or name a file with --file"
                .to_owned()
        }
        false => "no file of keys is named: set `access.keys.file` in the config, or give \
                  --file keys.jsonl"
            .to_owned(),
    })
}

/// Where a client on this machine reaches the proxy.
fn url(settings: &Settings) -> String {
    let mut listen = settings.listen;
    if listen.ip().is_unspecified() {
        listen.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{listen}")
}

fn order(arguments: &CreateKey) -> KeyOrder {
    let some = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
    KeyOrder {
        tenant: arguments.tenant.clone(),
        quota: arguments.quota.clone(),
        note: arguments.note.clone(),
        env: arguments.env.clone(),
        lifetime: arguments.expires,
        rights: RightsSettings {
            chains: some(&arguments.chains),
            methods: MethodRightsSettings {
                allow: some(&arguments.methods),
                deny: arguments.deny.clone(),
            },
            origins: some(&arguments.origins),
            networks: some(&arguments.networks),
            ..RightsSettings::default()
        },
    }
}

fn create(arguments: &CreateKey, now: u64) -> Result<(), CommandError> {
    let context = KeyContext::of(&arguments.place)?;
    let (order, mut rng) = (order(arguments), StdRng::from_os_rng());
    if arguments.yaml {
        if order.lifetime.is_some() {
            let words = "--expires: a key in the config has no end: remove it there, or use a file";
            return Err(CommandError::Config(words.to_owned()));
        }
        let shown = change::make(&order, &context.rules, |_| false, now, &mut rng)?;
        let key = shown.text.expose();
        say(&format!("key (shown this once): {key}\n\n{}", view::yaml(&shown.record)));
        return Ok(());
    }
    let store = context.store()?;
    let make = |list: &mut KeyList| change::create(list, &order, &context.rules, now, &mut rng);
    let shown = store.change(make)?.outcome;
    if order.quota.is_some() && !context.rules.knows_quotas {
        complain("note: without -c CONFIG nothing says whether the quota exists");
    }
    tell(&context, store, &shown, arguments.json, now);
    Ok(())
}

/// Prints a key, this once.
fn tell(context: &KeyContext, store: &KeyStore, shown: &ShownKey, is_json: bool, now: u64) {
    if is_json {
        let mut value = view::json(&shown.record, now);
        value["key"] = json!(shown.text.expose());
        return say(&value.to_string());
    }
    let (key, place, usage) = (shown.text.expose(), store.place(), context.usage(shown));
    let KeyRecord { id, tenant, .. } = &shown.record;
    say(&format!(
        "key (shown this once): {key}\n\nid {id}, tenant {tenant}, in {place}\n\nuse it:\n  {usage}"
    ));
}

fn list_keys(arguments: &ListKeys, now: u64) -> Result<(), CommandError> {
    let context = KeyContext::of(&arguments.place)?;
    let list = context.store()?.read()?;
    let tenant = arguments.tenant.as_ref();
    let records = list.records().filter(|it| tenant.is_none_or(|tenant| it.tenant == *tenant));
    match arguments.json {
        true => {
            let keys: Vec<_> = records.map(|record| view::json(record, now)).collect();
            say(&json!({ "keys": keys }).to_string());
        }
        false => say(&view::table(records, now)),
    }
    Ok(())
}

fn show(arguments: &ShowKey, now: u64) -> Result<(), CommandError> {
    let id = key_id(&arguments.id)?;
    let context = KeyContext::of(&arguments.place)?;
    let list = context.store()?.read()?;
    let record = list.get(id).ok_or_else(|| change::no_key(id))?;
    match arguments.json {
        true => say(&view::json(record, now).to_string()),
        false => say(&view::page(record, now)),
    }
    Ok(())
}

fn revoke(arguments: &RevokeKey, now: u64) -> Result<(), CommandError> {
    let id = key_id(&arguments.id)?;
    let context = KeyContext::of(&arguments.place)?;
    let record = context.store()?.change(|list| change::revoke(list, id, now))?.outcome;
    let at = record.revoked_at.map(view::instant).unwrap_or_default();
    say(&format!("the key {id} of the tenant {} is revoked since {at} UTC", record.tenant));
    Ok(())
}

fn rotate(arguments: &RotateKey, now: u64) -> Result<(), CommandError> {
    let id = key_id(&arguments.id)?;
    let context = KeyContext::of(&arguments.place)?;
    let (store, rules) = (context.store()?, &context.rules);
    let (overlap, mut rng) = (arguments.overlap, StdRng::from_os_rng());
    let rotate = |list: &mut KeyList| change::rotate(list, id, overlap, rules, now, &mut rng);
    let shown = store.change(rotate)?.outcome;
    tell(&context, store, &shown, arguments.json, now);
    if let Some(previous) = shown.record.previous {
        complain(&format!(
            "the old secret is valid until {} UTC",
            view::instant(previous.valid_until)
        ));
    }
    Ok(())
}

fn import_keys(arguments: &ImportKeys, now: u64) -> Result<(), CommandError> {
    let context = KeyContext::of(&arguments.place)?;
    let store = context.store()?;
    if context.rules.pepper.is_well_known() {
        return Err(CommandError::Config(
            "keys that people chose can be guessed from their hashes: set `access.keys.pepper` in the \
             config (openssl rand -hex 32), and name it with -c"
                .to_owned(),
        ));
    }
    let foreign = read_foreign(&arguments.path, arguments.format)?;
    let order = KeyOrder {
        tenant: arguments.tenant.clone(),
        quota: arguments.quota.clone(),
        ..KeyOrder::default()
    };
    let entries = foreign.entries;
    let import =
        |list: &mut KeyList| Ok(change::import(list, entries, &order, &context.rules, now));
    let imported = store.change(import)?.outcome;
    let (added, known) = (imported.added, imported.known);
    let problems: Vec<_> = foreign.problems.into_iter().chain(imported.problems).collect();
    let (left_out, place) = (problems.len(), store.place());
    say(&format!("{added} keys added to {place}, {known} were there, {left_out} left out"));
    if context.accepts_foreign != Some(true) {
        complain("note: these keys are refused until `access.keys.foreign` is true");
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(CommandError::Config(problems.join("\n"))),
    }
}

fn read_foreign(
    path: &Path,
    format: Option<ImportFormat>,
) -> Result<import::ForeignKeys, CommandError> {
    let failed =
        |why: String| CommandError::System(format!("`{}` cannot be read: {why}", path.display()));
    let text = file::read_any(path, import::IMPORT_BYTES_MAX)
        .and_then(file::text)
        .map_err(|error| failed(error.to_string()))?;
    let format = format.unwrap_or_else(|| import::guess_format(path));
    Ok(import::read(format, &text, &environment))
}

#[cfg(test)]
mod tests;
