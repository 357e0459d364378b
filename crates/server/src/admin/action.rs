//! What can be done on the admin listener beside looking: the table of actions, and their audit lines.
//!
//! The handler of a listener has one table of [`AdminAction`]s and carries them out. Who may is decided
//! before it is called, and each action that changes something leaves one line, whatever becomes of it.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::access::{AdminActor, AdminRole};
use crate::shared::ServerShared;

/// One row of the table: a method and a path, and the role that they need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdminAction {
    /// How audit lines and the handler name it: `reload`, `key.revoke`.
    pub name: &'static str,
    /// `GET`, which may change nothing and leaves no audit line, or `POST`, `PUT`, `PATCH`, `DELETE`.
    pub method: &'static str,
    /// As it begins with `/`; one with a segment `*` has a subject there: `/keys/*`, `/keys/*/rotate`.
    pub path: &'static str,
    /// What it needs.
    pub role: AdminRole,
}

/// An action to carry out. Its actor has the role.
#[derive(Debug)]
pub struct AdminCall {
    /// Which one.
    pub action: &'static AdminAction,
    /// The segment in the place of `*`, as it came: it can be anything, also a secret in the wrong place.
    pub subject: Option<String>,
    /// The query, as it came.
    pub query: Option<String>,
    /// The body, at most as long as the settings of the listener allow.
    pub body: Bytes,
    /// Who asks.
    pub actor: AdminActor,
}

/// What came of an action.
#[derive(Debug, Clone)]
pub struct AdminReply {
    /// The HTTP status; impossible values become 500.
    pub status: u16,
    /// JSON.
    pub body: Bytes,
    /// What it was done to, for the audit line: never a secret.
    pub subject: Option<String>,
}

impl AdminAction {
    /// Whether it may change something.
    pub fn is_mutating(&self) -> bool {
        self.method != "GET"
    }

    /// The subject in `path`, if this is its path; `Some(None)` where it has none.
    fn matches<'p>(&self, path: &'p str) -> Option<Option<&'p str>> {
        match self.path.split_once('*') {
            None => (path == self.path).then_some(None),
            Some((before, after)) => {
                let subject = path.strip_prefix(before)?.strip_suffix(after)?;
                (!subject.is_empty() && !subject.contains('/')).then_some(Some(subject))
            }
        }
    }
}

/// The action of a method and a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ActionMatch<'p> {
    /// This one, with its subject.
    Action(&'static AdminAction, Option<&'p str>),
    /// Other methods have one at this path: these.
    OtherMethods(Vec<&'static str>),
    /// None has one.
    Nothing,
}

/// Finds the row of a request.
pub(crate) fn find<'p>(
    actions: &'static [AdminAction],
    method: &str,
    path: &'p str,
) -> ActionMatch<'p> {
    // A path without a subject comes before one with any.
    let mut here: Vec<_> = actions.iter().filter_map(|it| Some((it, it.matches(path)?))).collect();
    here.sort_by_key(|(_, subject)| subject.is_some());
    let method = if method == "HEAD" { "GET" } else { method };
    match here.iter().find(|(action, _)| action.method == method) {
        Some((action, subject)) => ActionMatch::Action(action, *subject),
        None if here.is_empty() => ActionMatch::Nothing,
        None => ActionMatch::OtherMethods(here.iter().map(|(action, _)| action.method).collect()),
    }
}

/// The audit line of one action, written when it is dropped: also of one whose client disconnects.
#[derive(Debug)]
pub(crate) struct AuditLine {
    shared: Arc<ServerShared>,
    action: &'static AdminAction,
    subject: Option<String>,
    actor: Arc<str>,
    peer: SocketAddr,
    outcome: &'static str,
    status: u16,
}

/// A subject that stands in a path is shown up to here, if it is made of letters and digits. The id of a
/// key is shorter, its text is longer: a key that is put there by mistake must not be shown.
const SHOWN_SUBJECT_BYTES_MAX: usize = 16;

impl AuditLine {
    /// Of an action that begins; `None` of one that changes nothing.
    pub(crate) fn begin(
        shared: &Arc<ServerShared>,
        peer: SocketAddr,
        action: &'static AdminAction,
        subject: Option<&str>,
        actor: &str,
    ) -> Option<Self> {
        action.is_mutating().then(|| Self {
            shared: Arc::clone(shared),
            action,
            subject: subject.map(shown),
            actor: actor.into(),
            peer,
            outcome: "abandoned",
            status: 499,
        })
    }

    /// It was not carried out.
    pub(crate) fn deny(mut self, status: StatusCode) {
        (self.outcome, self.status) = ("denied", status.as_u16());
    }

    /// It was carried out, or failed.
    pub(crate) fn end(mut self, status: StatusCode, subject: Option<String>) {
        let outcome = if status.is_success() { "done" } else { "failed" };
        (self.outcome, self.status) = (outcome, status.as_u16());
        self.subject = subject.or(self.subject.take());
    }
}

impl Drop for AuditLine {
    fn drop(&mut self) {
        let (action, subject) = (self.action.name, self.subject.as_deref().unwrap_or("-"));
        let (actor, role, peer) = (&*self.actor, self.action.role.word(), self.peer);
        let (outcome, status) = (self.outcome, self.status);
        // What is denied costs its sender nothing, and must not fill a disk.
        let left_out = match outcome {
            "denied" => self.shared.take_audit_line(),
            _ => Some(0),
        };
        if let Some(left_out) = left_out {
            tracing::info!(
                target: "audit",
                action, subject, actor, role, %peer, outcome, status, left_out,
                "admin action"
            );
        }
    }
}

fn shown(subject: &str) -> String {
    let is_plain = subject.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match is_plain && subject.len() <= SHOWN_SUBJECT_BYTES_MAX {
        true => subject.to_owned(),
        false => format!("({} bytes)", subject.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn row(name: &'static str, method: &'static str, path: &'static str) -> AdminAction {
        AdminAction { name, method, path, role: AdminRole::Keys }
    }

    const ACTIONS: &[AdminAction] = &[
        row("list", "GET", "/keys"),
        row("create", "POST", "/keys"),
        row("show", "GET", "/keys/*"),
        row("revoke", "DELETE", "/keys/*"),
        row("import", "POST", "/keys/import"),
        row("rotate", "POST", "/keys/*/rotate"),
    ];

    #[track_caller]
    fn check(method: &str, path: &str, expected: &str) {
        let found = match find(ACTIONS, method, path) {
            ActionMatch::Action(action, None) => action.name.to_owned(),
            ActionMatch::Action(action, Some(subject)) => format!("{} {subject}", action.name),
            ActionMatch::OtherMethods(methods) => format!("allow {}", methods.join(" ")),
            ActionMatch::Nothing => "nothing".to_owned(),
        };
        assert_eq!(found, expected, "{method} {path}");
    }

    #[test]
    fn rows_are_found_by_method_and_path() {
        check("GET", "/keys", "list");
        check("HEAD", "/keys", "list");
        check("POST", "/keys", "create");
        check("PUT", "/keys", "allow GET POST");
        check("GET", "/keys/ab12", "show ab12");
        check("DELETE", "/keys/ab12", "revoke ab12");
        check("POST", "/keys/import", "import");
        check("DELETE", "/keys/import", "revoke import");
        check("POST", "/keys/ab12", "allow GET DELETE");
        check("POST", "/keys/ab12/rotate", "rotate ab12");
        check("GET", "/keys/ab12/rotate", "allow POST");
        check("POST", "/keys//rotate", "nothing");
        check("POST", "/keys/rotate", "allow GET DELETE");
        check("POST", "/keys/ab/12/rotate", "nothing");
        check("GET", "/keys/", "nothing");
        check("GET", "/keys/ab/12", "nothing");
        check("GET", "/key", "nothing");
    }

    #[test]
    fn a_key_in_the_place_of_its_id_is_not_shown() {
        assert_eq!(shown("ab12cd34"), "ab12cd34");
        assert_eq!(shown("wh_live_ab12cd34_abcdefghijklmnopqrstuvwxyz_123456"), "(50 bytes)");
        assert_eq!(shown("a\nb"), "(3 bytes)");
    }
}
