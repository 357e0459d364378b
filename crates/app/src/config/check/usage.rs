//! Checks of where usage goes.

use wellhead_telemetry::SecretUrl;

use super::super::chain::Auth;
use super::super::place::reaches;
use super::super::problem::SettingPath;
use super::Checker;

impl Checker<'_> {
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
}
