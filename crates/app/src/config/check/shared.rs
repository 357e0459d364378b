//! Checks of what several wellheads share, and of the stores that they share it through.

use wellhead_telemetry::SecretUrl;

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
}
