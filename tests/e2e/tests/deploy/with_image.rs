//! The image, as `scripts/image` builds it: what is in it, and how it runs under runc.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use wellhead_e2e::{Anvil, Process, Rpc, free_port, tool, until};

use super::{output, said};

const BOUND: Duration = Duration::from_secs(30);
/// What the documentation promises.
const BINARY_BYTES_MAX: u64 = 20_000_000;
const USER: &str = "65532";

/// The image that `scripts/image` built, unpacked for runc.
struct Bundle {
    folder: TempDir,
    config: Value,
}

impl Bundle {
    fn unpack() -> Self {
        let image = std::env::var("WELLHEAD_IMAGE")
            .expect("WELLHEAD_IMAGE names the folder that `scripts/image FOLDER` wrote");
        let folder = tempfile::tempdir().unwrap();
        let mut unpack = Command::new(tool("umoci"));
        unpack.args(["unpack", "--image", &format!("{image}:wellhead")]);
        output(unpack.arg(folder.path().join("bundle")));
        let text = fs::read(folder.path().join("bundle/config.json")).unwrap();
        Self { folder, config: serde_json::from_slice(&text).unwrap() }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("bundle/rootfs")
    }

    /// As the chart's pod runs it: no capability, nothing to write to but the state. In the
    /// network of the test, which calls it.
    fn as_in_a_pod(&mut self, config: &str, arguments: &[&str]) {
        let etc = self.folder.path().join("etc");
        fs::create_dir(&etc).unwrap();
        fs::write(etc.join("wellhead.yaml"), config).unwrap();
        // runc makes no mount point in a root that is read-only.
        fs::create_dir_all(self.root().join("etc/wellhead")).unwrap();
        let process = &mut self.config["process"];
        process["terminal"] = json!(false);
        process["capabilities"] = json!({});
        process["noNewPrivileges"] = json!(true);
        process["args"].as_array_mut().unwrap().extend(arguments.iter().map(|it| json!(it)));
        self.config["root"]["readonly"] = json!(true);
        let spaces = self.config["linux"]["namespaces"].as_array_mut().unwrap();
        spaces.retain(|space| space["type"] != "network");
        let mounts = self.config["mounts"].as_array_mut().unwrap();
        mounts.retain(|mount| mount["type"] != "cgroup" && mount["type"] != "sysfs");
        mounts.push(json!({
            "destination": "/etc/wellhead", "type": "bind", "source": etc, "options": ["bind", "ro"]
        }));
        let owner = [format!("uid={USER}"), format!("gid={USER}"), "mode=0700".to_owned()];
        mounts.push(json!({
            "destination": "/var/lib/wellhead", "type": "tmpfs", "source": "tmpfs", "options": owner
        }));
        let file = self.folder.path().join("bundle/config.json");
        fs::write(file, serde_json::to_vec(&self.config).unwrap()).unwrap();
    }

    fn runc(&self) -> Command {
        let mut runc = Command::new(tool("runc"));
        runc.arg("--root").arg(self.folder.path().join("state"));
        runc
    }

    /// The name of the container: those of one machine share a tree of cgroups.
    fn name(&self) -> String {
        format!("wellhead-{}", std::process::id())
    }

    fn run(&self) -> Process {
        let bundle = self.folder.path().join("bundle");
        let (runc, name) = (self.runc(), self.name());
        let words = std::iter::once(runc.get_program()).chain(runc.get_args());
        let mut command: Vec<String> =
            words.map(|word| word.to_str().unwrap().to_owned()).collect();
        command.extend(["run", "--bundle", bundle.to_str().unwrap(), &name].map(str::to_owned));
        Process::start(&command, self.folder.path().join("log"))
    }

    /// The process in the container, by its id outside.
    fn pid(&self) -> u64 {
        let state = output(self.runc().args(["state", &self.name()]));
        serde_json::from_str::<Value>(&state).unwrap()["pid"].as_u64().unwrap()
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        // The kernel ends what is in it; a container that is gone already is no matter.
        let _gone = said(self.runc().args(["delete", "--force", &self.name()]));
    }
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path(), into),
            false => into.push(entry.path()),
        }
    }
}

/// One static binary, of the size that is promised, started as another user than root.
#[test]
fn image_is_one_static_binary() {
    let bundle = Bundle::unpack();
    let mut found = Vec::new();
    files(&bundle.root(), &mut found);
    let binary = bundle.root().join("wellhead");
    assert_eq!(found, std::slice::from_ref(&binary));
    let bytes = fs::metadata(&binary).unwrap().len();
    assert!(bytes < BINARY_BYTES_MAX, "{bytes} bytes");
    // No dynamic loader is named in it.
    let (_, headers) = said(Command::new("readelf").args(["-l", "-W"]).arg(&binary));
    assert!(headers.contains("LOAD") && !headers.contains("INTERP"), "{headers}");
    let process = &bundle.config["process"];
    assert_eq!(process["user"], json!({ "uid": 65532, "gid": 65532 }));
    assert_eq!(process["args"], json!(["/wellhead", "serve"]));
}

mod with_anvil {
    use super::*;

    /// It serves, knows when it is ready, keeps its state, and ends in order.
    #[tokio::test]
    async fn image_serves_under_a_restricted_profile() {
        let (port, admin_port) = (free_port(), free_port());
        let node = Anvil::start(31337).await;
        // As the chart writes it, but for the place of its own of each run.
        let config = format!(
            "listen: 127.0.0.1:{port}\nadmin: 0.0.0.0:{admin_port}\nworkers: 1\n\
             admin_access: {{ metrics_open: true, tokens: [{{ name: closed, roles: [view], hash: \"{}\" }}] }}\n\
             timeouts: {{ shutdown_delay: 0s, drain: 5s }}\n\
             chains: {{ main: {{ id: 31337, upstreams: [{{ url: \"{}\", budget: {{ credits_per_day: 1M }} }}] }} }}\n",
            "0".repeat(64),
            node.url(),
        );
        let mut bundle = Bundle::unpack();
        bundle.as_in_a_pod(&config, &["-c", "/etc/wellhead/wellhead.yaml"]);
        let mut container = bundle.run();
        let (rpc, admin) = (Rpc::new(port, "/"), Rpc::new(admin_port, "/"));
        for page in ["/livez", "/readyz"] {
            let well = || async { admin.get(page).await.ok().filter(|reply| reply.status == 200) };
            assert!(until(BOUND, well).await.is_some(), "{page}:\n{}", container.log());
        }
        assert_eq!(rpc.result("eth_chainId", json!([])).await.unwrap(), "0x7a69");
        // Without a token there are probes and metrics.
        for (page, status) in [("/metrics", 200), ("/status", 401)] {
            assert_eq!(admin.get(page).await.unwrap().status, status, "{page}");
        }
        let process = PathBuf::from(format!("/proc/{}", bundle.pid()));
        let status = fs::read_to_string(process.join("status")).unwrap();
        for line in
            ["Uid:\t65532\t65532\t65532\t65532", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"]
        {
            assert!(status.contains(line), "no `{line}` in\n{status}");
        }
        let mounts = fs::read_to_string(process.join("mountinfo")).unwrap();
        let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).unwrap();
        assert!(root.split(' ').nth(5).unwrap().split(',').any(|option| option == "ro"), "{root}");
        let state = process.join("root/var/lib/wellhead/wellhead.state");
        let written = || async { state.exists().then_some(()) };
        assert!(until(BOUND, written).await.is_some(), "{}", container.log());
        output(bundle.runc().args(["kill", &bundle.name(), "TERM"]));
        assert_eq!(container.exit_code(BOUND).await, Some(0), "{}", container.log());
        assert!(container.printed().contains("stopped"), "{}", container.log());
    }
}
