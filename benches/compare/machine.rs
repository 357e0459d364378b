//! Where results are kept, and the machine they are from. For every bench here.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

const RUNS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/runs");

/// Writes a record under benches/runs with the moment in it, and says where.
pub(crate) fn keep(name: &str, mut record: Value) -> Result<String, String> {
    let now = said_by("date", &["-u", "+%Y-%m-%dT%H%M%SZ"]);
    record["when"] = json!(now);
    let path = Path::new(RUNS).join(format!("{now}-{name}.json"));
    let text = format!("{record:#}\n");
    std::fs::create_dir_all(RUNS)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(format!("benches/runs/{now}-{name}.json"))
}

/// What a reader needs to judge the numbers, and nothing that names the machine.
pub(crate) fn machine() -> Value {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("", |(_, model)| model);
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = meminfo.split_whitespace().nth(1).unwrap_or_default();
    json!({
        "cpu": model,
        // All of them: this process itself is kept to one.
        "cores": cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
        "memory_kib": memory,
        "system": said_by("uname", &["-sm"]),
        "nginx": said_by("nginx", &["-v"]),
        "haproxy": said_by("haproxy", &["-v"]),
        "k6": said_by("k6", &["version"]),
        "rustc": said_by("rustc", &["--version"]),
        "commit": said_by("git", &["describe", "--always", "--dirty"]),
    })
}

/// The first line that a program prints, on either stream.
fn said_by(program: &str, arguments: &[&str]) -> String {
    let Ok(output) = Command::new(program).args(arguments).output() else { return String::new() };
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned()
}
