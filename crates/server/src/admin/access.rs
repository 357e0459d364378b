//! Who may do what on the admin listener: roles, the tokens that hold them, and the decision.
//!
//! A decision takes what a request has shown and what it asks for; it opens nothing and logs nothing.
//! Tokens are known by their keyed hash alone.

use std::sync::Arc;

use wellhead_access::{KeyHash, Pepper};

use crate::certificate::ClientName;
use crate::head::RequestHead;
use crate::link::PeerProof;

/// What a path of the admin listener needs. [`Self::Operate`] includes [`Self::View`]; [`Self::Keys`]
/// includes nothing and is included in nothing. Its words stand in audit lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum AdminRole {
    /// Metrics, status and explanations.
    View,
    /// What changes how this process runs.
    Operate,
    /// The keys of clients.
    Keys,
}

wellhead_word::words!(AdminRole);

impl AdminRole {
    fn bits(self) -> u8 {
        match self {
            Self::View => 1,
            Self::Operate => 2 | Self::View.bits(),
            Self::Keys => 4,
        }
    }
}

/// A set of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdminRoles(u8);

impl AdminRoles {
    /// Every role.
    pub fn all() -> Self {
        AdminRole::ALL.into_iter().collect()
    }

    /// Whether `role` is among them.
    pub fn has(self, role: AdminRole) -> bool {
        self.0 & role.bits() == role.bits()
    }

    /// These and those.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

impl FromIterator<AdminRole> for AdminRoles {
    fn from_iter<I: IntoIterator<Item = AdminRole>>(roles: I) -> Self {
        Self(roles.into_iter().fold(0, |bits, role| bits | role.bits()))
    }
}

/// A token, as far as it is known here.
#[derive(Debug, Clone)]
pub struct AdminToken {
    /// How audit lines name it.
    pub name: Arc<str>,
    /// What it may do.
    pub roles: AdminRoles,
    /// The hash of its text under the pepper of [`AdminAccess`].
    pub hash: KeyHash,
}

/// What the holder of a client certificate with this name may do.
#[derive(Debug, Clone)]
pub struct AdminCertificate {
    /// A name of the certificate.
    pub name: ClientName,
    /// What it may do.
    pub roles: AdminRoles,
}

/// Who may use an admin listener. Without tokens and certificates every client that reaches it may do
/// everything: it must not be reachable from elsewhere.
#[derive(Debug, Clone)]
pub struct AdminAccess {
    /// What hashes of tokens are made with.
    pub pepper: Pepper,
    /// Tokens, sent as `authorization: Bearer TOKEN`.
    pub tokens: Vec<AdminToken>,
    /// Names of client certificates, where the listener speaks TLS and asks for them.
    pub certificates: Vec<AdminCertificate>,
    /// Whether `/metrics` needs no role.
    pub metrics_open: bool,
}

impl Default for AdminAccess {
    /// Open, for a listener on the loopback.
    fn default() -> Self {
        Self {
            pepper: Pepper::well_known(),
            tokens: Vec::new(),
            certificates: Vec::new(),
            metrics_open: true,
        }
    }
}

/// Who a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminActor {
    /// A token, a certificate, a user of this machine, or `anyone`. For audit lines.
    pub name: Arc<str>,
    /// What it may do.
    pub roles: AdminRoles,
    /// Whether it has shown something that no web page can make a browser send.
    pub(crate) is_explicit: bool,
}

impl AdminActor {
    fn new(name: impl Into<Arc<str>>, roles: AdminRoles) -> Self {
        Self { name: name.into(), roles, is_explicit: false }
    }
}

/// Why a request is not answered as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdminDenial {
    /// It has shown no token, and needs one: 401.
    #[error(
        "this needs a token: send it as authorization: Bearer TOKEN; the setting `admin_access` lists tokens"
    )]
    NoToken,
    /// There is no such token, or there are two: 401.
    #[error("there is no such token: the setting `admin_access` lists tokens by their hashes")]
    BadToken,
    /// It may not do this: 403.
    #[error("this needs the role `{}`, which the token does not have", .0.word())]
    NoRole(AdminRole),
    /// A web page could have sent it: 403.
    #[error("a web page could have sent this: send the header x-wellhead-admin: 1 with it")]
    Forgeable,
}

/// A longer token is not hashed.
const TOKEN_BYTES_MAX: usize = 256;

impl AdminAccess {
    /// Whether everybody may do everything.
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.certificates.is_empty()
    }

    /// The roles of the client of a request; none if the client has shown nothing.
    pub(crate) fn actor(
        &self,
        proof: Option<&PeerProof>,
        head: &RequestHead<'_>,
    ) -> Result<AdminActor, AdminDenial> {
        let names = match proof {
            // Whoever can open the socket file may do everything: its mode is the right.
            Some(PeerProof::LocalUser(Some(user))) => {
                return Ok(AdminActor::new(format!("user {user}"), AdminRoles::all()));
            }
            Some(PeerProof::LocalUser(None)) => {
                return Ok(AdminActor::new("local user", AdminRoles::all()));
            }
            Some(PeerProof::Certificate(names)) => &names[..],
            None => &[],
        };
        if self.is_open() {
            return Ok(AdminActor::new("anyone", AdminRoles::all()));
        }
        let mut fields = head.headers.all("authorization");
        match (fields.next(), fields.next()) {
            (None, _) => Ok(self.holder(names)),
            (Some(field), None) => self.bearer(field),
            (Some(_), Some(_)) => Err(AdminDenial::BadToken),
        }
    }

    fn bearer(&self, field: &[u8]) -> Result<AdminActor, AdminDenial> {
        let token = std::str::from_utf8(field).ok().and_then(|field| field.split_once(' '));
        let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let (_, token) = token.ok_or(AdminDenial::BadToken)?;
        let token = token.trim();
        if token.len() > TOKEN_BYTES_MAX {
            return Err(AdminDenial::BadToken);
        }
        let hash = self.pepper.hash(token);
        // All of them, whichever it is: the time says nothing of where it stands.
        let found = self.tokens.iter().fold(None, |found, known| match known.hash == hash {
            true => Some(known),
            false => found,
        });
        let known = found.ok_or(AdminDenial::BadToken)?;
        let name = format!("token {}", known.name);
        Ok(AdminActor { is_explicit: true, ..AdminActor::new(name, known.roles) })
    }

    fn holder(&self, names: &[ClientName]) -> AdminActor {
        let known = self.certificates.iter().filter(|known| names.contains(&known.name));
        let mut named = None;
        let roles = known.fold(AdminRoles::default(), |roles, known| {
            named = named.or(Some(known.name.text()));
            roles.and(known.roles)
        });
        match named {
            Some(name) => AdminActor::new(format!("certificate {name}"), roles),
            None => AdminActor::new("nobody", roles),
        }
    }
}

/// Whether `actor` may do what needs `role`.
pub(crate) fn check_role(actor: &AdminActor, role: AdminRole) -> Result<(), AdminDenial> {
    match actor.roles.has(role) {
        true => Ok(()),
        false if actor.roles == AdminRoles::default() => Err(AdminDenial::NoToken),
        false => Err(AdminDenial::NoRole(role)),
    }
}

/// Whether a request that changes something may have been sent by a web page: with what any page can
/// make a browser send, by an actor whom the browser or its network proves by itself.
pub(crate) fn check_intent(actor: &AdminActor, head: &RequestHead<'_>) -> Result<(), AdminDenial> {
    let has_header = head.headers.get("x-wellhead-admin") == Some(b"1");
    let is_json = head.headers.get("content-type").is_some_and(|value| {
        let kind = value.split(|byte| *byte == b';').next().unwrap_or_default();
        kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
    });
    match actor.is_explicit || has_header || is_json {
        true => Ok(()),
        false => Err(AdminDenial::Forgeable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::tests::with_head;

    fn access(tokens: &[(&str, &[AdminRole])]) -> AdminAccess {
        let token = |(name, roles): &(&str, &[AdminRole])| AdminToken {
            name: (*name).into(),
            roles: roles.iter().copied().collect(),
            hash: Pepper::well_known().hash(&format!("secret-of-{name}")),
        };
        AdminAccess { tokens: tokens.iter().map(token).collect(), ..AdminAccess::default() }
    }

    /// Who a head comes from, and the roles: `name: view operate keys`, or the denial.
    #[track_caller]
    fn check(access: &AdminAccess, proof: Option<&PeerProof>, fields: &str, expected: &str) {
        with_head(&format!("GET / {fields}"), |head| {
            let found = match access.actor(proof, &head) {
                Err(denial) => format!("{denial:?}"),
                Ok(actor) => {
                    let roles = AdminRole::ALL.into_iter().filter(|role| actor.roles.has(*role));
                    let roles: Vec<_> = roles.map(AdminRole::word).collect();
                    format!("{}: {}", actor.name, roles.join(" "))
                }
            };
            assert_eq!(found, expected, "{fields}");
        });
    }

    #[test]
    fn roles_include_each_other_as_said() {
        let has = |roles: &[AdminRole]| {
            let roles: AdminRoles = roles.iter().copied().collect();
            AdminRole::ALL.map(|role| roles.has(role))
        };
        assert_eq!(has(&[]), [false, false, false]);
        assert_eq!(has(&[AdminRole::View]), [true, false, false]);
        assert_eq!(has(&[AdminRole::Operate]), [true, true, false]);
        assert_eq!(has(&[AdminRole::Keys]), [false, false, true]);
        assert_eq!(has(&[AdminRole::Keys, AdminRole::View]), [true, false, true]);
        assert_eq!(AdminRoles::all(), AdminRole::ALL.into_iter().collect());
    }

    #[test]
    fn tokens_are_told_from_each_other() {
        let access =
            access(&[("a", &[AdminRole::View]), ("b", &[AdminRole::Operate, AdminRole::Keys])]);
        let check = |fields: &str, expected| check(&access, None, fields, expected);
        check("", "nobody: ");
        check("| authorization: Bearer secret-of-a", "token a: view");
        check("| Authorization: bearer  secret-of-b", "token b: view operate keys");
        for bad in [
            "Bearer secret-of-c",
            "Bearer",
            "Bearer ",
            "secret-of-a",
            "Basic c2VjcmV0LW9mLWE=",
            "Bearer secret-of-a secret-of-a",
            "Bearer SECRET-OF-A",
        ] {
            check(&format!("| authorization: {bad}"), "BadToken");
        }
        check(&format!("| authorization: Bearer {}", "x".repeat(4096)), "BadToken");
        let twice = "| authorization: Bearer secret-of-a | authorization: Bearer secret-of-a";
        check(twice, "BadToken");
    }

    #[test]
    fn without_tokens_it_is_open() {
        let open = AdminAccess::default();
        assert!(open.is_open());
        check(&open, None, "", "anyone: view operate keys");
        // A Prometheus that sends a token to all that it scrapes.
        check(&open, None, "| authorization: Bearer x", "anyone: view operate keys");
    }

    #[test]
    fn users_of_the_socket_file_need_no_token() {
        let access = access(&[("a", &[AdminRole::View])]);
        let user = PeerProof::LocalUser(Some(1000));
        check(&access, Some(&user), "", "user 1000: view operate keys");
        check(&access, Some(&PeerProof::LocalUser(None)), "", "local user: view operate keys");
    }

    #[test]
    fn certificates_have_the_roles_of_their_names() {
        let certificate = |name, roles: &[AdminRole]| AdminCertificate {
            name,
            roles: roles.iter().copied().collect(),
        };
        let access = AdminAccess {
            certificates: vec![
                certificate(ClientName::Dns("ops.example".into()), &[AdminRole::Operate]),
                certificate(ClientName::Uri("spiffe://a/keys".into()), &[AdminRole::Keys]),
            ],
            ..access(&[("a", &[AdminRole::View])])
        };
        let with = |names: &[ClientName]| PeerProof::Certificate(names.into());
        let (ops, keys) =
            (ClientName::Dns("ops.example".into()), ClientName::Uri("spiffe://a/keys".into()));
        let operate = "certificate ops.example: view operate";
        check(&access, Some(&with(std::slice::from_ref(&ops))), "", operate);
        let both = "certificate ops.example: view operate keys";
        check(&access, Some(&with(&[keys, ops.clone()])), "", both);
        // A name of one kind is not that of another.
        let common = ClientName::Common("ops.example".into());
        check(&access, Some(&with(&[common])), "", "nobody: ");
        check(&access, Some(&with(&[])), "", "nobody: ");
        // The token decides, where there is one.
        let token = "| authorization: Bearer secret-of-a";
        check(&access, Some(&with(std::slice::from_ref(&ops))), token, "token a: view");
        check(&access, Some(&with(&[ops])), "| authorization: Bearer x", "BadToken");
    }

    #[test]
    fn what_a_page_could_send_is_told_from_what_it_cannot() {
        let check = |is_explicit, fields: &str, expected| {
            let actor = AdminActor { is_explicit, ..AdminActor::new("a", AdminRoles::all()) };
            with_head(&format!("POST / {fields}"), |head| {
                assert_eq!(check_intent(&actor, &head).is_ok(), expected, "{fields}");
            });
        };
        check(true, "", true);
        check(false, "", false);
        check(false, "| content-type: text/plain", false);
        check(false, "| content-type: application/jsonp", false);
        check(false, "| content-type: text/plain; application/json", false);
        check(false, "| content-type: application/json", true);
        check(false, "| content-type: Application/JSON; charset=utf-8", true);
        check(false, "| x-wellhead-admin: 1", true);
        check(false, "| x-wellhead-admin: 0", false);
    }

    #[test]
    fn a_role_that_is_missing_is_told_from_a_token_that_is_missing() {
        let check = |roles: &[AdminRole], role, expected| {
            let actor = AdminActor::new("a", roles.iter().copied().collect());
            assert_eq!(check_role(&actor, role), expected);
        };
        check(&[AdminRole::View], AdminRole::View, Ok(()));
        check(&[], AdminRole::View, Err(AdminDenial::NoToken));
        check(&[AdminRole::View], AdminRole::Keys, Err(AdminDenial::NoRole(AdminRole::Keys)));
    }
}
