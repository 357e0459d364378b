//! The filter of the log over the admin listener: shown, and changed for a while.
//!
//! The change ends by itself: a level of `debug` that is forgotten fills a disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use wellhead_dispatch::now;
use wellhead_server::{AdminAction, AdminCall, AdminReply, AdminRole};
use wellhead_telemetry::clock;
use wellhead_telemetry::log::{self, FilterError, LogControl};

use crate::config::parse_duration;

/// What can be done: a row here, and an arm in [`LogAdmin::act`].
pub(super) const ACTIONS: [AdminAction; 3] = [
    AdminAction { name: "log.show", method: "GET", path: "/log", role: AdminRole::View },
    AdminAction { name: "log.set", method: "PUT", path: "/log", role: AdminRole::Operate },
    AdminAction { name: "log.reset", method: "DELETE", path: "/log", role: AdminRole::Operate },
];

/// For how long a filter holds if the request does not say.
const FOR_DEFAULT: Duration = Duration::from_secs(600);
/// For how long it holds at most; for longer it belongs into the settings.
const FOR_MAX: Duration = Duration::from_secs(24 * 3600);

/// The actions on the filter.
#[derive(Debug, Default)]
pub(super) struct LogAdmin {
    /// The end of the filter that holds over the settings, with the number of its change.
    end: Arc<Mutex<Option<FilterEnd>>>,
}

#[derive(Debug, Clone, Copy)]
struct FilterEnd {
    change: u64,
    at: Instant,
    /// In seconds since 1970.
    unix: u64,
}

/// What a request wants.
#[derive(Debug, PartialEq, Eq)]
struct FilterOrder {
    filter: String,
    lasting: Duration,
}

impl FilterOrder {
    /// `{"filter": "wellhead_net=debug", "for": "10m"}`; `for` may be missing.
    fn from_json(body: &[u8]) -> Result<Self, String> {
        let shape = r#"send {"filter": "wellhead_net=debug", "for": "10m"}"#;
        let told: Value = serde_json::from_slice(body).map_err(|_| shape.to_owned())?;
        let fields = told.as_object().ok_or(shape)?;
        if let Some(unknown) = fields.keys().find(|key| !["filter", "for"].contains(&key.as_str()))
        {
            return Err(format!("`{unknown}` is unknown: {shape}"));
        }
        let filter = told["filter"].as_str().ok_or(shape)?.to_owned();
        let lasting = match &told["for"] {
            Value::Null => FOR_DEFAULT,
            Value::String(text) => parse_duration(text).map_err(|why| format!("`for`: {why}"))?,
            _ => return Err(format!("`for` is a text: {shape}")),
        };
        match lasting > FOR_MAX {
            true => Err("`for` is at most 24h: for longer set `log.level`".to_owned()),
            false => Ok(Self { filter, lasting }),
        }
    }
}

impl LogAdmin {
    /// Carries out one of [`ACTIONS`].
    pub(super) fn act(&self, call: &AdminCall) -> AdminReply {
        let Some(control) = log::control() else {
            return failed(409, "this process has no log that could be changed");
        };
        match call.action.name {
            "log.show" => AdminReply { status: 200, body: self.shown(&control), subject: None },
            "log.set" => self.set(&control, &call.body),
            "log.reset" => match control.reset(None) {
                Ok(_) => AdminReply { status: 200, body: self.shown(&control), subject: None },
                Err(error) => failed(409, &error.to_string()),
            },
            other => failed(500, &format!("the admin action `{other}` has no code")),
        }
    }

    fn set(&self, control: &Arc<LogControl>, body: &[u8]) -> AdminReply {
        let order = match FilterOrder::from_json(body) {
            Ok(order) => order,
            Err(why) => return failed(400, &why),
        };
        let FilterOrder { filter, lasting } = order;
        let change = match control.set(&filter) {
            Ok(change) => change,
            Err(FilterError::Wrong(why)) => return failed(400, &why),
            Err(error @ FilterError::Gone) => return failed(409, &error.to_string()),
        };
        let end = FilterEnd {
            change,
            at: now() + lasting,
            unix: clock::unix_seconds() + lasting.as_secs(),
        };
        *self.end.lock() = Some(end);
        tokio::spawn(end_later(Arc::clone(control), change, lasting));
        let subject = Some(format!("{filter} for {} s", lasting.as_secs()));
        AdminReply { status: 200, body: self.shown(control), subject }
    }

    /// `{"configured": "info", "over": "debug", "until": 1795000000, "seconds_left": 600}`.
    fn shown(&self, control: &LogControl) -> Bytes {
        let present = control.present();
        let end = self.end.lock().filter(|end| end.change == present.changes);
        let left = end.map(|end| end.at.saturating_duration_since(now()).as_secs());
        let shown = json!({
            "configured": control.configured(),
            "over": present.over,
            "until": end.map(|end| end.unix),
            "seconds_left": left,
        });
        Bytes::from(shown.to_string())
    }
}

/// Ends a filter, unless another one was set meanwhile.
async fn end_later(control: Arc<LogControl>, change: u64, lasting: Duration) {
    tokio::time::sleep(lasting).await;
    match control.reset(Some(change)) {
        Ok(true) => {
            let filter = control.configured();
            tracing::info!(filter, "the log filter is that of the settings again");
        }
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, "the log filter could not be reset"),
    }
}

fn failed(status: u16, why: &str) -> AdminReply {
    let body = json!({ "error": why });
    AdminReply { status, body: Bytes::from(body.to_string()), subject: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: Result<(&str, u64), &str>) {
        let read = FilterOrder::from_json(body.as_bytes());
        match (read, expected) {
            (Ok(order), Ok((filter, seconds))) => {
                assert_eq!((order.filter.as_str(), order.lasting.as_secs()), (filter, seconds));
            }
            (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (read, expected) => panic!("{body}: {read:?} is not {expected:?}"),
        }
    }

    #[test]
    fn orders_are_read_strictly() {
        check(r#"{"filter":"debug"}"#, Ok(("debug", 600)));
        check(r#"{"filter":"wellhead_net=debug","for":"1m30s"}"#, Ok(("wellhead_net=debug", 90)));
        check(r#"{"filter":"debug","for":"24h"}"#, Ok(("debug", 86_400)));
        check(r#"{"filter":"debug","for":"25h"}"#, Err("at most 24h"));
        check(r#"{"filter":"debug","for":"0s"}"#, Err("longer than nothing"));
        check(r#"{"filter":"debug","for":5}"#, Err("is a text"));
        check(r#"{"filter":"debug","fro":"5m"}"#, Err("`fro` is unknown"));
        check(r#"{"for":"5m"}"#, Err("send {"));
        check("debug", Err("send {"));
        check("", Err("send {"));
    }
}
