//! The admin listener's routes and headers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::net::TcpStream;
use wellhead_access::Pepper;
use wellhead_server::{
    AdminAccess, AdminAction, AdminCall, AdminCertificate, AdminHandler, AdminReply, AdminRole,
    AdminToken, ClientName, Health, Listener, LocalListener, Metrics, Server, Settings, Shutdown,
    Tls, UsageReport,
};
use wellhead_transport::BoxFuture;

use crate::certificates::{Authority, Files, VALID};
use crate::log::Lines;
use crate::site::GUARD;
use crate::wire::{Reply, Wire};

#[derive(Debug, Default)]
struct Well {
    well: AtomicBool,
    access: Arc<AdminAccess>,
    acted: AtomicUsize,
}

const fn action(
    name: &'static str,
    method: &'static str,
    path: &'static str,
    role: AdminRole,
) -> AdminAction {
    AdminAction { name, method, path, role }
}

const ACTIONS: &[AdminAction] = &[
    action("key.list", "GET", "/keys", AdminRole::Keys),
    action("key.create", "POST", "/keys", AdminRole::Keys),
    action("key.revoke", "DELETE", "/keys/*", AdminRole::Keys),
    action("reload", "POST", "/reload", AdminRole::Operate),
    action("panic", "POST", "/panic", AdminRole::Operate),
    action("wait", "POST", "/wait", AdminRole::Operate),
];

impl Well {
    async fn acted(&self, call: AdminCall) -> AdminReply {
        self.acted.fetch_add(1, Ordering::Relaxed);
        match call.action.name {
            "panic" => panic!("as the test asked"),
            "wait" => std::future::pending().await,
            "key.create" if call.body.is_empty() => AdminReply {
                status: 400,
                body: Bytes::from_static(br#"{"error":"no body"}"#),
                subject: None,
            },
            "key.create" => AdminReply {
                status: 201,
                body: Bytes::from_static(br#"{"id":"ab12","secret":"SECRET"}"#),
                subject: Some("ab12".to_owned()),
            },
            _ => {
                let said = (call.subject, call.query, call.actor.name);
                AdminReply { status: 200, body: format!("{said:?}").into(), subject: None }
            }
        }
    }
}

impl AdminHandler for Well {
    fn access(&self) -> Arc<AdminAccess> {
        Arc::clone(&self.access)
    }

    fn actions(&self) -> &'static [AdminAction] {
        ACTIONS
    }

    fn act(&self, call: AdminCall) -> BoxFuture<'_, AdminReply> {
        Box::pin(self.acted(call))
    }

    fn metrics(&self, is_open: bool) -> Metrics {
        let exemplar = if is_open { " # {trace_id=\"1\"} 1" } else { "" };
        let body = format!("wellhead_requests_total 1{exemplar}\n").repeat(1000).into();
        Metrics { content_type: "text/plain; version=0.0.4", body }
    }

    fn live(&self) -> Health {
        Health { well: true, body: Bytes::from_static(b"{}") }
    }

    fn ready(&self) -> Health {
        let well = self.well.load(Ordering::Relaxed);
        Health { well, body: Bytes::from_static(br#"{"why":"starting"}"#) }
    }

    fn status(&self) -> Bytes {
        Bytes::from_static(br#"{"version":"0.1.0"}"#)
    }

    fn explain(&self, query: &str) -> Health {
        Health { well: query == "method=a", body: Bytes::from_static(b"{}") }
    }

    fn usage(&self, query: &str) -> UsageReport {
        let (well, content_type) = match query {
            "format=csv" => (true, "text/csv; charset=utf-8"),
            _ => (false, "application/json"),
        };
        UsageReport { well, content_type, body: Bytes::from_static(b"{}") }
    }
}

async fn open() -> (Wire, Arc<Well>, Shutdown) {
    let (address, admin, shutdown) = open_with(AdminAccess::default(), None);
    (Wire::connect(address).await, admin, shutdown)
}

fn open_with(access: AdminAccess, tls: Option<Arc<Tls>>) -> (SocketAddr, Arc<Well>, Shutdown) {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), false).unwrap();
    let address = listener.address();
    let server = Server::with(Settings::admin(), tls);
    let admin = Arc::new(Well { access: Arc::new(access), ..Well::default() });
    let shutdown = Shutdown::new();
    tokio::spawn({
        let (admin, shutdown) = (Arc::clone(&admin), shutdown.clone());
        async move { server.serve_admin(listener, admin, &shutdown).await }
    });
    (address, admin, shutdown)
}

async fn get(wire: &mut Wire, target: &str) -> Reply {
    wire.ask(&format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await
}

#[tokio::test]
async fn routes() {
    let (mut wire, _, _) = open().await;
    for (target, status, content_type) in [
        ("/", 200, "text/html; charset=utf-8"),
        ("/?x", 200, "text/html; charset=utf-8"),
        ("/page.css", 200, "text/css; charset=utf-8"),
        ("/page.js", 200, "text/javascript; charset=utf-8"),
        ("/status", 200, "application/json"),
        ("/livez", 200, "application/json"),
        ("/explain?method=a", 200, "application/json"),
        ("/explain", 400, "application/json"),
        ("/usage?format=csv", 200, "text/csv; charset=utf-8"),
        ("/usage", 400, "application/json"),
        ("/readyz", 503, "application/json"),
        ("/metrics", 200, "text/plain; version=0.0.4"),
        ("/page.html", 404, "application/json"),
        ("/../status", 404, "application/json"),
    ] {
        let reply = get(&mut wire, target).await;
        assert_eq!(reply.status, status, "{target}");
        assert_eq!(reply.header("content-type"), Some(content_type), "{target}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
        assert!(!reply.body.is_empty(), "{target}");
    }
}

#[tokio::test]
async fn readiness_follows_the_admin() {
    let (mut wire, admin, _) = open().await;
    let reply = get(&mut wire, "/readyz").await;
    assert_eq!((reply.status, reply.json()["why"].as_str()), (503, Some("starting")));
    admin.well.store(true, Ordering::Relaxed);
    assert_eq!(get(&mut wire, "/readyz").await.status, 200);
}

#[tokio::test]
async fn head_has_the_length_and_no_body() {
    let (mut wire, _, _) = open().await;
    let full = get(&mut wire, "/metrics").await;
    wire.send("HEAD /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let head = wire.reply_to_head().await;
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-length"), full.header("content-length"));
    assert_eq!(get(&mut wire, "/livez").await.status, 200);
}

/// A token for each role, and one for two.
fn guarded() -> AdminAccess {
    let token = |name: &str, roles: &[AdminRole]| AdminToken {
        name: name.into(),
        roles: roles.iter().copied().collect(),
        hash: Pepper::well_known().hash(&format!("secret-of-{name}")),
    };
    let tokens = vec![
        token("view", &[AdminRole::View]),
        token("operate", &[AdminRole::Operate]),
        token("keys", &[AdminRole::Keys]),
        token("both", &[AdminRole::Operate, AdminRole::Keys]),
    ];
    AdminAccess { tokens, metrics_open: false, ..AdminAccess::default() }
}

async fn status_of(wire: &mut Wire, method: &str, target: &str, more: &str) -> u16 {
    let ask =
        format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n{more}\r\n");
    wire.ask(&ask).await.status
}

/// Path by token: none, one that is wrong, `view`, `operate`, `keys`, and one with both of these.
#[tokio::test]
async fn each_path_has_its_role() {
    let table: [(&str, &str, [u16; 6]); 14] = [
        ("GET", "/", [200; 6]),
        ("GET", "/page.js", [200; 6]),
        ("GET", "/page.css", [200; 6]),
        ("GET", "/livez", [200; 6]),
        ("GET", "/readyz", [503; 6]),
        ("GET", "/metrics", [401, 401, 200, 200, 403, 200]),
        ("GET", "/status", [401, 401, 200, 200, 403, 200]),
        ("GET", "/explain?method=a", [401, 401, 200, 200, 403, 200]),
        ("GET", "/keys", [401, 401, 403, 403, 200, 200]),
        ("POST", "/reload", [401, 401, 403, 200, 403, 200]),
        ("DELETE", "/keys/ab12", [401, 401, 403, 403, 200, 200]),
        ("POST", "/keys", [401, 401, 403, 403, 400, 400]),
        ("GET", "/nothing", [404; 6]),
        ("PUT", "/keys", [405; 6]),
    ];
    let (address, admin, _shutdown) = open_with(guarded(), None);
    let mut wire = Wire::connect(address).await;
    let tokens = ["", "wrong", "view", "operate", "keys", "both"];
    for (method, target, expected) in table {
        for (token, expected) in tokens.iter().zip(expected) {
            let before = admin.acted.load(Ordering::Relaxed);
            let more = match *token {
                "" => String::new(),
                token => format!("authorization: Bearer secret-of-{token}\r\n"),
            };
            let status = status_of(&mut wire, method, target, &more).await;
            assert_eq!(status, expected, "{method} {target} with `{token}`");
            if [401, 403, 404, 405].contains(&status) {
                assert_eq!(admin.acted.load(Ordering::Relaxed), before, "{method} {target}");
            }
        }
    }
}

#[tokio::test]
async fn a_caller_without_a_token_is_told_what_to_send() {
    let (address, _, _shutdown) = open_with(guarded(), None);
    let mut wire = Wire::connect(address).await;
    let reply = get(&mut wire, "/status").await;
    assert_eq!(reply.header("www-authenticate"), Some(r#"Bearer realm="wellhead admin""#));
    assert!(reply.json()["error"].as_str().unwrap().contains("authorization: Bearer"));
    let reply =
        wire.ask("PUT /keys HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, POST")));
}

/// Probes need no token, and without one they say only what the status does.
#[tokio::test]
async fn probes_say_why_to_callers_that_may_view() {
    let (address, _, _shutdown) = open_with(guarded(), None);
    let mut wire = Wire::connect(address).await;
    for (token, body) in [
        ("", r#"{"ready":false}"#),
        ("keys", r#"{"ready":false}"#),
        ("view", r#"{"why":"starting"}"#),
    ] {
        let probe = format!(
            "GET /readyz HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer secret-of-{token}\r\n\r\n"
        );
        let reply = wire.ask(&probe).await;
        assert_eq!((reply.status, &*reply.body), (503, body.as_bytes()), "{token}");
    }
}

#[tokio::test]
async fn metrics_can_be_open() {
    let access = AdminAccess { metrics_open: true, ..guarded() };
    let (address, _, _shutdown) = open_with(access, None);
    let mut wire = Wire::connect(address).await;
    assert_eq!(get(&mut wire, "/metrics").await.status, 200);
    assert_eq!(get(&mut wire, "/status").await.status, 401);
}

/// Without tokens a page of any origin could send a simple request from this machine's browser.
#[tokio::test]
async fn a_simple_request_of_a_web_page_changes_nothing() {
    let (mut wire, admin, _) = open().await;
    for (more, expected) in [
        ("", 403),
        ("content-type: text/plain\r\n", 403),
        ("content-type: application/x-www-form-urlencoded\r\n", 403),
        ("x-wellhead-admin: 1\r\norigin: http://evil.example\r\n", 403),
        ("x-wellhead-admin: 1\r\norigin: http://localhost\r\n", 200),
        ("x-wellhead-admin: 1\r\n", 200),
        ("content-type: application/json\r\n", 200),
    ] {
        let before = admin.acted.load(Ordering::Relaxed);
        assert_eq!(status_of(&mut wire, "POST", "/reload", more).await, expected, "{more}");
        let acted = admin.acted.load(Ordering::Relaxed) - before;
        assert_eq!(acted, usize::from(expected == 200), "{more}");
    }
    // What a browser asks first is not allowed.
    let preflight = "OPTIONS /reload HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n\
                     access-control-request-method: POST\r\ncontent-length: 0\r\n\r\n";
    let reply = wire.ask(preflight).await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (403, None));
    // A reading action needs no such proof.
    assert_eq!(status_of(&mut wire, "GET", "/keys", "").await, 200);
}

#[tokio::test]
async fn bodies_of_actions_are_bounded() {
    let (mut wire, admin, _) = open().await;
    let head = |bytes: usize| {
        format!(
            "POST /keys HTTP/1.1\r\nhost: localhost\r\nx-wellhead-admin: 1\r\ncontent-length: {bytes}\r\n\r\n"
        )
    };
    wire.send([head(64 * 1024).as_bytes(), &vec![b' '; 64 * 1024]].concat()).await;
    assert_eq!(wire.reply().await.status, 201);
    let acted = admin.acted.load(Ordering::Relaxed);
    wire.send(head(64 * 1024 + 1)).await;
    assert_eq!(wire.reply().await.status, 413);
    assert_eq!(admin.acted.load(Ordering::Relaxed), acted);
}

/// Each action that changes something leaves one line, whatever becomes of it.
#[tokio::test]
async fn actions_leave_audit_lines() {
    let lines = Lines::collect();
    let (address, admin, _shutdown) = open_with(guarded(), None);
    let mut wire = Wire::connect(address).await;
    let peer = wire.stream.local_addr().unwrap();
    let key = "/keys/wh_live_ab12cd34_abcdefghijklmnopqrstuvwxyz_123456";
    for (method, target, token, body) in [
        ("POST", "/keys", "keys", "{}"),
        ("POST", "/keys", "keys", ""),
        ("DELETE", "/keys/ab12", "keys", ""),
        ("DELETE", key, "keys", ""),
        ("POST", "/reload", "view", ""),
        ("POST", "/reload", "wrong", ""),
        ("POST", "/panic", "operate", ""),
        ("GET", "/keys", "keys", ""),
        ("GET", "/status", "view", ""),
    ] {
        let ask = format!(
            "{method} {target} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer secret-of-{token}\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        wire.ask(&ask).await;
    }
    // A client that leaves before there is an answer.
    let before = admin.acted.load(Ordering::Relaxed);
    wire.send("POST /wait HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer secret-of-both\r\ncontent-length: 0\r\n\r\n").await;
    while admin.acted.load(Ordering::Relaxed) == before {
        tokio::task::yield_now().await;
    }
    drop(wire);
    let wait = async {
        while lines.with("INFO admin action") < 8 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(GUARD, wait).await.expect("eight lines");
    for (action, subject, actor, role, outcome, status) in [
        ("key.create", "ab12", "token keys", "keys", "done", 201),
        ("key.create", "-", "token keys", "keys", "failed", 400),
        ("key.revoke", "ab12", "token keys", "keys", "done", 200),
        ("key.revoke", "(50 bytes)", "token keys", "keys", "done", 200),
        ("reload", "-", "token view", "operate", "denied", 403),
        ("reload", "-", "nobody", "operate", "denied", 401),
        ("panic", "-", "token operate", "operate", "failed", 500),
        ("wait", "-", "token both", "operate", "abandoned", 499),
    ] {
        let line = format!(
            "action={action:?} subject={subject:?} actor={actor:?} role={role:?} peer={peer} \
             outcome={outcome:?} status={status} left_out=0"
        );
        assert_eq!(lines.with(&line), 1, "{line}: {lines:#?}");
    }
    assert_eq!(lines.with("INFO admin action"), 8, "{lines:#?}");
    for secret in ["secret-of", "SECRET", "abcdefghijklmnopqrstuvwxyz"] {
        assert_eq!(lines.with(secret), 0, "{secret}: {lines:#?}");
    }
}

/// Over TLS a certificate has the roles of its names; a client without a role may still send a token.
#[tokio::test]
async fn certificates_have_roles() {
    let ca = Authority::new("admins");
    let client = ca.issue(7, VALID);
    let files = Files::new(&ca.pem, &[], false);
    let certificate = AdminCertificate {
        name: ClientName::Uri("spiffe://prod.example/indexer".into()),
        roles: [AdminRole::Operate].into_iter().collect(),
    };
    let access = AdminAccess { certificates: vec![certificate], ..guarded() };
    let (address, _, _shutdown) = open_with(access, Some(Tls::load(files.files()).unwrap()));
    for (own, more, expected) in [
        (None, "", [401, 401, 401, 401]),
        (Some(&client), "", [200, 403, 403, 200]),
        (None, "authorization: Bearer secret-of-keys\r\n", [403, 200, 403, 403]),
        (Some(&client), "authorization: Bearer secret-of-keys\r\n", [403, 200, 403, 403]),
    ] {
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = files.own.client(&["http/1.1"], own).connect_over(stream).await.unwrap();
        let mut wire = Wire::over(stream);
        let mut statuses = Vec::new();
        // A browser proves the certificate by itself, so an action needs more.
        for (method, target, header) in [
            ("GET", "/status", ""),
            ("GET", "/keys", ""),
            ("POST", "/reload", ""),
            ("POST", "/reload", "x-wellhead-admin: 1\r\n"),
        ] {
            let ask = format!(
                "{method} {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n{more}{header}\r\n"
            );
            statuses.push(wire.ask(&ask).await.status);
        }
        assert_eq!(statuses, expected, "{} {more}", own.is_some());
    }
}

#[tokio::test]
async fn a_socket_file_lets_in_by_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let listener = LocalListener::bind(&path, 0o660).unwrap();
    let server = Server::new(Settings::admin());
    let admin = Arc::new(Well { access: Arc::new(guarded()), ..Well::default() });
    let shutdown = Shutdown::new();
    let serving = tokio::spawn({
        let (admin, shutdown) = (Arc::clone(&admin), shutdown.clone());
        async move { server.serve_admin_locally(listener, admin, &shutdown).await }
    });
    let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    let mut wire = Wire::over(stream);
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    for target in ["/status", "/metrics", "/keys"] {
        assert_eq!(wire.ask(&get(target)).await.status, 200, "{target}");
    }
    // A browser does not reach it, but something that speaks for one might.
    let post = |more: &str| {
        format!("POST /reload HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n{more}\r\n")
    };
    assert_eq!(wire.ask(&post("")).await.status, 403);
    let reply = wire.ask(&post("x-wellhead-admin: 1\r\n")).await;
    let said = String::from_utf8(reply.body).unwrap();
    assert!(said.contains("user "), "{said}");
    shutdown.begin();
    tokio::time::timeout(GUARD, serving).await.unwrap().unwrap().unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn nothing_can_be_written() {
    let (mut wire, _, _) = open().await;
    let reply =
        wire.ask("POST /status HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")));
    let reply = wire.ask("DELETE /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(reply.status, 404);
}

#[tokio::test]
async fn only_names_of_this_machine_are_answered() {
    let (mut wire, _, _) = open().await;
    for (host, status) in
        [("localhost:4546", 200), ("127.0.0.1", 200), ("[::1]:1", 200), ("evil.example", 403)]
    {
        let get = format!("GET /status HTTP/1.1\r\nhost: {host}\r\n\r\n");
        let reply = wire.ask(&get).await;
        assert_eq!(reply.status, status, "{host}");
        if status == 403 {
            let why = reply.json()["error"].as_str().unwrap().to_owned();
            assert!(why.contains("`admin_hosts`"), "{why}");
        }
    }
}

#[tokio::test]
async fn a_page_of_another_origin_may_not_post() {
    let (mut wire, _, _) = open().await;
    for (origin, status) in
        [("http://localhost", 405), ("http://localhost:3000", 403), ("null", 403)]
    {
        let post = format!(
            "POST /status HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\ncontent-length: 0\r\n\r\n"
        );
        assert_eq!(wire.ask(&post).await.status, status, "{origin}");
    }
}

#[tokio::test]
async fn exemplars_are_for_scrapers_that_name_their_format() {
    let (mut wire, _, _) = open().await;
    for (accept, expected) in [
        // As Prometheus asks.
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3", true),
        ("text/plain, Application/OpenMetrics-Text", true),
        ("application/openmetrics-text;q=0, */*", false),
        ("application/openmetrics-text2", false),
        ("text/plain;version=0.0.4", false),
        ("*/*", false),
    ] {
        let get = format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\n\r\n");
        let text = String::from_utf8(wire.ask(&get).await.body).unwrap();
        assert_eq!(text.contains("trace_id"), expected, "{accept}");
    }
    let text = String::from_utf8(get(&mut wire, "/metrics").await.body).unwrap();
    assert!(!text.contains("trace_id"));
}

#[tokio::test]
async fn metrics_are_compressed_when_asked() {
    let (mut wire, _, _) = open().await;
    let get = "GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept-encoding: gzip\r\n\r\n";
    let reply = wire.ask(get).await;
    assert_eq!(reply.header("content-encoding"), Some("gzip"));
    assert!(reply.body.len() < 1000);
}

/// The page promises to work without a network and without inline code.
#[tokio::test]
async fn the_page_asks_only_its_own_listener() {
    let (mut wire, _, _) = open().await;
    for target in ["/", "/page.css", "/page.js"] {
        let text = String::from_utf8(get(&mut wire, target).await.body).unwrap();
        for word in ["http:", "https:", "//cdn", "@import", "innerHTML", " style=", "onclick="] {
            assert!(!text.contains(word), "{target} has {word}");
        }
    }
}

#[tokio::test]
async fn it_drains_too() {
    let (mut wire, _, shutdown) = open().await;
    assert_eq!(get(&mut wire, "/livez").await.status, 200);
    shutdown.begin();
    wire.is_closed().await;
}
