//! The commands' parts together, on a file.

use super::*;
use wellhead_access::ApiKey;

const CONFIG: &str = "
chains:
  ethereum: { id: 1, aliases: [eth], upstreams: [{ url: \"http://a\" }] }
  base: { id: 8453, upstreams: [{ url: \"http://b\" }] }
tenants: { acme: { quota: pro } }
quotas: { pro: { calls_per_second: 10 } }
";

fn settings(more: &str) -> Settings {
    config::sound(&format!("{CONFIG}{more}"))
}

fn context(more: &str) -> KeyContext {
    let made = KeyContext::with_config(&settings(more), None);
    made.unwrap_or_else(|error| panic!("{}", error.text()))
}

fn made(context: &KeyContext, order: &KeyOrder) -> Result<ShownKey, String> {
    let mut rng = StdRng::seed_from_u64(1);
    let made = change::make(order, &context.rules, |_| false, 1000, &mut rng);
    made.map_err(|problem| problem.to_string())
}

fn order_for(tenant: &str) -> KeyOrder {
    KeyOrder { tenant: tenant.to_owned(), ..KeyOrder::default() }
}

#[track_caller]
fn check(order: &KeyOrder, want: &str) {
    let problem = made(&context(""), order).err().unwrap_or_default();
    assert_eq!(problem, want);
}

#[test]
fn what_the_config_does_not_allow_is_told() {
    let acme = || order_for("acme");
    check(&acme(), "");
    check(&order_for("acne"), "tenant: there is no tenant `acne`: there are acme");
    check(
        &KeyOrder { quota: Some("por".to_owned()), ..acme() },
        "quota: there is no quota `por`: there are pro",
    );
    let chains = |names: &[&str]| RightsSettings {
        chains: Some(names.iter().map(|&name| name.to_owned()).collect()),
        ..RightsSettings::default()
    };
    check(
        &KeyOrder { rights: chains(&["base", "eth", "1", "sepolia"]), ..acme() },
        "rights.chains: the chain `eth` is named `ethereum` here: write that\n\
         rights.chains: the chain `1` is named `ethereum` here: write that\n\
         rights.chains: there is no chain `sepolia`: there are ethereum, base",
    );
    check(
        &KeyOrder { note: Some("a\nb".to_owned()), ..acme() },
        "note: a note is one line of 1 to 256 bytes",
    );
    let key = "wh_live_7c9xk2ma_0123456789abcdefghjkmnpqrs_6axtey".to_owned();
    check(
        &KeyOrder { note: Some(key.clone()), ..acme() },
        "note: there is a key in it, which would be shown",
    );
    check(&order_for(&key), "tenant: there is no tenant `wh_***`: there are acme");
    check(
        &KeyOrder { env: Some("Live".to_owned()), ..acme() },
        "env: expected 1 to 8 small letters and digits that begin with a letter, such as `live`",
    );
}

#[test]
fn without_a_file_the_words_say_what_to_do() {
    let problem = |more| context(more).store().unwrap_err().to_string();
    assert!(problem("").contains("set `access.keys.file` in the config, or give --file"));
    let redis = "shared: { redis: \"redis://a\" }\naccess: { keys: { redis: true } }";
    let problem = problem(redis);
    assert!(problem.contains("use the admin API (POST /keys)"), "{problem}");
    assert!(problem.contains("or name a file with --file"), "{problem}");
}

#[test]
fn the_line_that_is_printed_leads_to_the_proxy() {
    let context = context("listen: \"0.0.0.0:99\"\naccess: { keys: { file: k, env: test } }");
    let shown = made(&context, &order_for("acme")).unwrap();
    let key = shown.text.expose();
    assert!(key.starts_with("wh_test_"));
    let usage = context.usage(&shown);
    assert!(usage.starts_with(&format!("curl http://127.0.0.1:99/ethereum/{key} -H ")), "{usage}");
    let alone = KeyContext::without_config(Path::new("keys.jsonl"));
    let shown = made(&alone, &order_for("anything")).unwrap();
    assert!(alone.usage(&shown).starts_with("curl http://127.0.0.1:4545/wh_live_"));
}

/// What is printed for the config can be pasted, and accepts the key.
#[test]
fn the_item_for_the_config_is_read_back() {
    let order = KeyOrder {
        quota: Some("pro".to_owned()),
        note: Some("a \"note\": x".to_owned()),
        rights: RightsSettings {
            methods: MethodRightsSettings {
                allow: Some(vec!["eth_*".to_owned()]),
                deny: Vec::new(),
            },
            networks: Some(vec!["10.0.0.0/8".to_owned()]),
            ..RightsSettings::default()
        },
        ..order_for("acme")
    };
    let shown = made(&context(""), &order).unwrap();
    let yaml = view::yaml(&shown.record);
    assert!(!yaml.contains(&shown.text.expose()[17..]));
    let settings = settings(&yaml);
    let key = &settings.access.keys.as_ref().unwrap().list[0];
    assert_eq!((key.id, key.hash == shown.record.hash), (shown.record.id, true));
    assert_eq!(key.note.as_ref().unwrap().0, "a \"note\": x");
    assert_eq!(callers::rights(&key.rights), order.rights);
}

#[test]
fn a_key_lives_through_its_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.jsonl");
    let context = KeyContext::without_config(&path);
    let (store, rules) = (context.store().unwrap(), &context.rules);
    let mut rng = StdRng::seed_from_u64(7);
    let order = KeyOrder { lifetime: Some(Duration::from_secs(1000)), ..order_for("acme") };
    let made = |list: &mut KeyList, rng: &mut StdRng| change::create(list, &order, rules, 50, rng);
    let first = store.change(|list| made(list, &mut rng)).unwrap().outcome;
    let id = first.record.id;
    assert_eq!(first.record.expires_at.map(|at| at.0), Some(1050));
    let overlap = Duration::from_secs(60);
    let next = store
        .change(|list| change::rotate(list, id, overlap, rules, 100, &mut rng))
        .unwrap()
        .outcome;
    assert_eq!(ApiKey::parse(next.text.expose()).unwrap().id(), id);
    let record = store.read().unwrap().get(id).unwrap().clone();
    let previous = record.previous.unwrap();
    assert!(previous.hash == rules.pepper.hash(first.text.expose()));
    assert_eq!(previous.valid_until.0, 160);
    assert!(record.hash == rules.pepper.hash(next.text.expose()));
    let revoke = |now| store.change(|list| change::revoke(list, id, now)).unwrap().outcome;
    assert_eq!(revoke(200).revoked_at.map(|at| at.0), Some(200));
    assert_eq!(revoke(300).revoked_at.map(|at| at.0), Some(200), "the first time counts");
    let problem = |list: &mut KeyList| {
        change::rotate(list, id, overlap, rules, 400, &mut StdRng::seed_from_u64(9))
    };
    let problem = store.change(problem).unwrap_err();
    assert_eq!(problem, KeyProblem::Conflict(format!("the key {id} is revoked: make a new one")));
    let file = std::fs::read_to_string(&path).unwrap();
    for shown in [&first, &next] {
        let secret = &shown.text.expose()[17..43];
        let pages = [file.clone(), view::json(&record, 0).to_string(), view::page(&record, 0)];
        assert!(pages.iter().all(|page| !page.contains(secret)), "{pages:?}");
        assert!(!format!("{shown:?}").contains(secret));
    }
}

#[test]
fn a_pasted_key_is_not_quoted() {
    let key = "wh_live_7c9xk2ma_0123456789abcdefghjkmnpqrs_6axtey";
    let problem = key_id(key).unwrap_err().to_string();
    assert!(problem.ends_with("; the id of a key is its third part: wh_live_ID_..."), "{problem}");
    assert!(!problem.contains("0123456789abcdef"));
}

#[test]
fn keys_of_others_are_taken_once() {
    let pepper = "11".repeat(32);
    let context = context(&format!("access: {{ keys: {{ file: k, pepper: \"{pepper}\" }} }}"));
    let ours = made(&context, &order_for("acme")).unwrap();
    let text = format!("sixteen-characters-1,one\nshort\n{}\nwh_live_x\n", ours.text.expose());
    let mut list = KeyList::default();
    let mut take = || {
        let keys = import::read(ImportFormat::Plain, &text, &|_| None);
        change::import(&mut list, keys.entries, &order_for("acme"), &context.rules, 5)
    };
    let first = take();
    assert_eq!((first.added, first.known), (2, 0));
    assert_eq!(
        first.problems,
        [
            "line 2: a key has at least 16 characters: shorter ones are guessed",
            "line 4: a key has 47 to 54 characters: some are missing, or there are too many",
        ]
    );
    let again = take();
    assert_eq!((again.added, again.known), (0, 2));
    let (id, hash) = context.rules.pepper.hash_foreign("sixteen-characters-1").unwrap();
    let record = list.get(id).unwrap();
    assert!(record.hash == hash && record.note.as_deref() == Some("one"));
    assert_eq!(list.get(ours.record.id).map(|it| it.id), Some(ours.record.id));
    assert!(!list.to_text().contains("sixteen") && !list.to_text().contains(ours.text.expose()));
}
