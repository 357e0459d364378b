//! How a target is reached: what goes along with each call, whose certificates are trusted, and
//! which way connections take.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use wellhead_net::{
    Auth, ClientIdentity, Endpoint, FixedAddress, ForwardProxy, Resolver, TlsClient, TlsSetupError,
    TrustedRoots,
};
use wellhead_telemetry::{Secret, SecretUrl};

/// See the module. Prints no value of a header and no credential.
#[derive(Debug, Clone, Default)]
pub struct TargetAccess {
    /// Sent with every request, over wellhead's own ones of the same name.
    pub headers: Vec<(String, Secret)>,
    /// The credentials.
    pub auth: Auth,
    /// Authorities to trust, in PEM; `None` for the public ones.
    pub authorities: Option<Arc<[u8]>>,
    /// Whether the public ones are trusted as well.
    pub authorities_add: bool,
    /// The certificate that a server that asks for one is shown.
    pub identity: Option<ClientIdentity>,
    /// The proxy to go through.
    pub proxy: Option<ForwardProxy>,
    /// Names that are not looked up.
    pub resolve: Vec<FixedAddress>,
}

impl TargetAccess {
    /// The endpoint at `url`.
    pub(super) fn endpoint(&self, url: SecretUrl) -> Endpoint {
        Endpoint {
            headers: self.headers.clone(),
            auth: self.auth.clone(),
            proxy: self.proxy.clone(),
            ..Endpoint::new(url)
        }
    }

    pub(super) fn tls(&self) -> Result<TlsClient, TlsSetupError> {
        let roots = match &self.authorities {
            Some(pem) if self.authorities_add => TrustedRoots::PublicAnd(pem),
            Some(pem) => TrustedRoots::Only(pem),
            None => TrustedRoots::Public,
        };
        TlsClient::with_identity(roots, self.identity.as_ref())
    }

    pub(super) fn resolver(&self) -> Resolver {
        Resolver::with_fixed(self.resolve.clone())
    }

    /// Values that must not be in a record, as they are sent and as they are meant.
    pub(super) fn secrets(&self) -> Vec<String> {
        let mut values: Vec<String> =
            self.headers.iter().map(|(_, value)| value.expose().to_owned()).collect();
        let proxy = self.proxy.as_ref().and_then(ForwardProxy::credentials);
        values.extend(proxy.map(|value| value.expose().to_owned()));
        match &self.auth {
            Auth::Url => {}
            Auth::Basic { user, password } => {
                let pair = [user.expose(), password.expose()];
                values.push(BASE64.encode(pair.join(":")));
                values.extend(pair.map(str::to_owned));
            }
            Auth::Bearer(token) => values.push(token.expose().to_owned()),
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_credentials_are_secrets_and_none_is_shown() {
        let proxy = SecretUrl::parse("http://me:PROXYKEY@p.example").expect("a URL");
        let access = TargetAccess {
            headers: vec![("x-key".to_owned(), Secret::new("HEADKEY"))],
            auth: Auth::Basic { user: Secret::new("someone"), password: Secret::new("PASSKEY") },
            proxy: Some(ForwardProxy::new(&proxy).expect("a proxy")),
            ..TargetAccess::default()
        };
        // `me:PROXYKEY` and `someone:PASSKEY`.
        let encoded = ["Basic bWU6UFJPWFlLRVk=", "c29tZW9uZTpQQVNTS0VZ"];
        let expected = ["HEADKEY", encoded[0], encoded[1], "someone", "PASSKEY"];
        assert_eq!(access.secrets(), expected);
        let shown = format!("{access:?}");
        assert!(shown.contains("x-key") && shown.contains("p.example"), "{shown}");
        assert!(!shown.contains("KEY"), "{shown}");
    }
}
