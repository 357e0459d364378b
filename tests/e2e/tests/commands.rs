//! The commands that people type first: the demo, `serve` with URLs, `check`, `explain`.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it does not expect")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use wellhead_e2e::{Process, Rpc, Signal, binary, free_port, until};

const BOUND: Duration = Duration::from_secs(30);

fn start(arguments: &[&str], folder: &Path) -> Process {
    let mut command = vec![binary().display().to_string()];
    command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    Process::start(&command, folder.join("log"))
}

/// The demo serves a chain whose head moves, says how to try it, and ends when told.
#[tokio::test]
async fn demo_serves_its_chain() {
    let folder = tempfile::tempdir().unwrap();
    let (port, admin_port) = (free_port(), free_port());
    let (listen, admin) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{admin_port}"));
    let mut demo =
        start(&["demo", "--plain", "--listen", &listen, "--admin", &admin], folder.path());
    let rpc = Rpc::new(port, "/");
    let head = || async {
        let head = rpc.result("eth_blockNumber", json!([])).await.ok()?;
        head.as_str().map(str::to_owned)
    };
    let first = until(BOUND, head).await;
    assert!(first.is_some(), "{}", demo.log());
    let moved = until(BOUND, || async { head().await.filter(|now| Some(now) != first.as_ref()) });
    assert!(moved.await.is_some(), "the head stays at {first:?}:\n{}", demo.log());
    let block = rpc.result("eth_getBlockByNumber", json!(["latest", true])).await.unwrap();
    assert!(block["hash"].is_string(), "{block}");
    let curls = demo.log().lines().filter(|line| line.contains("curl")).count();
    assert!(curls >= 3, "three curl lines to try:\n{}", demo.log());
    let (told, said) = explain(&admin, &["eth_getBalance", r#"["0xab","latest"]"#]);
    assert_eq!(told, Some(0), "{said}");
    for part in ["block     latest -> ", "a tag: the agreed block", "  1  ", "  fit"] {
        assert!(said.contains(part), "no `{part}` in:\n{said}");
    }
    let (told, said) = explain(&admin, &["eth_getBalance", "[nonsense"]);
    assert!(told == Some(1) && said.contains("`params` is not JSON"), "{said}");
    demo.signal(Signal::Term);
    assert_eq!(demo.exit_code(BOUND).await, Some(0), "{}", demo.log());
    let (told, words) = explain(&admin, &["eth_chainId"]);
    assert!(told == Some(2) && words.contains("no wellhead answers at"), "{words}");
}

fn explain(admin: &str, arguments: &[&str]) -> (Option<i32>, String) {
    said(Command::new(binary()).args(["explain", "--admin", admin]).args(arguments))
}

fn said(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

fn check(config: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wellhead.yaml");
    std::fs::write(&file, config).unwrap();
    said(Command::new(binary()).arg("check").arg("-c").arg(&file).env("KEY", "s3cret"))
}

#[test]
fn check_accepts_a_config_and_hides_its_secrets() {
    let (code, said) = check(
        "chains:\n  main:\n    id: 1\n    upstreams:\n      - { id: a, url: \"https://example.org/v2/${KEY}\" }\n",
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
}

/// All problems in one run, each with its line.
#[test]
fn check_names_every_problem() {
    let (code, said) =
        check("lisen: 127.0.0.1:1\nchains:\n  main:\n    id: minus one\n    upstreams: []\n");
    assert_eq!(code, Some(1), "{said}");
    for part in ["lisen", ":1:", "minus one", ":4:"] {
        assert!(said.contains(part), "no `{part}` in:\n{said}");
    }
}

/// Each command has a manual page, and groff, where it is installed, finds no fault in any.
#[test]
fn manual_pages_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let (code, words) = said(Command::new(binary()).arg("man").arg(folder.path().join("man1")));
    assert_eq!(code, Some(0), "{words}");
    let pages = std::fs::read_dir(folder.path().join("man1")).unwrap();
    let pages: Vec<_> = pages.map(|page| page.unwrap().path()).collect();
    assert!(pages.len() > 20, "{pages:?}");
    for page in pages {
        let mut groff = Command::new("groff");
        match groff.args(["-man", "-ww", "-Tutf8", "-z"]).arg(&page).output() {
            Ok(output) => {
                let faults = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success() && faults.is_empty(), "{page:?}: {faults}");
            }
            Err(_) => return,
        }
    }
}

mod with_anvil {
    use wellhead_e2e::Anvil;

    use super::*;

    /// No file, no chain id: the upstreams are asked which chain they serve.
    #[tokio::test]
    async fn serve_with_urls_only() {
        let (one, two) = (Anvil::start(31337).await, Anvil::start(31337).await);
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let listen = format!("127.0.0.1:{port}");
        let serving = start(
            &["serve", &one.url(), &two.url(), "--listen", &listen, "--admin", "off"],
            folder.path(),
        );
        let rpc = Rpc::new(port, "/");
        let answer = until(BOUND, || async {
            rpc.result("eth_getBalance", json!([Anvil::RICH_ADDRESS, "latest"])).await.ok()
        });
        assert!(answer.await.is_some(), "{}", serving.log());
        assert_eq!(rpc.result("eth_chainId", json!([])).await.unwrap(), "0x7a69");
    }
}
