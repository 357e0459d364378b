//! Checks of the two listeners: where they are, who may use the admin listener, and which proxies are
//! believed.

use wellhead_access::parse_network;
use wellhead_server::ProxyMode;

use super::super::network::Network;
use super::super::place::overlap;
use super::super::problem::SettingPath;
use super::super::settings::{AdminGuard, Proxies};
use super::super::value::Admin;
use super::Checker;

/// The hint at a setting of proxies while none is trusted.
const TRUST_HINT: &str =
    "name the addresses or networks of your load balancers in `access.proxies.trust`";

impl Checker<'_> {
    pub(super) fn listeners(&mut self) {
        let (listen, admin) = (SettingPath::root().key("listen"), SettingPath::root().key("admin"));
        let Admin::At(address) = self.settings.admin else { return };
        if self.touched(&listen) || self.touched(&admin) {
            return;
        }
        if overlap(self.settings.listen, address) {
            let path = if self.given(&admin) { admin } else { listen };
            self.error(
                &path,
                "`listen` and `admin` are the same address",
                "give one of them another port",
            );
        }
    }

    /// The admin listener has roles if it is reachable from other machines, and each role has a holder.
    pub(super) fn admin_guard(&mut self) {
        let (path, admin) =
            (SettingPath::root().key("admin_access"), SettingPath::root().key("admin"));
        self.names_and_roles(&path);
        let settings = self.settings;
        let guard = &settings.admin_access;
        let asks = guard.tls.as_ref().and_then(|tls| tls.clients.as_ref()).is_some();
        if !guard.certificates.is_empty() && !asks {
            let message = "`certificates` has no effect: `tls.clients` does not ask for them";
            let hint = "set `admin_access.tls` with `clients: { ca: FILE }`";
            self.without_effect(&path.key("certificates"), message, hint);
        }
        match &settings.admin {
            Admin::Off => {}
            Admin::Unix(_) => {
                let given = [
                    ("tokens", !guard.tokens.is_empty()),
                    ("certificates", !guard.certificates.is_empty()),
                    ("tls", guard.tls.is_some()),
                ];
                for (key, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
                    let message = format!(
                        "`{key}` has no effect: `admin` is a socket file, whose mode says who may connect"
                    );
                    let hint = "remove it; `socket_mode` and the group of the file say who";
                    self.without_effect(&path.key(key), &message, hint);
                }
            }
            Admin::At(address) => {
                let message = "`socket_mode` has no effect: `admin` is not a socket file";
                let hint = "remove it, or write `admin: unix:/run/wellhead/admin.sock`";
                // `wellhead check` prints the default.
                if guard.socket_mode != AdminGuard::default().socket_mode {
                    self.without_effect(&path.key("socket_mode"), message, hint);
                }
                let is_guarded = !guard.tokens.is_empty() || !guard.certificates.is_empty();
                if address.ip().is_loopback() || self.touched(&path) || self.touched(&admin) {
                    return;
                }
                if !is_guarded {
                    self.error(
                        &admin,
                        "other machines can reach `admin`, and it needs no token",
                        "make a token with `wellhead token NAME --role view` and list its hash in \
                         `admin_access.tokens`; or write `admin: 127.0.0.1:4546` or \
                         `admin: unix:/run/wellhead/admin.sock`",
                    );
                } else if guard.tls.is_none() {
                    let message =
                        "other machines can reach `admin`, and tokens are sent to it unencrypted";
                    let hint = "set `admin_access.tls`, or make sure that only a network that you trust reaches it";
                    self.warning(&admin, message, hint);
                }
            }
        }
    }

    /// Each token and certificate has a role and a name of its own.
    fn names_and_roles(&mut self, path: &SettingPath) {
        let settings = self.settings;
        let tokens = &settings.admin_access.tokens;
        let certificates = &settings.admin_access.certificates;
        let roles = tokens.iter().map(|it| &it.roles).enumerate();
        let roles = roles.map(|(index, roles)| (path.key("tokens").item(index), roles));
        let more = certificates.iter().map(|it| &it.roles).enumerate();
        let more = more.map(|(index, roles)| (path.key("certificates").item(index), roles));
        for (item, roles) in roles.chain(more) {
            let place = item.key("roles");
            if roles.is_empty() && !self.touched(&item) {
                let hint = "write at least one of `view`, `operate` and `keys`";
                self.error(&place, "this has no role and may do nothing", hint);
            }
        }
        for (index, token) in tokens.iter().enumerate() {
            let item = path.key("tokens").item(index);
            if self.touched(&item) {
                continue;
            }
            for (first, other) in tokens[..index].iter().enumerate() {
                let first = path.key("tokens").item(first);
                if self.touched(&first) {
                    continue;
                }
                if other.name == token.name {
                    let message = format!("two tokens are called `{}`", token.name);
                    let hint = "audit lines tell tokens by their names: give each its own";
                    self.clash(&item.key("name"), &first.key("name"), &message, hint);
                }
                if other.hash == token.hash {
                    let (message, hint) =
                        ("this token is listed twice", "give one entry all its roles");
                    self.clash(&item.key("hash"), &first.key("hash"), message, hint);
                }
            }
        }
        for (index, certificate) in certificates.iter().enumerate() {
            let same = certificates[..index].iter().position(|it| it.name == certificate.name);
            let item = |index| path.key("certificates").item(index).key("name");
            if let Some(first) = same
                && !self.touched(&item(index))
                && !self.touched(&item(first))
            {
                let message = "this certificate is listed twice";
                self.clash(&item(index), &item(first), message, "give one entry all its roles");
            }
        }
    }

    pub(super) fn proxies(&mut self) {
        let path = SettingPath::root().key("access").key("proxies");
        let (trust, protocol) = (path.key("trust"), path.key("protocol"));
        if self.touched(&path) {
            return;
        }
        let settings = self.settings;
        let proxies = &settings.access.proxies;
        if let Err(problems) = Network::set(&proxies.trust) {
            for problem in problems {
                self.error(
                    &trust,
                    problem,
                    "name each network once, and larger ones for many small ones",
                );
            }
            return;
        }
        self.trusted_by_all(&trust, &proxies.trust);
        self.proxy_name_header(&path.key("header"), proxies);
        match (proxies.protocol, proxies.trust.is_empty()) {
            (ProxyMode::Accept, true) => {
                self.error(&protocol, "`accept` has no effect: no proxy is trusted", TRUST_HINT);
            }
            (ProxyMode::Require, true) => {
                let message = "no proxy is trusted: every connection would be closed";
                self.error(&protocol, message, TRUST_HINT);
            }
            (ProxyMode::Off, _) | (ProxyMode::Accept | ProxyMode::Require, false) => {}
        }
    }

    /// Trusting everybody is trusting clients.
    fn trusted_by_all(&mut self, path: &SettingPath, trust: &[Network]) {
        for (index, network) in trust.iter().enumerate() {
            if parse_network(network.as_ref()).is_ok_and(|network| network.prefix_len() == 0) {
                let message = "every client would be believed about its own address";
                let hint = "name the addresses or networks of your load balancers, and no others";
                self.error(&path.item(index), message, hint);
            }
        }
    }

    /// Whether the header is read. `wellhead check` prints the default.
    fn proxy_name_header(&mut self, path: &SettingPath, proxies: &Proxies) {
        if proxies.header == Proxies::default().header {
            return;
        }
        if proxies.trust.is_empty() {
            self.without_effect(path, "`header` has no effect: no proxy is trusted", TRUST_HINT);
        } else if proxies.protocol == ProxyMode::Require {
            let message = "`header` has no effect: the PROXY protocol names the clients";
            self.without_effect(path, message, "remove it");
        }
    }
}
