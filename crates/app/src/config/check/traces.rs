//! Checks of where traces go, and of the upstreams that are told of them.

use super::super::chain::Upstream;
use super::super::problem::SettingPath;
use super::Checker;

impl Checker<'_> {
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
}
