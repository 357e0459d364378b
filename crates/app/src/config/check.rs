//! Checks of settings in combination: names used twice, routes that leave no upstream, URLs of
//! the wrong kind.
//!
//! Runs after every value has been read, over settings in which blanks stand for
//! what could not be read; whatever already has a problem is passed over, so that
//! one mistake is told once. Speaks of paths; their place is found in the tree.

mod access;
mod budget;
mod certificate;
mod jwt;
mod listener;
mod method;
mod outgoing;
mod tenant;

use std::collections::{BTreeSet, HashMap};

use url::Url;
use wellhead_access::KeyRecord;
use wellhead_eth::{MethodGlob, MethodTable};
use wellhead_proxy::{Level, QuorumRule};
use wellhead_telemetry::{Secret, SecretUrl, key_in_host};
use wellhead_upstream::{UPSTREAMS_MAX, UpstreamId};
use wellhead_watch::Mode;

use self::certificate::has_tls;
use super::chain::{Auth, Chain, Checks, Methods, Quorum, Route, Upstream};
use super::name::{HeaderName, LabelName};
use super::near::suggestion;
use super::place::reaches;
use super::problem::{Problem, SettingPath, Severity};
use super::read::{Map, listed};
use super::settings::{AdminTls, Settings, Tls};
use super::tree::Node;
use super::value::{CallsOver, TextLine};

/// More chains than there are in the wild.
const CHAINS_MAX: usize = 1_000;

/// Gives every upstream without an id the host of its URL, without labels that look like keys,
/// numbered where taken.
pub(super) fn name_upstreams(settings: &mut Settings) {
    for (_, chain) in &mut settings.chains.0 {
        for index in 0..chain.upstreams.len() {
            if !chain.upstreams[index].id.as_str().is_empty() {
                continue;
            }
            let host = public_host(chain.upstreams[index].url.expose());
            let taken = |name: &str| chain.upstreams.iter().any(|other| other.id.as_str() == name);
            let port = chain.upstreams[index].url.expose().port();
            let name = std::iter::once(host.clone())
                .chain(port.map(|port| format!("{host}:{port}")))
                .chain((2..).map(|n| format!("{host}-{n}")))
                .find(|name| !taken(name))
                .expect("the numbers do not end");
            chain.upstreams[index].id = UpstreamId::new(&name);
        }
    }
}

/// The host as a name. A key in it would be in every metric, log line and answer header.
fn public_host(url: &Url) -> String {
    let mut host = url.host_str().unwrap_or("upstream").to_owned();
    for label in key_in_host(&host).into_iter().rev() {
        host.replace_range(label.start..label.end + ".".len(), "");
    }
    host.retain(|c| !matches!(c, '[' | ']'));
    host
}

/// Finds every problem that needs more than one value to be seen.
///
/// `blanks` are the places of what could not be read, `keys` what stands in the file of keys, if it
/// was read.
pub(super) fn check(
    settings: &Settings,
    tree: Option<&Node>,
    blanks: &[SettingPath],
    keys: Option<Vec<KeyRecord>>,
    problems: &mut Vec<Problem>,
) {
    let known = problems.len();
    let mut checker = Checker { settings, tree, blanks, problems, known };
    checker.listeners();
    checker.certificate();
    checker.admin_guard();
    checker.proxies();
    checker.callers(keys);
    checker.usage();
    checker.traces();
    checker.origins();
    checker.state();
    checker.times();
    checker.cache();
    checker.shared();
    checker.chains();
    checker.chains_like_keys();
    for (name, chain) in settings.chains.iter() {
        let path = SettingPath::root().key("chains").key(name.as_ref());
        checker.chain_methods(&path.key("methods"), &chain.methods);
        checker.upstreams(&path, chain);
        checker.routes(&path, chain);
        checker.quorums(&path, chain);
        checker.levels(&path.key("verify"), chain);
        checker.checks(&path, chain);
    }
}

struct Checker<'a> {
    settings: &'a Settings,
    tree: Option<&'a Node>,
    blanks: &'a [SettingPath],
    problems: &'a mut Vec<Problem>,
    /// So many problems were there before; only those make us pass over a value.
    known: usize,
}

impl Checker<'_> {
    fn span(&self, path: &SettingPath) -> Option<std::ops::Range<usize>> {
        self.tree.map(|tree| tree.span_of(path))
    }

    fn push(&mut self, problem: Problem) {
        let span = problem.span.clone().or_else(|| self.span(&problem.path));
        self.problems.push(problem.at(span));
    }

    fn key_span(&self, path: &SettingPath) -> Option<std::ops::Range<usize>> {
        self.tree.and_then(|tree| tree.key_span_of(path))
    }

    /// An error about a key, whatever stands under it.
    fn key_error(
        &mut self,
        path: &SettingPath,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let span = self.key_span(path);
        self.push(Problem::error(path, message).hint(hint).at(span));
    }

    /// An error about a setting that was written and does nothing.
    fn without_effect(&mut self, path: &SettingPath, message: &str, hint: &str) {
        if self.given(path) && !self.touched(path) {
            self.key_error(path, message, hint);
        }
    }

    fn error(&mut self, path: &SettingPath, message: impl Into<String>, hint: impl Into<String>) {
        self.push(Problem::error(path, message).hint(hint));
    }

    fn warning(&mut self, path: &SettingPath, message: impl Into<String>, hint: impl Into<String>) {
        self.push(Problem::warning(path, message).hint(hint));
    }

    /// A warning about a key, whatever stands under it.
    fn key_warning(&mut self, path: &SettingPath, message: &str, hint: &str) {
        let span = self.key_span(path);
        self.push(Problem::warning(path, message).hint(hint).at(span));
    }

    /// An error about something that clashes with what stands at `first`.
    fn clash(&mut self, path: &SettingPath, first: &SettingPath, message: &str, hint: &str) {
        let other = self.span(first);
        self.push(Problem::error(path, message).hint(hint).other(other, "also here"));
    }

    /// An error about a key that clashes with the one at `first`.
    fn key_clash(&mut self, path: &SettingPath, first: &SettingPath, message: &str, hint: &str) {
        let (span, other) = (self.key_span(path), self.key_span(first));
        let problem = Problem::error(path, message).hint(hint).at(span);
        self.push(problem.other(other, "also here"));
    }

    /// Whether `path`, or something in it, already had a problem or is a blank.
    fn touched(&self, path: &SettingPath) -> bool {
        let known = &self.problems[..self.known];
        known.iter().any(|p| p.severity == Severity::Error && p.path.is_within(path))
            || self.blanks.iter().any(|blank| blank.is_within(path) || path.is_within(blank))
    }

    /// Whether the file says something at `path`.
    fn given(&self, path: &SettingPath) -> bool {
        self.tree.is_some_and(|tree| tree.has(path))
    }

    /// A page in a sandboxed frame has this origin, and every page may make one.
    fn origins(&mut self) {
        let path = SettingPath::root().key("cors").key("origins");
        let settings = self.settings;
        let mut origins = settings.cors.origins.iter();
        let Some(index) = origins.position(|origin| origin == "null") else { return };
        let message = "`null` is the origin of any page in a sandboxed frame: every page may call";
        let hint = "remove it, or write `*` to say so";
        if !self.touched(&path.item(index)) {
            self.warning(&path.item(index), message, hint);
        }
    }

    /// The state file is written over again and again, whatever was in it.
    fn state(&mut self) {
        let (path, settings) = (SettingPath::root().key("state"), self.settings);
        let Some(state) = &settings.state else { return self.caps_without_state() };
        let admin = settings.admin_access.tls.iter().flat_map(AdminTls::paths);
        let tls = settings.tls.iter().flat_map(Tls::paths).chain(admin);
        let upstreams = settings.chains.iter().flat_map(|(_, chain)| &chain.upstreams);
        if state.as_os_str().as_encoded_bytes().ends_with(b"/") && !self.touched(&path) {
            self.error(
                &path,
                "`state` is a folder",
                "name the file in it, such as `wellhead.state`",
            );
            return;
        }
        let others = tls.chain(upstreams.flat_map(|upstream| {
            [&upstream.ca_file, &upstream.client_cert_file, &upstream.client_key_file]
                .into_iter()
                .flatten()
        }));
        let mut others = others.chain(settings.access.files());
        if others.any(|other| other == state) && !self.touched(&path) {
            self.error(
                &path,
                "`state` would overwrite this file, which holds certificates or keys",
                "give it a file of its own",
            );
        }
    }

    /// A cap that a restart forgets is none. `wellhead serve` has a default for the file, which
    /// depends on where it runs.
    fn caps_without_state(&mut self) {
        let Some(path) = self.settings.capped() else { return };
        let path = path.key("budget");
        if self.touched(&SettingPath::root().key("state")) || self.touched(&path) {
            return;
        }
        let message = "`state` is not set, but spending against a cap must survive a restart";
        let hint = "`wellhead serve` keeps it in $STATE_DIRECTORY or ~/.local/state/wellhead; name the file with `state` to choose";
        self.warning(&path, message, hint);
    }

    fn cache(&mut self) {
        let (path, cache) = (SettingPath::root().key("cache"), &self.settings.cache);
        for key in ["disk", "redis"] {
            if !cache.enabled {
                let message = format!("`{key}` has no effect: `cache.enabled` is `false`");
                let hint = "remove it, or set `cache.enabled: true`";
                self.without_effect(&path.key(key), &message, hint);
            }
        }
        if let Some(redis) = &cache.redis {
            self.redis_url(&path.key("redis").key("url"), &redis.url);
        }
    }

    fn times(&mut self) {
        let timeouts = SettingPath::root().key("timeouts");
        let times = &self.settings.timeouts;
        // A shorter `total` alone is fine: attempts end with it.
        for (key, time) in [("attempt", times.attempt), ("connect", times.connect)] {
            if self.given(&timeouts.key(key)) {
                self.ordered(&timeouts, key, "total", time > times.total);
            }
        }
        let health = &self.settings.health;
        let path = SettingPath::root().key("health");
        self.ordered(&path, "open_for", "open_for_max", health.open_for > health.open_for_max);
        let limits = &self.settings.limits;
        let path = SettingPath::root().key("limits");
        let reversed = limits.body_bytes > limits.bodies_total_bytes;
        self.ordered(&path, "body_bytes", "bodies_total_bytes", reversed);
        let reversed = limits.connections_per_address.is_some_and(|it| it > limits.connections);
        self.ordered(&path, "connections_per_address", "connections", reversed);
        let reversed = limits.answer_bytes > limits.answers_total_bytes;
        self.ordered(&path, "answer_bytes", "answers_total_bytes", reversed);
        let reversed = limits.batch_bytes > limits.answers_total_bytes;
        self.ordered(&path, "batch_bytes", "answers_total_bytes", reversed);
    }

    /// `low` must not be above `high`; points at the one that was written.
    fn ordered(&mut self, path: &SettingPath, low: &str, high: &str, reversed: bool) {
        let (low_path, high_path) = (path.key(low), path.key(high));
        if !reversed || self.touched(&low_path) || self.touched(&high_path) {
            return;
        }
        let place = if self.given(&low_path) { low_path } else { high_path };
        let message = format!("`{low}` is more than `{high}`");
        self.error(&place, message, format!("lower `{low}` or raise `{high}`"));
    }

    fn checks(&mut self, path: &SettingPath, chain: &Chain) {
        let (all, own) = (path.key("checks"), path.key("upstreams"));
        self.useless_checks(&all, chain.checks.mode);
        let place = all.key("ws");
        if chain.checks.ws == Some(true)
            && chain.upstreams.iter().all(|upstream| upstream.ws.is_none() && !upstream.is_socket())
            && !self.touched(&place)
            && !self.touched(&own)
        {
            let message = "`checks.ws` is on, but no upstream has a `ws`";
            self.error(&place, message, "give one of them a `ws`, or remove this");
        }
        let bounds = (chain.checks.head_interval_min, chain.checks.idle_interval);
        self.ordered(&all, "head_interval_min", "idle_interval", bounds.0 > bounds.1);
        for (index, upstream) in chain.upstreams.iter().enumerate() {
            let own = own.item(index).key("checks");
            let checks = chain.checks_of(upstream);
            self.useless_checks(&own, checks.mode);
            self.socket(&path.key("upstreams").item(index), upstream, &checks);
            let given =
                self.given(&own.key("head_interval_min")) || self.given(&own.key("idle_interval"));
            if given {
                self.ordered(
                    &own,
                    "head_interval_min",
                    "idle_interval",
                    checks.head_interval_min > checks.idle_interval,
                );
            }
            if chain.id.is_none() && checks.trust_the_id() {
                let key = if checks.mode == Mode::Off { "mode" } else { "calls" };
                let place = if self.given(&own.key(key)) { own } else { all.clone() };
                if !self.touched(&place) && !self.touched(&path.key("id")) {
                    self.error(
                        &place.key(key),
                        "these checks do not verify the chain ids of upstreams",
                        "give the chain its `id`",
                    );
                    // Once says it: it is the chain's to mend.
                    return;
                }
            }
        }
    }

    /// What needs the WebSocket URL, and what it is needed for.
    fn socket(&mut self, path: &SettingPath, upstream: &Upstream, checks: &Checks) {
        let (place, ws) = (path.key("calls_over"), path.key("ws"));
        let is_carrier = upstream.calls_over == CallsOver::WebSocket && !self.touched(&place);
        if self.touched(&ws) || self.touched(&path.key("url")) {
            return;
        }
        if upstream.is_socket() {
            if upstream.ws.is_some() {
                let message = "`ws` has no effect: all calls and subscriptions go to `url`";
                self.error(
                    &ws,
                    message,
                    "remove it, or give an `http://` or `https://` URL as `url`",
                );
            }
            if upstream.calls_over == CallsOver::Http && self.given(&place) && !self.touched(&place)
            {
                let message = "`calls_over` is `http`, but `url` is a WebSocket URL";
                self.error(&place, message, "leave `calls_over` out");
            }
        } else if upstream.ws.is_none() {
            if is_carrier {
                let message = "`calls_over` is `websocket`, but the upstream has no `ws`";
                self.error(&place, message, "give it a `ws`, or leave `calls_over` out");
            }
            let place = path.key("checks").key("ws");
            if upstream.checks.ws == Some(true) && self.given(&place) && !self.touched(&place) {
                let message = "`checks.ws` is on, but the upstream has no `ws`";
                self.error(&place, message, "give it a `ws`, or remove this");
            }
        } else if !is_carrier
            && !self.touched(&place)
            && !self.touched(path)
            && !checks.ws.unwrap_or(checks.mode == Mode::On)
        {
            let message = "`ws` has no effect: wellhead does not subscribe to new blocks here";
            let hint = "remove it, or set `checks.ws: true`, or `calls_over: websocket`";
            self.warning(&ws, message, hint);
        }
    }

    /// What is asked, where nothing is.
    fn useless_checks(&mut self, path: &SettingPath, mode: Mode) {
        for key in ["calls", "idle_interval", "head_interval_min"] {
            if mode == Mode::Off {
                let message = format!("`{key}` has no effect: `mode` is `off`");
                self.without_effect(&path.key(key), &message, "remove it, or turn the checks on");
            }
        }
    }

    fn chains(&mut self) {
        let root = SettingPath::root().key("chains");
        let count = self.settings.chains.len();
        if count == 0 && !self.touched(&root) {
            let hint = "add one: `chains: { ethereum: { upstreams: [{ url: \"http://...\" }] } }`";
            self.error(&root, "there is no chain to serve", hint);
        }
        if count > CHAINS_MAX {
            self.error(
                &root,
                format!("there are {count} chains"),
                format!("at most {CHAINS_MAX} fit"),
            );
        }
        // Path segment -> where it comes from. Ids are paths too.
        let mut segments: HashMap<String, SettingPath> = HashMap::new();
        let mut claims: Vec<(String, SettingPath)> = Vec::new();
        for (name, chain) in self.settings.chains.iter() {
            let path = root.key(name.as_ref());
            if !self.touched_exactly(&path) {
                claims.push((name.to_string(), path.clone()));
            }
            for (index, alias) in chain.aliases.iter().enumerate() {
                claims.push((alias.to_string(), path.key("aliases").item(index)));
            }
        }
        for (name, chain) in self.settings.chains.iter() {
            let Some(id) = chain.id.filter(|id| id.0 != 0) else { continue };
            let path = root.key(name.as_ref()).key("id");
            let number = id.to_string();
            // A chain may be named, or have an alias, by its own id.
            let own =
                name.as_ref() == number || chain.aliases.iter().any(|alias| alias.0 == number);
            if !own {
                claims.push((number, path));
            }
        }
        for (segment, path) in claims {
            if segment.is_empty() || self.touched_exactly(&path) {
                continue;
            }
            match segments.get(&segment).cloned() {
                None => {
                    segments.insert(segment, path);
                }
                Some(first) => {
                    let message = format!("two chains would be served at `/{segment}`");
                    self.clash(&path, &first, &message, "each name, alias and id may stand once");
                }
            }
        }
    }

    fn touched_exactly(&self, path: &SettingPath) -> bool {
        self.problems[..self.known].iter().any(|problem| problem.path == *path)
    }

    fn upstreams(&mut self, chain_path: &SettingPath, chain: &Chain) {
        let path = chain_path.key("upstreams");
        let count = chain.upstreams.len();
        if count == 0 && !self.touched(&path) {
            let hint = "add one: `- url: http://...`";
            self.error(&path, "the chain has no upstreams", hint);
        }
        if count > UPSTREAMS_MAX {
            let message = format!("the chain has {count} upstreams");
            self.error(&path, message, format!("at most {UPSTREAMS_MAX} fit in a chain"));
        }
        let mut ids: HashMap<&str, usize> = HashMap::new();
        let mut urls: HashMap<&Url, usize> = HashMap::new();
        for (index, upstream) in chain.upstreams.iter().enumerate() {
            let item = path.item(index);
            // Without a tree (from arguments) everything counts as given.
            if let Some(first) = ids.insert(upstream.id.as_str(), index)
                && !self.touched(&item.key("id"))
                && (self.tree.is_none() || self.given(&item.key("id")))
            {
                let first = path.item(first).key("id");
                let message = format!("the upstream id `{}` is used twice", upstream.id);
                self.clash(&item.key("id"), &first, &message, "ids are unique within a chain");
            }
            if !self.touched(&item.key("url"))
                && let Some(first) = urls.insert(upstream.url.expose(), index)
            {
                let other = self.span(&path.item(first).key("url"));
                let problem = Problem::warning(&item.key("url"), "two upstreams have this URL")
                    .hint("one of them cannot replace the other when it fails");
                self.push(problem.other(other, "also here"));
            }
            self.upstream(&item, upstream);
        }
    }

    fn upstream(&mut self, path: &SettingPath, upstream: &Upstream) {
        let url_path = path.key("url");
        if !self.touched(&url_path) {
            let schemes = if upstream.is_socket() { ["ws", "wss"] } else { ["http", "https"] };
            self.url(&url_path, &upstream.url, schemes, ("ws", "put it under `ws`"));
            self.own_listener(&url_path, upstream.url.expose());
        }
        let ws_path = path.key("ws");
        if let Some(ws) = &upstream.ws
            && !self.touched(&ws_path)
        {
            let hint = "begin it with `ws://` or `wss://`; calls go to `url`";
            self.url(&ws_path, ws, ["ws", "wss"], ("http", hint));
            self.own_listener(&ws_path, ws.expose());
        }
        self.credentials(path, upstream);
        self.propagation(path, upstream);
        self.budget(path, upstream);
        self.study(path, upstream);
        let Methods { allow, deny } = &upstream.methods;
        self.methods(&path.key("methods"), allow, deny);
        let ca = path.key("ca_file");
        if upstream.ca_file.is_some() && !has_tls(upstream) && !self.touched(&url_path) {
            self.key_error(&ca, "`ca_file` has no effect: the URL is not `https://`", "remove it");
        }
        if upstream.ca_file_adds && upstream.ca_file.is_none() && !self.touched(&ca) {
            self.key_error(
                &path.key("ca_file_adds"),
                "`ca_file_adds` has no effect without `ca_file`",
                "name the file, or remove it: the public authorities are trusted by default",
            );
        }
        self.identity(path, upstream);
        let total = self.settings.timeouts.total;
        for (key, time) in
            [("attempt", upstream.timeouts.attempt), ("connect", upstream.timeouts.connect)]
        {
            let place = path.key("timeouts").key(key);
            if time.is_some_and(|time| time > total) && !self.touched(&place) {
                let message = format!("`{key}` is more than `timeouts.total`");
                self.error(&place, message, "lower it, or raise `timeouts.total`");
            }
        }
    }

    fn url(
        &mut self,
        path: &SettingPath,
        url: &SecretUrl,
        schemes: [&str; 2],
        swapped: (&str, &str),
    ) {
        let url = url.expose();
        if !schemes.contains(&url.scheme()) {
            let [plain, secure] = schemes;
            let message = format!("expected a URL that begins with `{plain}://` or `{secure}://`");
            if url.scheme().starts_with(swapped.0) {
                self.error(path, message, swapped.1);
            } else {
                self.push(Problem::error(path, message));
            }
        }
        if self.tree.is_some() && (!url.username().is_empty() || url.password().is_some()) {
            let hint = "write `auth: { basic: { user: ..., password: ... } }` beside it";
            self.error(path, "the URL holds user and password", hint);
        }
        if url.fragment().is_some() {
            let message = "the URL has a part after `#`, which is never sent";
            self.error(path, message, "remove it, or write `%23` if it belongs to the path");
        }
        if url.port() == Some(0) {
            self.push(Problem::error(path, "the URL has port 0"));
        }
    }

    /// A loop would multiply one call until nothing else is served.
    fn own_listener(&mut self, path: &SettingPath, url: &Url) {
        if reaches(url, self.settings.listen) {
            let hint = "name the upstream itself: wellhead would call itself";
            self.error(path, "the URL is wellhead's own `listen` address", hint);
        }
    }

    fn credentials(&mut self, path: &SettingPath, upstream: &Upstream) {
        self.sent_along(path, upstream.auth.as_ref(), &upstream.headers);
        let (place, url) = (path.key("url"), upstream.url.expose());
        let hint = match url.scheme() {
            "http" => "use `https://`",
            "ws" => "use `wss://`",
            _ => return,
        };
        if (upstream.auth.is_some() || !upstream.headers.is_empty()) && !self.touched(&place) {
            self.clear_text(&place, url, hint);
        }
    }

    /// Credentials and headers that go to one server.
    fn sent_along(
        &mut self,
        path: &SettingPath,
        auth: Option<&Auth>,
        headers: &Map<HeaderName, Secret>,
    ) {
        let auth_path = path.key("auth");
        if let Some(auth) = auth
            && !self.touched(&auth_path)
        {
            self.auth(&auth_path, auth);
            if let Some((name, _)) =
                headers.iter().find(|(name, _)| name.0.eq_ignore_ascii_case("authorization"))
            {
                let header = path.key("headers").key(name.as_ref());
                let message = "the header `authorization` is also made from `auth`";
                self.key_clash(&header, &auth_path, message, "keep one of them");
            }
        }
        self.header_names(&path.key("headers"), headers);
    }

    /// Headers, each of which may be given once.
    fn header_names(&mut self, path: &SettingPath, headers: &Map<HeaderName, Secret>) {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in headers.iter() {
            if let Some(first) =
                names.iter().find(|first| first.eq_ignore_ascii_case(name.as_ref()))
            {
                let (first, second) = (path.key(first), path.key(name.as_ref()));
                let message = format!("the header `{name}` is given twice");
                let hint = "case does not matter in header names";
                self.key_clash(&second, &first, &message, hint);
            }
            names.push(name.as_ref());
        }
    }

    fn routes(&mut self, chain_path: &SettingPath, chain: &Chain) {
        let upstreams_broken = self.touched(&chain_path.key("upstreams"));
        for (index, route) in chain.routes.iter().enumerate() {
            let path = chain_path.key("routes").item(index);
            if self.touched(&path) {
                continue;
            }
            self.methods_of(&path, &route.methods, "the route has no methods", "debug_*");
            let earlier = chain.routes[..index].iter().flat_map(|route| &route.methods);
            let message = "this route is never used: routes before it match all its methods";
            self.unused_rule(&path, &route.methods, earlier, message);
            match (&route.only, &route.upstreams) {
                (Some(_), Some(_)) => {
                    self.error(
                        &path,
                        "the route has both `only` and `upstreams`",
                        "keep one of them",
                    );
                    continue;
                }
                // To all of them, in another way.
                (None, None) if route.balance.is_some() => {}
                (None, None) => {
                    let hint = "write `only: { label: value }`, `upstreams: [id]` or `balance: rendezvous`";
                    self.error(&path, "the route does not say which upstreams", hint);
                    continue;
                }
                (Some(_), None) | (None, Some(_)) => {}
            }
            if !upstreams_broken {
                self.route_target(&path, chain, route);
            }
        }
    }

    fn quorums(&mut self, chain_path: &SettingPath, chain: &Chain) {
        for (index, rule) in chain.quorum.iter().enumerate() {
            let path = chain_path.key("quorum").item(index);
            if self.touched(&path) {
                continue;
            }
            self.methods_of(&path, &rule.methods, "the rule has no methods", "eth_getBalance");
            self.quorum_methods(&path.key("methods"), &rule.methods);
            let earlier = chain.quorum[..index].iter().flat_map(|other| &other.methods);
            let message = "this rule is never used: rules before it match all its methods";
            self.unused_rule(&path, &rule.methods, earlier, message);
            self.quorum_numbers(&path, rule, chain.upstreams.len());
        }
    }

    fn quorum_numbers(&mut self, path: &SettingPath, rule: &Quorum, upstreams: usize) {
        let have = match upstreams {
            1 => "the chain has one upstream".to_owned(),
            count => format!("the chain has {count} upstreams"),
        };
        if rule.agree > upstreams {
            let message = format!("{} must agree, and {have}", rule.agree);
            self.error(&path.key("agree"), &message, "lower it, or add upstreams");
            return;
        }
        let Some(of) = rule.of else { return };
        if of < rule.agree {
            let message =
                format!("at most {of} upstreams are called, but {} must agree", rule.agree);
            self.error(&path.key("of"), &message, "write at least as many as `agree`");
        } else if of > upstreams {
            let message = format!("`of` is {of}, but {have}");
            self.error(&path.key("of"), &message, "lower it, or add upstreams");
        }
    }

    /// Each pattern has to name a method that several upstreams can answer.
    fn quorum_methods(&mut self, path: &SettingPath, globs: &[MethodGlob]) {
        for (index, glob) in globs.iter().enumerate() {
            let mut named = MethodTable::standard()
                .rows()
                .iter()
                .filter(|row| !row.is_unknown() && glob.matches(row.name))
                .peekable();
            // What no table knows was told already.
            if named.peek().is_some() && !named.any(QuorumRule::is_possible) {
                let message = format!("`{glob}` cannot be sent to several upstreams");
                let hint = "writes, filters and answers about an upstream itself go to one upstream at a time";
                self.error(&path.item(index), &message, hint);
            }
        }
    }

    /// Levels of methods that are never looked up, or that no check is there for.
    fn levels(&mut self, path: &SettingPath, chain: &Chain) {
        let (is_off, verify) = (|level| level == Level::Off, &chain.verify);
        let place = path.key("ethereum");
        if chain.upstreams.iter().all(|upstream| is_off(chain.verify_level(upstream)))
            && verify.levels.iter().all(|of| is_off(of.level))
            && self.given(&place)
            && !self.touched(path)
        {
            let message = "`ethereum` has no effect: no answer is checked";
            self.key_error(&place, message, "remove it, or set `level: cheap`");
        }
        for (index, level) in verify.levels.iter().enumerate() {
            let item = path.key("levels").item(index);
            if self.touched(&item) {
                continue;
            }
            let message = "the level is for no method";
            self.methods_of(&item, &level.methods, message, "eth_getBlock*");
            if level.methods.is_empty() {
                continue;
            }
            let earlier = verify.levels[..index].iter().flat_map(|level| &level.methods);
            let message = "this level is never used: those before it match all its methods";
            self.unused_rule(&item, &level.methods, earlier, message);
            let is_checked = |glob: &MethodGlob| {
                let mut rows = MethodTable::standard().rows().iter();
                rows.any(|row| glob.matches(row.name) && wellhead_proxy::is_verifiable(row))
            };
            if level.level != Level::Off && !level.methods.iter().any(is_checked) {
                let message = "there is no check for any of these methods";
                let hint = "docs/verify.md lists the methods that have some";
                self.warning(&item.key("methods"), message, hint);
            }
        }
    }

    fn route_target(&mut self, path: &SettingPath, chain: &Chain, route: &Route) {
        let problems_before = self.problems.len();
        if let Some(labels) = &route.only {
            self.route_labels(&path.key("only"), chain, labels);
        }
        if let Some(ids) = &route.upstreams {
            self.route_ids(&path.key("upstreams"), chain, ids);
        }
        let is_explained = self.problems.len() > problems_before;
        if !is_explained && !chain.upstreams.iter().any(|upstream| route.picks(upstream)) {
            let hint = "no single upstream carries all of these labels";
            self.error(&path.key("only"), "the route leaves no upstream", hint);
        }
    }

    fn route_labels(
        &mut self,
        path: &SettingPath,
        chain: &Chain,
        labels: &Map<LabelName, TextLine>,
    ) {
        for (name, value) in labels.iter() {
            let place = path.key(name.as_ref());
            let values: BTreeSet<&str> = chain
                .upstreams
                .iter()
                .filter_map(|upstream| upstream.labels.get(name.as_ref()))
                .map(|value| value.0.as_str())
                .collect();
            if values.contains(value.0.as_str()) {
                continue;
            }
            if values.is_empty() {
                let labels = chain.upstreams.iter().flat_map(|upstream| upstream.labels.iter());
                let labels: Vec<&str> = labels.map(|(name, _)| name.as_ref()).collect();
                let hint = suggestion(name.as_ref(), labels.iter().copied(), || {
                    format!("add `labels: {{ {name}: ... }}` to those it should pick")
                });
                self.key_error(&place, format!("no upstream has the label `{name}`"), hint);
            } else {
                let hint = format!("the values are {}", listed(&values));
                let message = format!("no upstream has this value of the label `{name}`");
                self.error(&place, message, hint);
            }
        }
        if labels.is_empty() {
            self.error(path, "`only` names no label", "write `only: { label: value }`");
        }
    }

    fn route_ids(&mut self, path: &SettingPath, chain: &Chain, ids: &[UpstreamId]) {
        let known: Vec<&str> =
            chain.upstreams.iter().map(|upstream| upstream.id.as_str()).collect();
        for (index, id) in ids.iter().enumerate() {
            if known.contains(&id.as_str()) {
                continue;
            }
            let hint = suggestion(id.as_str(), known.iter().copied(), || {
                format!("the upstreams of this chain are {}", listed(&known))
            });
            self.error(&path.item(index), format!("no upstream has the id `{id}`"), hint);
        }
        if ids.is_empty() {
            self.error(path, "`upstreams` is empty", "write `upstreams: [id]`");
        }
    }
}
