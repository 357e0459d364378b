//! A certificate that wellhead orders itself, from Let's Encrypt's ACME server for tests.

#![allow(clippy::unwrap_used, reason = "a test may stop where it likes")]

mod with_pebble {
    use std::fmt::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::time::Duration;

    use rustls_pki_types::CertificateDer;
    use serde_json::Value;
    use tempfile::TempDir;
    use wellhead_e2e::{Pebble, PebbleSite, Wellhead, https, until};

    const DOMAIN: &str = "rpc.example.org";
    const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
    /// Some orders, and the pauses after three that failed.
    const BOUND: Duration = Duration::from_secs(90);

    const ISSUED: &str = "a TLS certificate was issued";
    const KEPT: &str = "the TLS certificate that was kept is in use";

    /// A chain without an upstream that answers: what wellhead answers by itself is enough here.
    const CHAINS: &str = "  main: { id: 7, checks: { mode: off }, upstreams: [{ id: a, url: \"http://127.0.0.1:9\" }] }\n";

    struct Site {
        pebble: PebbleSite,
        cache: TempDir,
        wellhead: Wellhead,
    }

    impl Site {
        /// Starts wellhead. The ACME server does not run yet.
        async fn start(domain: &str, more_tls: &str) -> Self {
            let (pebble, cache) = (PebbleSite::new(), tempfile::tempdir().unwrap());
            let mut config = format!("hosts: [{DOMAIN}]\ntls:\n");
            let folder = cache.path().join("acme");
            writeln!(
                config,
                "  acme: {{ domains: [{domain}], contact: [ops@example.org], cache: {}, {} }}",
                folder.display(),
                pebble.settings()
            )
            .unwrap();
            config.push_str(more_tls);
            let wellhead = Wellhead::spawn(&config, CHAINS).ready().await;
            Self { pebble, cache, wellhead }
        }

        async fn start_pebble(&self, validity: Duration) -> Pebble {
            self.pebble.start(self.wellhead.port, validity).await
        }

        /// The certificate over which a call is answered.
        async fn call(&self, pebble: &Pebble) -> Option<CertificateDer<'static>> {
            let body = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;
            let request = format!(
                "POST / HTTP/1.1\r\nhost: {DOMAIN}\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            let client = pebble.client.clone();
            let reply = https(client, DOMAIN, self.wellhead.port, &request).await.ok()?;
            assert!(reply.text.starts_with("HTTP/1.1 200"), "{}", reply.text);
            assert!(reply.text.contains(r#""result":"0x7""#), "{}", reply.text);
            Some(reply.certificate)
        }

        async fn first_certificate(&self, pebble: &Pebble) -> CertificateDer<'static> {
            let called = until(BOUND, || self.call(pebble)).await;
            called.unwrap_or_else(|| {
                panic!("{}\n{}", self.wellhead.process.log(), pebble.process.log())
            })
        }

        async fn logs(&self, text: &str) {
            let found = || async { (self.wellhead.process.lines_with(text) > 0).then_some(()) };
            until(BOUND, found).await.unwrap_or_else(|| {
                panic!("no line with `{text}`:\n{}", self.wellhead.process.log())
            });
        }

        /// When the certificate expires, as the metric says.
        async fn end(&self) -> Option<u64> {
            let metrics = self.wellhead.admin().get("/metrics").await.unwrap().text();
            let labels = "{listener=\"listen\",file=\"certificate\"}";
            let name = format!("wellhead_tls_expires_timestamp_seconds{labels} ");
            metrics.lines().find_map(|line| line.strip_prefix(name.as_str()))?.trim().parse().ok()
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    /// From an ACME server that is away to a restart without one.
    #[tokio::test]
    async fn a_certificate_is_ordered_when_the_server_comes_and_kept_over_a_restart() {
        let mut site = Site::start(DOMAIN, "").await;
        site.logs("the ACME server is unavailable").await;
        assert_eq!(site.end().await, None);

        let pebble = site.start_pebble(MONTH).await;
        let certificate = site.first_certificate(&pebble).await;
        site.logs(ISSUED).await;
        let end = site.end().await.expect("there is a certificate");
        let folder = site.cache.path().join("acme");
        assert_eq!(mode(&folder), 0o700);
        let mut secrets = Vec::new();
        for file in ["account.pem", "certificate.pem"] {
            assert_eq!(mode(&folder.join(file)), 0o600, "{file}");
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            let key = text.lines().skip_while(|line| !line.contains("PRIVATE KEY")).nth(1);
            secrets.push(key.expect("each has a key").to_owned());
        }
        let failed = site.wellhead.process.lines_with("the ACME server is unavailable");
        assert!(failed <= 4, "{}", site.wellhead.process.log());
        for secret in &secrets {
            assert_eq!(site.wellhead.process.lines_with(secret), 0);
        }

        // The one that is kept is used at once, and no other is ordered.
        let asked = pebble.process.lines_with("");
        site.wellhead = site.wellhead.restart().await;
        assert_eq!(site.call(&pebble).await, Some(certificate));
        assert_eq!(site.end().await, Some(end));
        site.logs(KEPT).await;
        assert_eq!(pebble.process.lines_with(""), asked, "{}", pebble.process.log());
        assert_eq!(site.wellhead.process.lines_with(ISSUED), 0);
    }

    #[tokio::test]
    async fn a_certificate_is_renewed_while_clients_call() {
        let site = Site::start(DOMAIN, "").await;
        let pebble = site.start_pebble(Duration::from_secs(20)).await;
        let first = site.first_certificate(&pebble).await;
        let renewed = until(BOUND, || async {
            let found = site.call(&pebble).await.expect("each call is answered");
            (found != first).then_some(())
        });
        renewed.await.unwrap_or_else(|| panic!("{}", site.wellhead.process.log()));
    }

    /// The ACME server has no client certificate, and verifies the domain all the same.
    #[tokio::test]
    async fn domains_are_verified_where_clients_need_a_certificate() {
        let authority = wellhead_e2e::Certificate::new();
        let [ca, _, _] = authority.files();
        let more = format!("  clients: {{ ca: {}, required: true }}\n", ca.display());
        let site = Site::start(DOMAIN, &more).await;
        let pebble = site.start_pebble(MONTH).await;
        site.logs(ISSUED).await;
        assert_eq!(site.call(&pebble).await, None);
    }

    #[tokio::test]
    async fn a_refused_order_is_told_once_and_repeated_later() {
        let site = Site::start(PebbleSite::REFUSED, "").await;
        let _pebble = site.start_pebble(MONTH).await;
        site.logs("the ACME server refused: ").await;
        let printed = site.wellhead.process.printed();
        let line = printed.lines().find(|line| line.contains("refused: ")).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        let failure = line["failure"].as_str().unwrap();
        assert!(failure.contains("rejectedIdentifier"), "{line}");
        assert!(line["retry_in_s"].as_u64().unwrap() >= 600, "{line}");
    }
}
