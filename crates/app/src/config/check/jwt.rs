//! Checks of issuers of signed tokens: where their keys come from, and whose tokens they are.

use std::collections::HashMap;

use url::Url;
use wellhead_access::jwt::{BadKey, ISSUERS_MAX, JwtAlgorithm, KeySet};

use super::super::access::Jwt;
use super::super::place::is_local;
use super::super::problem::SettingPath;
use super::super::read::{Setting as _, listed};
use super::Checker;

impl Checker<'_> {
    pub(super) fn issuers(&mut self, path: &SettingPath) {
        let (settings, mut seen) = (self.settings, HashMap::new());
        let jwt = &settings.access.jwt;
        if jwt.len() > ISSUERS_MAX && !self.touched(path) {
            let message = format!("there are {} issuers", jwt.len());
            self.error(path, message, format!("at most {ISSUERS_MAX} fit"));
        }
        for (index, issuer) in jwt.iter().enumerate() {
            let item = path.item(index);
            let place = item.key("issuer");
            if let Some(first) = self.seen_before(&mut seen, issuer.issuer.0.as_str(), &place) {
                let hint = "give one entry all that holds for its tokens";
                self.clash(&place, &first, "this issuer is listed twice", hint);
            }
            self.issuer_keys(&item, issuer);
            self.issuer_claims(&item, issuer);
        }
    }

    /// One source of keys, and one that no other program can write to.
    fn issuer_keys(&mut self, path: &SettingPath, issuer: &Jwt) {
        let Jwt { jwks, ca_file, public_key, secret, .. } = issuer;
        let given = [
            ("jwks", jwks.is_some()),
            ("public_key", public_key.is_some()),
            ("secret", secret.is_some()),
        ];
        let given: Vec<_> = given.iter().filter(|(_, given)| *given).map(|(key, _)| *key).collect();
        let is_broken =
            ["jwks", "public_key", "secret"].iter().any(|key| self.touched(&path.key(key)));
        match given[..] {
            _ if is_broken => return,
            [] => {
                let hint =
                    "write `jwks: https://...`, `public_key: FILE` or `secret: \"${SHARED}\"`";
                self.error(path, "the issuer has no key", hint);
                return;
            }
            [_] => {}
            _ => {
                let message = format!("the issuer has keys from {}", listed(&given));
                self.error(
                    path,
                    message,
                    "keep one of them: the key decides which algorithm is accepted",
                );
                return;
            }
        }
        if let Some(jwks) = jwks {
            self.jwks(&path.key("jwks"), jwks.expose());
            let secure = jwks.expose().scheme() == "https";
            if ca_file.is_some() && !secure {
                let message = "`ca_file` has no effect: `jwks` is not `https://`";
                self.without_effect(&path.key("ca_file"), message, "remove it");
            }
            return;
        }
        self.issuer_key(path, issuer);
    }

    /// A key that is not fetched.
    fn issuer_key(&mut self, path: &SettingPath, issuer: &Jwt) {
        let message = "`ca_file` has no effect without `jwks`";
        self.without_effect(&path.key("ca_file"), message, "remove it");
        if issuer.stale_max != Jwt::blank().stale_max {
            let message = "`stale_max` has no effect without `jwks`";
            self.without_effect(&path.key("stale_max"), message, "remove it");
        }
        if let Some(secret) = &issuer.secret
            && let Err(error) = KeySet::from_secret(secret, JwtAlgorithm::Hs256)
        {
            let (place, hint) = (path.key("secret"), "make one with `openssl rand -hex 32`");
            match error {
                BadKey::PublicSecret => {
                    let message =
                        "this is a public key or a certificate: with it anybody could sign";
                    self.error(
                        &place,
                        message,
                        "write it to a file, and name that in `public_key`",
                    );
                }
                error => self.error(&place, error.to_string(), hint),
            }
        }
    }

    /// Whoever can answer for the URL can sign.
    fn jwks(&mut self, path: &SettingPath, url: &Url) {
        match url.scheme() {
            "https" => {}
            "http" if is_local(url) => {}
            "http" => {
                let message =
                    "the keys of the issuer are fetched without TLS: anybody on the way could sign";
                self.error(path, message, "begin it with `https://`");
            }
            _ => self.error(
                path,
                "expected a URL that begins with `https://`",
                "name the address of the key set (JWKS)",
            ),
        }
        if !url.username().is_empty() || url.password().is_some() {
            let message = "the URL holds user and password, which are not sent";
            self.error(path, message, "key sets are public: remove them");
        }
    }

    /// Whose tokens they are, and for whom.
    fn issuer_claims(&mut self, path: &SettingPath, issuer: &Jwt) {
        let Jwt { audience, tenant, tenant_claim, require, .. } = issuer;
        let place = path.key("audience");
        if audience.is_empty() && !self.touched(&place) {
            let message = "tokens that the issuer made for any other service are accepted";
            let hint =
                "name this service as the issuer does: `audience: [https://rpc.example.org]`";
            self.warning(&place, message, hint);
        }
        for (claim, values) in require.iter() {
            let place = path.key("require").key(claim.as_ref());
            if values.is_empty() && !self.touched(&place) {
                let message = "no value is allowed: no token would be accepted";
                self.error(&place, message, "list the allowed values, or remove the claim");
            }
        }
        if let Some(tenant) = tenant {
            self.tenant_of(&path.key("tenant"), tenant.as_ref());
        }
        let (fixed, claim) = (path.key("tenant"), path.key("tenant_claim"));
        if self.touched(&fixed) || self.touched(&claim) {
            return;
        }
        match (tenant, tenant_claim) {
            (Some(_), Some(_)) => {
                let message = "the issuer has both `tenant` and `tenant_claim`";
                self.error(path, message, "keep one of them");
            }
            (None, None) => {
                let message = "the issuer does not say whose its tokens are";
                self.error(path, message, "write `tenant: NAME`, or `tenant_claim: /org/id`");
            }
            (None, Some(_)) if self.settings.tenants.is_empty() => {
                let message = "there are no tenants that `tenant_claim` could name";
                self.error(&claim, message, "list them: `tenants: { acme: {} }`");
            }
            (None, Some(_)) | (Some(_), None) => {}
        }
        let place = path.key("quota_claim");
        if issuer.quota_claim.is_some() && self.settings.quotas.is_empty() && !self.touched(&place)
        {
            let message = "there are no quotas that `quota_claim` could name";
            self.error(&place, message, "list them: `quotas: { free: { calls_per_second: 10 } }`");
        }
    }
}
