//! The targets of a run, and how each is reached: by its URL and the arguments, or as an upstream
//! of the proxy's config is.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use wellhead_analyze::measure::client::{
    ConnectionNumbers, ConnectionSettings, TargetAccess, TargetClient, TargetEndpoint,
};
use wellhead_analyze::report::summary;
use wellhead_net::{Auth, FixedAddress, ForwardProxy};
use wellhead_telemetry::{Secret, SecretUrl};
use wellhead_upstream::Provider;

use super::named;
use crate::cli::analyze::TargetArgs;
use crate::cli::analyze::endpoint::EndpointArgs;
use crate::config::{self, IdentityFiles, Overrides, Upstream};
use crate::target::{self, authorities, identity};
use crate::terminal::{CommandError, environment, rendered};

/// Longer files of headers and tokens are refused.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// The targets: those with a URL, then the upstreams.
///
/// # Errors
///
/// Where one cannot be used, or has the name of another.
pub(super) fn endpoints(targets: &TargetArgs) -> Result<Vec<TargetEndpoint>, CommandError> {
    let TargetArgs { urls: texts, endpoint: args, note: _, seed: _ } = targets;
    let access = access(args)?;
    let mut endpoints = urls(texts)?;
    endpoints.extend(upstreams(args)?);
    for (index, endpoint) in endpoints.iter().enumerate() {
        let id = &endpoint.target.id;
        if endpoints[..index].iter().any(|other| other.target.id == *id) {
            let text = format!("URL {}: another target is called `{id}`", index + 1);
            return Err(wrong(format!("{text}: give each its own NAME=URL")));
        }
    }
    check_one_host(&endpoints, args)?;
    let endpoints = endpoints
        .into_iter()
        .map(|endpoint| reached(endpoint, &access))
        .collect::<Result<_, _>>()?;
    priced(endpoints, args)
}

/// With what their calls cost.
fn priced(
    endpoints: Vec<TargetEndpoint>,
    args: &EndpointArgs,
) -> Result<Vec<TargetEndpoint>, CommandError> {
    let all = || Provider::all().iter();
    let named = match &args.provider {
        Some(id) => {
            let known = all().map(|it| it.id.as_str()).collect::<Vec<_>>().join(", ");
            let hint = format!("`--provider`: there is no `{id}` in the catalogue: it has {known}");
            Some(Provider::named(id).ok_or_else(|| wrong(hint))?)
        }
        None => None,
    };
    let endpoints: Vec<TargetEndpoint> = match named {
        Some(provider) => {
            endpoints.into_iter().map(|endpoint| endpoint.at_provider(provider)).collect()
        }
        None => endpoints,
    };
    let plan = |endpoint: &TargetEndpoint| {
        endpoint.provider().zip(args.plan.as_deref()).and_then(|(it, name)| it.plan(name))
    };
    if let Some(name) = &args.plan
        && !endpoints.iter().any(|endpoint| plan(endpoint).is_some())
    {
        return Err(wrong(format!(
            "`--plan`: no target's provider has a plan `{name}` in the catalogue; see docs/providers.md"
        )));
    }
    if args.usd_per_million.is_some()
        && endpoints.iter().all(|endpoint| endpoint.provider().is_none())
    {
        let hint = "the provider of no target is known: name it with `--provider`";
        return Err(wrong(format!("`--usd-per-million`: {hint}")));
    }
    let priced = |endpoint: TargetEndpoint| {
        let plan = plan(&endpoint);
        endpoint.on_plan(plan, args.usd_per_million)
    };
    Ok(endpoints.into_iter().map(priced).collect())
}

fn wrong(text: String) -> CommandError {
    CommandError::Config(text)
}

fn urls(urls: &[String]) -> Result<Vec<TargetEndpoint>, CommandError> {
    let endpoint = |(index, text): (usize, &String)| {
        let (name, text) = named(text);
        let url = SecretUrl::parse(text).map_err(|why| why.to_string());
        let url = url.and_then(|url| match url.expose().scheme() {
            "http" | "https" | "ws" | "wss" => Ok(url),
            other => Err(format!("scheme `{other}` is not measured: use http, https, ws or wss")),
        });
        // The text is not quoted: it may hold a key.
        let url = url.map_err(|why| wrong(format!("URL {}: {why}", index + 1)))?;
        Ok(TargetEndpoint::new(name.map_or_else(|| summary::given(index), str::to_owned), url))
    };
    urls.iter().enumerate().map(endpoint).collect()
}

/// Refuses headers and tokens for several hosts: one provider must not see the credentials of another.
fn check_one_host(endpoints: &[TargetEndpoint], args: &EndpointArgs) -> Result<(), CommandError> {
    let is_secret = !args.headers.is_empty() || args.bearer_file.is_some();
    let other = endpoints.iter().find(|endpoint| endpoint.target.host != endpoints[0].target.host);
    match other {
        Some(other) if is_secret => Err(wrong(format!(
            "`--header` and `--bearer-file` would be sent to `{}` and to `{}`: measure them one by one, \
             or as upstreams of a config (`--config`, `--upstream`)",
            endpoints[0].target.host, other.target.host
        ))),
        Some(_) | None => Ok(()),
    }
}

/// The endpoint with what all targets share; checked, without a connection.
fn reached(
    endpoint: TargetEndpoint,
    shared: &TargetAccess,
) -> Result<TargetEndpoint, CommandError> {
    let own = endpoint.access();
    let mut headers = own.headers.clone();
    headers.extend(shared.headers.iter().cloned());
    let auth = match (&shared.auth, &own.auth) {
        (Auth::Url, auth) | (auth, _) => auth.clone(),
    };
    let (authorities, authorities_add) = match &shared.authorities {
        Some(pem) => (Some(Arc::clone(pem)), false),
        None => (own.authorities.clone(), own.authorities_add),
    };
    let TargetAccess { proxy, resolve, identity, .. } = shared.clone();
    let identity = identity.or_else(|| own.identity.clone());
    let access =
        TargetAccess { headers, auth, authorities, authorities_add, identity, proxy, resolve };
    let endpoint = endpoint.with_access(access);
    match TargetClient::new(&endpoint, ConnectionSettings::ONE, &ConnectionNumbers::default(), 0) {
        Ok(_) => Ok(endpoint),
        Err(why) => Err(wrong(format!("`{}`: {why}", endpoint.target.id))),
    }
}

/// What the arguments say of all targets.
fn access(args: &EndpointArgs) -> Result<TargetAccess, CommandError> {
    let headers = headers("--header", &args.headers)?;
    let auth = match &args.bearer_file {
        Some(path) => Auth::Bearer(Secret::new(secret_file("--bearer-file", path)?.trim())),
        None => Auth::Url,
    };
    let authorities =
        args.ca_file.as_deref().map(|path| authorities("--ca-file", path).map_err(wrong));
    let files = args.client_cert.clone().zip(args.client_key.clone());
    let files = files.map(|(certificate, key)| IdentityFiles { certificate, key });
    let identity = files.map(|files| identity("--client-cert", &files).map_err(wrong));
    let proxy = args.proxy.as_deref().map(|text| {
        let url = SecretUrl::parse(text).map_err(|why| why.to_string());
        let proxy = url.and_then(|url| ForwardProxy::new(&url).map_err(|why| why.to_string()));
        proxy.map_err(|why| wrong(format!("`--proxy`: {why}")))
    });
    Ok(TargetAccess {
        headers,
        auth,
        authorities: authorities.transpose()?,
        authorities_add: false,
        identity: identity.transpose()?,
        proxy: proxy.transpose()?,
        resolve: args.resolve.iter().map(|text| fixed(text)).collect::<Result<_, _>>()?,
    })
}

/// Headers as arguments called `what` give them, each `Name: value`, or @FILE with one in each line.
///
/// # Errors
///
/// Where one is none of these, or a file cannot be read.
pub(super) fn headers(what: &str, texts: &[String]) -> Result<Vec<(String, Secret)>, CommandError> {
    let mut headers = Vec::new();
    for text in texts {
        match text.strip_prefix('@') {
            Some(path) => {
                let text = secret_file(what, Path::new(path))?;
                let lines = text.lines().filter(|line| !line.trim().is_empty());
                for line in lines {
                    headers.push(header(what, line)?);
                }
            }
            None => headers.push(header(what, text)?),
        }
    }
    Ok(headers)
}

/// `Name: value`. The text is not quoted: it may be a secret.
fn header(what: &str, text: &str) -> Result<(String, Secret), CommandError> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() && !name.contains(' ') => {
            Ok((name.to_owned(), Secret::new(value.trim())))
        }
        Some(_) | None => Err(wrong(format!("`{what}` needs `Name: value`, or @FILE"))),
    }
}

fn secret_file(what: &str, path: &Path) -> Result<String, CommandError> {
    let failed = |why: String| wrong(format!("`{what}`: `{}` {why}", path.display()));
    let text = config::file::read_any(path, SECRET_BYTES_MAX)
        .and_then(config::file::text)
        .map_err(|error| failed(format!("cannot be read: {error}")))?;
    if text.trim().is_empty() { Err(failed("is empty".to_owned())) } else { Ok(text) }
}

/// `HOST:PORT:ADDRESS`, the address of IPv6 with or without brackets.
fn fixed(text: &str) -> Result<FixedAddress, CommandError> {
    let parsed = || {
        let (host, rest) = text.split_once(':')?;
        let (port, ip) = rest.split_once(':')?;
        let port: u16 = port.parse().ok()?;
        let ip: IpAddr = ip.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
        let address = SocketAddr::new(ip, port);
        (!host.is_empty()).then(|| FixedAddress { host: host.to_owned(), port, address })
    };
    parsed().ok_or_else(|| wrong(format!("`--resolve {text}`: HOST:PORT:ADDRESS is needed")))
}

/// The upstreams of the config that are targets.
fn upstreams(args: &EndpointArgs) -> Result<Vec<TargetEndpoint>, CommandError> {
    if args.upstreams.is_empty() {
        return Ok(Vec::new());
    }
    let path = config::find(args.config.as_deref()).map_err(|error| wrong(error.to_string()))?;
    let loaded = config::load(&path, &environment, Overrides::default())
        .map_err(|report| wrong(rendered(&report)))?;
    let known: Vec<&Upstream> =
        loaded.settings.chains.iter().flat_map(|(_, chain)| &chain.upstreams).collect();
    let endpoint = |id: &String| {
        let Some(upstream) = known.iter().find(|upstream| upstream.id.as_str() == id) else {
            let ids: Vec<&str> = known.iter().map(|upstream| upstream.id.as_str()).collect();
            let text = format!("there is no upstream `{id}` in `{}`", path.display());
            return Err(wrong(format!("{text}: it has {}", ids.join(", "))));
        };
        target::as_configured(upstream).map_err(wrong)
    };
    args.upstreams.iter().map(endpoint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::analyze::CommonArgs;

    fn refused<T>(outcome: Result<T, CommandError>) -> String {
        match outcome {
            Err(CommandError::Config(text)) => text,
            Ok(_) | Err(_) => String::new(),
        }
    }

    fn with(urls: &[&str], endpoint: EndpointArgs) -> Result<Vec<TargetEndpoint>, CommandError> {
        let urls = urls.iter().map(|url| (*url).to_owned()).collect();
        endpoints(&TargetArgs { endpoint, ..CommonArgs::test(urls).targets })
    }

    fn header_args(headers: &[&str]) -> EndpointArgs {
        let headers = headers.iter().map(|header| (*header).to_owned()).collect();
        EndpointArgs { headers, ..EndpointArgs::default() }
    }

    #[test]
    fn a_header_is_given_or_read_and_never_shown() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("headers");
        std::fs::write(&file, "x-api-key: FILEKEY\n\nx-team: a: b\n").expect("written");
        let args = header_args(&["X-Key: GIVENKEY", &format!("@{}", file.display())]);
        let endpoints = with(&["http://h.example"], args).unwrap_or_default();
        let headers: Vec<String> = endpoints[0]
            .access()
            .headers
            .iter()
            .map(|(name, value)| format!("{name}={}", value.expose()))
            .collect();
        assert_eq!(headers, ["X-Key=GIVENKEY", "x-api-key=FILEKEY", "x-team=a: b"]);
        let shown = format!("{endpoints:?}");
        assert!(shown.contains("x-api-key") && !shown.contains("FILEKEY"), "{shown}");
        assert!(!shown.contains("GIVENKEY"), "{shown}");
    }

    #[test]
    fn what_cannot_be_sent_is_told_before_anything_is() {
        let one = &["http://h.example"][..];
        for (args, expected) in [
            (header_args(&["KEYKEYKEY"]), "`--header` needs `Name: value`, or @FILE"),
            (header_args(&["a b: KEY"]), "`--header` needs `Name: value`, or @FILE"),
            (
                header_args(&["content-length: 1"]),
                "`target-1`: header `content-length` is set by the transport and cannot be configured",
            ),
            (
                header_args(&["@/nowhere/h"]),
                "`--header`: `/nowhere/h` cannot be read: No such file",
            ),
        ] {
            let told = refused(with(one, args));
            assert!(told.starts_with(expected), "{told}");
            assert!(!told.contains("KEY"), "{told}");
        }
        let proxy = EndpointArgs { proxy: Some("https://p".into()), ..EndpointArgs::default() };
        let told = refused(with(one, proxy));
        assert_eq!(told, "`--proxy`: scheme `https` is not supported: use http");
        let ca = EndpointArgs { ca_file: Some("/nowhere/ca".into()), ..EndpointArgs::default() };
        assert!(refused(with(one, ca)).starts_with("`--ca-file` `/nowhere/ca`: "));
        let identity = EndpointArgs {
            client_cert: Some("/nowhere/c".into()),
            client_key: Some("/nowhere/k".into()),
            ..EndpointArgs::default()
        };
        let told = refused(with(one, identity));
        assert_eq!(told, "`--client-cert`: `/nowhere/c`: there is no such file");
    }

    #[test]
    fn a_secret_goes_to_one_host() {
        let two = &["a=http://a.example/1", "http://b.example"][..];
        let told = refused(with(two, header_args(&["x: y"])));
        assert!(told.contains("to `a.example` and to `b.example`"), "{told}");
        assert!(
            with(&["http://a.example/1", "http://a.example/2"], header_args(&["x: y"])).is_ok()
        );
        assert!(with(two, EndpointArgs::default()).is_ok());
    }

    #[test]
    fn an_address_is_fixed_for_a_name_and_a_port() {
        for (text, expected) in [
            ("h.example:443:127.0.0.1", Some("127.0.0.1:443")),
            ("h.example:8545:::1", Some("[::1]:8545")),
            ("h.example:8545:[::1]", Some("[::1]:8545")),
            ("h.example:443", None),
            ("h.example:x:127.0.0.1", None),
            (":443:127.0.0.1", None),
            ("h.example:443:other.example", None),
        ] {
            let found = fixed(text).ok().map(|it| it.address.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn prices_are_those_of_the_provider_that_is_named() {
        let args = |provider: Option<&str>, plan: Option<&str>, usd_per_million| EndpointArgs {
            provider: provider.map(str::to_owned),
            plan: plan.map(str::to_owned),
            usd_per_million,
            ..EndpointArgs::default()
        };
        let one = &["http://h.example"][..];
        let endpoints =
            with(one, args(Some("alchemy"), Some("free"), Some(0.45))).unwrap_or_default();
        let price = endpoints[0].target.price.clone().unwrap_or_default();
        assert_eq!((price.unit.as_str(), price.credits_per_month), ("CU", Some(30_000_000)));
        assert_eq!((price.plan.as_deref(), price.usd_per_million), (Some("free"), Some(0.45)));
        assert_eq!(endpoints[0].credits("eth_blockNumber"), Some(10.0));
        for (args, expected) in [
            (
                args(Some("unknown"), None, None),
                "`--provider`: there is no `unknown` in the catalogue",
            ),
            (
                args(Some("alchemy"), Some("gold"), None),
                "`--plan`: no target's provider has a plan `gold`",
            ),
            (args(None, Some("free"), None), "`--plan`: no target's provider has a plan `free`"),
            (
                args(None, None, Some(1.0)),
                "`--usd-per-million`: the provider of no target is known",
            ),
        ] {
            let told = refused(with(one, args));
            assert!(told.starts_with(expected), "{told}");
        }
    }

    #[test]
    fn an_upstream_brings_its_own_settings() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("wellhead.yaml");
        let text = "chains:\n  ethereum:\n    upstreams:\n      \
                    - { id: one, url: \"https://a.example/PATHKEY\", headers: { x-key: HEADKEY } }\n      \
                    - { id: two, url: \"https://b.example\", auth: { bearer: TOKENKEY } }\n";
        std::fs::write(&file, text).expect("written");
        let args = |ids: &[&str]| EndpointArgs {
            config: Some(file.clone()),
            upstreams: ids.iter().map(|id| (*id).to_owned()).collect(),
            ..EndpointArgs::default()
        };
        let endpoints = with(&[], args(&["two", "one"])).unwrap_or_default();
        let told: Vec<String> = endpoints
            .iter()
            .map(|endpoint| format!("{} {}", endpoint.target.id, endpoint.target.host))
            .collect();
        assert_eq!(told, ["two b.example", "one a.example"]);
        assert!(
            matches!(&endpoints[0].access().auth, Auth::Bearer(it) if it.expose() == "TOKENKEY")
        );
        assert_eq!(endpoints[1].access().headers[0].1.expose(), "HEADKEY");
        let told = refused(with(&[], args(&["three"])));
        assert!(told.ends_with(": it has one, two"), "{told}");
    }
}
