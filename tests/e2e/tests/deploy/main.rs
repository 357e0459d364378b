//! What `deploy/` ships: the Helm chart for each set of values of its `ci/`, the kustomize base, the image under runc
//! as the chart's pod runs it, and the systemd unit. And the commands of docs/operation.md that install them.
//!
//! No cluster takes part: the schemas of the API and the real binary judge what is rendered.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it does not expect")]

use std::path::{Path, PathBuf};
use std::process::Command;

use wellhead_e2e::binary;

mod page;
mod with_helm;
mod with_image;
mod with_systemd;

/// `deploy/NAME` of the checkout.
fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

/// Exit code, and all that was printed.
fn said(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// What a command that must succeed wrote to its standard output.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}\n{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// `wellhead check` of a config, with a value for each variable that the configs of `deploy/` name.
fn check(config: &Path) -> (Option<i32>, String) {
    let variables = ["WELLHEAD_WORKERS=2", "WELLHEAD_REDIS_URL=redis://127.0.0.1:6379/0"];
    let keys = ["ETH_KEY=key", "BASE_KEY=key", "NOTE=a: b"];
    let variables = variables.iter().chain(&keys).filter_map(|pair| pair.split_once('='));
    said(Command::new(binary()).arg("check").arg("-c").arg(config).envs(variables))
}

/// Every file of the checkout that docs/operation.md names is there.
#[test]
fn the_documentation_names_files_that_exist() {
    let page = std::fs::read_to_string(deploy("../docs/operation.md")).unwrap();
    let words = page.split(|c: char| c.is_whitespace() || "`()[]".contains(c));
    let is_ours = |word: &&str| word.starts_with("deploy/") || word.starts_with("scripts/");
    let named: Vec<&str> = words.filter(is_ours).collect();
    assert!(named.len() > 5, "{named:?}");
    for name in named {
        assert!(deploy("..").join(name).exists(), "{name}");
    }
}
