//! Checks of what is sent to other services: usage, traces, and what several wellheads share by a Redis.

use url::Url;
use wellhead_telemetry::SecretUrl;

use super::super::chain::{Auth, Upstream};
use super::super::place::{is_private, reaches};
use super::super::problem::SettingPath;
use super::Checker;

impl Checker<'_> {
    pub(super) fn shared(&mut self) {
        let path = SettingPath::root().key("shared");
        if let Some(shared) = &self.settings.shared {
            self.redis_url(&path.key("redis"), &shared.redis);
        }
        let place = SettingPath::root().key("access").key("keys").key("redis");
        let wants_keys = self.settings.access.keys.as_ref().is_some_and(|keys| keys.redis);
        if wants_keys
            && self.settings.shared.is_none()
            && !self.touched(&path)
            && !self.touched(&place)
        {
            let message = "`redis` needs a Redis: `shared` is not set";
            self.error(&place, message, "add `shared: { redis: \"redis://host:6379/0\" }`");
        }
    }

    pub(super) fn redis_url(&mut self, place: &SettingPath, url: &SecretUrl) {
        if !["redis", "rediss"].contains(&url.expose().scheme()) && !self.touched(place) {
            let message = "expected a URL that begins with `redis://` or `rediss://`";
            self.error(place, message, "a Redis at its usual port: `redis://host:6379/0`");
        }
    }

    pub(super) fn traces(&mut self) {
        let Some(traces) = &self.settings.traces else { return };
        let path = SettingPath::root().key("traces");
        let place = path.key("endpoint");
        self.outgoing_url(&place, &traces.endpoint);
        self.sent_along(&path, traces.auth.as_ref(), &traces.headers);
        let url = traces.endpoint.expose();
        if self.touched(&place) {
            return;
        }
        if matches!(url.path(), "" | "/") {
            let message = "the URL has no path, and a collector takes traces at one";
            self.warning(&place, message, "add `/v1/traces`");
        }
        let has_secret = traces.auth.is_some() || !traces.headers.is_empty();
        if has_secret && url.scheme() == "http" {
            self.clear_text(&place, url, "use `https://`");
        }
    }

    /// Whether an upstream can be told of traces.
    pub(super) fn propagation(&mut self, path: &SettingPath, upstream: &Upstream) {
        let place = path.key("propagate_trace");
        if !upstream.propagate_trace || self.touched(&place) {
            return;
        }
        if self.settings.traces.is_none() {
            let hint = "add `traces`, or remove it";
            self.error(&place, "there are no traces to tell of without `traces`", hint);
        } else if upstream.is_socket() {
            let message = "a message over WebSocket has no place for a trace";
            self.error(&place, message, "give an `http://` URL, or remove it");
        }
    }

    pub(super) fn usage(&mut self) {
        let (path, settings) = (SettingPath::root().key("usage"), self.settings);
        if let Some(push) = &settings.usage.push {
            self.usage_target(&path.key("push"), &push.url, push.auth.as_ref());
        }
        if let Some(webhook) = &settings.usage.webhook {
            self.usage_target(&path.key("webhook"), &webhook.url, webhook.auth.as_ref());
        }
    }

    /// A URL that something is sent to, with credentials or without.
    fn usage_target(&mut self, path: &SettingPath, url: &SecretUrl, auth: Option<&Auth>) {
        let place = path.key("url");
        if let Some(auth) = auth {
            self.auth(&path.key("auth"), auth);
        }
        if self.touched(&place) {
            return;
        }
        self.outgoing_url(&place, url);
        if auth.is_some() && url.expose().scheme() == "http" {
            self.clear_text(&place, url.expose(), "use `https://`");
        }
    }

    /// A URL that something is sent to.
    pub(super) fn outgoing_url(&mut self, place: &SettingPath, url: &SecretUrl) {
        if self.touched(place) {
            return;
        }
        let hint = "begin it with `http://` or `https://`";
        self.url(place, url, ["http", "https"], ("ws", hint));
        if reaches(url.expose(), self.settings.listen) {
            let hint = "name the service that it is meant for";
            self.error(place, "the URL is wellhead's own `listen` address", hint);
        }
    }

    /// One kind of credentials.
    pub(super) fn auth(&mut self, path: &SettingPath, auth: &Auth) {
        if self.touched(path) {
            return;
        }
        match (&auth.basic, &auth.bearer) {
            (Some(_), Some(_)) => self.error(
                path,
                "`auth` has both `basic` and `bearer`",
                "keep the one that is asked for",
            ),
            (None, None) => self.error(
                path,
                "`auth` has neither `basic` nor `bearer`",
                "write `auth: { bearer: \"${TOKEN}\" }`, or remove it",
            ),
            (Some(_), None) | (None, Some(_)) => {}
        }
    }

    /// Warns where a URL without TLS sends credentials to a public address.
    pub(super) fn clear_text(&mut self, place: &SettingPath, url: &Url, hint: &str) {
        if !is_private(url) {
            self.warning(place, "credentials are sent in clear text over the internet", hint);
        }
    }
}
