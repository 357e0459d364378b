//! The Helm chart and the kustomize base, rendered and judged by the tools of Kubernetes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use wellhead_e2e::{Certificate, cache, tool};

use super::{check, deploy, output, said};

/// The newest versions of Kubernetes, whose schemas `scripts/setup` fetches.
const KUBERNETES: [&str; 5] = ["1.33.0", "1.34.0", "1.35.0", "1.36.0", "1.37.0"];
/// What the README of the chart promises.
const SETS_MIN: usize = 12;

fn chart() -> PathBuf {
    deploy("helm/wellhead")
}

/// The sets of values of `ci/`.
fn sets() -> Vec<PathBuf> {
    let entries = fs::read_dir(chart().join("ci")).unwrap().map(|entry| entry.unwrap().path());
    let mut sets: Vec<PathBuf> = entries.collect();
    sets.sort();
    assert!(sets.len() >= SETS_MIN, "{sets:?}");
    sets
}

fn helm(kubernetes: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(tool("helm"));
    command.args(["template", "rpc"]).arg(chart()).args(["--kube-version", kubernetes]);
    command.args(["--namespace", "chain"]).args(arguments);
    command
}

fn rendered(kubernetes: &str, values: &Path) -> String {
    output(&mut helm(kubernetes, &["-f", values.to_str().unwrap()]))
}

/// Validates objects against the schemas of a version. Those of other groups have theirs in `data/`.
fn validate(kubernetes: &str, objects: &Path) {
    let schemas = cache().join("kubernetes-schemas");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let name = "{{.ResourceKind}}{{.KindSuffix}}.json";
    let version = "{{.NormalizedKubernetesVersion}}";
    let (code, printed) = said(
        Command::new(tool("kubeconform"))
            .args(["-strict", "-summary", "-kubernetes-version", kubernetes])
            .args(["-schema-location", &format!("{}/{version}/{name}", schemas.display())])
            .args(["-schema-location", &format!("{}/{name}", own.display())])
            .arg(objects),
    );
    assert_eq!(code, Some(0), "Kubernetes {kubernetes}\n{printed}");
    // Nothing was passed over.
    assert!(printed.contains("Errors: 0, Skipped: 0"), "{printed}");
    assert!(!printed.contains(" 0 resources found"), "{printed}");
}

/// The text of `wellhead.yaml` in a rendered Secret: a block of lines with four spaces before each.
fn config_of(objects: &str) -> Option<String> {
    let (_, after) = objects.split_once("\n  wellhead.yaml: |\n")?;
    let lines = after.lines().map_while(|line| line.strip_prefix("    "));
    Some(lines.map(|line| format!("{line}\n")).collect())
}

#[test]
fn every_set_of_values_is_valid_for_every_version() {
    let folder = tempfile::tempdir().unwrap();
    for values in sets() {
        for kubernetes in KUBERNETES {
            let name = values.file_stem().unwrap().to_str().unwrap();
            let file = folder.path().join(format!("{kubernetes}-{name}.yaml"));
            fs::write(file, rendered(kubernetes, &values)).unwrap();
        }
    }
    // One folder for each version, since kubeconform reads the schemas anew each time.
    for kubernetes in KUBERNETES {
        let of_version = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with(kubernetes) {
                fs::rename(entry.path(), of_version.path().join(name)).unwrap();
            }
        }
        validate(kubernetes, of_version.path());
    }
}

#[test]
fn lint_finds_nothing() {
    for values in sets() {
        let (code, printed) = said(
            Command::new(tool("helm"))
                .args(["lint", "--strict", "--kube-version", KUBERNETES[0], "-f"])
                .args([&values, &chart()]),
        );
        assert_eq!(code, Some(0), "{}\n{printed}", values.display());
    }
}

/// The suites of `tests/`, and those of `tests/always/` for each set of values.
#[test]
fn objects_say_what_they_should() {
    let unittest = |arguments: &[&str]| {
        let (code, printed) =
            said(Command::new(tool("helm-unittest")).args(arguments).arg(chart()));
        assert!(code == Some(0) && !printed.contains("Tests:       0"), "{printed}");
    };
    unittest(&["-f", "tests/*_test.yaml"]);
    for values in sets() {
        unittest(&["-f", "tests/always/*_test.yaml", "-v", values.to_str().unwrap()]);
    }
}

/// A config may name files that are mounted; here they are in a folder of the test.
fn with_files(config: &str, folder: &TempDir, certificate: &Certificate) -> PathBuf {
    let [certificate, key, _] = certificate.files();
    let config = config
        .replace("/etc/wellhead-tls/tls.crt", certificate.to_str().unwrap())
        .replace("/etc/wellhead-tls/tls.key", key.to_str().unwrap());
    let file = folder.path().join("wellhead.yaml");
    fs::write(&file, config).unwrap();
    file
}

#[test]
fn wellhead_accepts_every_config() {
    let (folder, certificate) = (tempfile::tempdir().unwrap(), Certificate::new());
    let mut checked = 0;
    for values in sets() {
        let Some(config) = config_of(&rendered(KUBERNETES[0], &values)) else { continue };
        let (code, printed) = check(&with_files(&config, &folder, &certificate));
        assert_eq!(code, Some(0), "{}\n{config}\n{printed}", values.display());
        checked += 1;
    }
    // One set has its config elsewhere.
    assert_eq!(checked, sets().len() - 1);
}

/// Values that are refused, and a part of the words with which they are.
#[test]
fn bad_values_are_refused() {
    let base = r#"config={"chains":{"a":{"upstreams":[{"url":"http://a"}]}}}"#;
    let cases = [
        ("replicas=2", "additional properties 'replicas' not allowed"),
        ("image.tagg=1", "additional properties 'tagg' not allowed"),
        ("image.digest=\"md5:0\"", "/image/digest"),
        ("image.pullPolicy=\"Sometimes\"", "/image/pullPolicy"),
        ("replicaCount=-1", "/replicaCount"),
        ("replicaCount=\"two\"", "/replicaCount"),
        ("workers=0", "/workers"),
        ("listenAddress=\"localhost\"", "/listenAddress"),
        ("service.type=\"ExternalName\"", "/service/type"),
        ("service.port=70000", "/service/port"),
        ("admin.port=4545", "/admin/port"),
        (
            "admin.tokens=[{\"name\":\"a\",\"roles\":[\"view\"],\"hash\":\"wh_admin_0\"}]",
            "/admin/tokens/0/hash",
        ),
        ("admin.tokens=[{\"name\":\"a\",\"roles\":[\"root\"]}]", "/admin/tokens/0"),
        ("podDisruptionBudget.maxUnavailable=\"200%\"", "/podDisruptionBudget/maxUnavailable"),
        ("shared={\"enabled\":true,\"url\":\"http://valkey\"}", "/shared/url"),
        ("secretEnv={\"ETH-KEY\":\"a\"}", "invalid propertyName 'ETH-KEY'"),
        ("configFiles={\"../a\":\"b\"}", "invalid propertyName '../a'"),
        ("extraArgs=\"--workers\"", "/extraArgs"),
        ("ingress={\"enabled\":true,\"hosts\":[\"rpc.example\"]}", "/ingress/hosts/0"),
        ("metrics.serviceMonitor.interval=\"30\"", "/metrics/serviceMonitor/interval"),
        ("metrics.rules.enabledd=true", "additional properties 'enabledd' not allowed"),
        ("metrics.rules.additional=[{\"alert\":\"A\"}]", "/metrics/rules/additional/0"),
        ("dashboards.labels={\"a\":1}", "/dashboards/labels/a"),
        ("topologySpreadConstraints=[{\"maxSkew\":1}]", "/topologySpreadConstraints/0"),
        // What no schema can say is refused by the templates.
        ("config.chains={}", "config.chains is empty"),
        ("config.listen=\"0.0.0.0:1\"", "use the value `listenAddress`"),
        ("config.admin=\"off\"", "use the value `admin.port`"),
        ("config.workers=3", "use the value `workers`"),
        ("config.timeouts={\"drain\":\"1m\"}", "use the value `shutdown.drainSeconds`"),
        ("shared={\"enabled\":true}", "needs shared.url or shared.existingSecret"),
        ("terminationGracePeriodSeconds=20", "requests would be cut off"),
        ("ingress={\"enabled\":true}", "needs ingress.hosts"),
        (
            "autoscaling={\"enabled\":true,\"minReplicas\":3,\"maxReplicas\":2}",
            "less than autoscaling.minReplicas",
        ),
        (
            "autoscaling={\"enabled\":true,\"targetCPUUtilizationPercentage\":null}",
            "needs a metric",
        ),
        (
            "metrics.rules={\"enabled\":true,\"disabled\":[\"WellheadNone\"]}",
            "WellheadNone, which is no alert",
        ),
        (
            "metrics.serviceMonitor.enabled=true,admin.metricsOpen=false",
            "metrics.serviceMonitor.authorization",
        ),
    ];
    let mut failures = BTreeMap::new();
    for (value, words) in cases {
        let arguments: Vec<&str> = match value.split_once(",admin.") {
            Some((one, _)) => {
                vec!["--set-json", base, "--set-json", one, "--set-json", "admin.metricsOpen=false"]
            }
            None => vec!["--set-json", base, "--set-json", value],
        };
        let (code, printed) = said(&mut helm(KUBERNETES[4], &arguments));
        if code == Some(0) || !printed.contains(words) {
            failures.insert(value, printed);
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn old_kubernetes_is_refused() {
    let values = chart().join("ci/minimal.yaml");
    let (code, printed) = said(&mut helm("1.29.0", &["-f", values.to_str().unwrap()]));
    assert!(code != Some(0) && printed.contains("requires kubeVersion"), "{printed}");
}

/// The README of the chart and the kustomize base are what `scripts/deploy-files` writes now.
#[test]
fn generated_files_are_current() {
    let folder = tempfile::tempdir().unwrap();
    let script = deploy("../scripts/deploy-files");
    output(Command::new(script).arg(folder.path()));
    for name in ["helm/wellhead/README.md", "kustomize/base/objects.yaml"] {
        let new = fs::read_to_string(folder.path().join("deploy").join(name)).unwrap();
        let old = fs::read_to_string(deploy(name)).unwrap();
        assert!(new == old, "deploy/{name} is not current: run scripts/deploy-files");
    }
}

/// The base as it is, and the example on top of it.
#[test]
fn kustomize_builds_valid_objects() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["base", "example"] {
        let source = deploy("kustomize").join(name);
        let built = output(Command::new(tool("kustomize")).arg("build").arg(&source));
        let file = folder.path().join(format!("{name}.yaml"));
        fs::write(&file, &built).unwrap();
        for kubernetes in KUBERNETES {
            validate(kubernetes, &file);
        }
        assert!(!built.contains("secretName: wellhead-config\n"), "the generated name is not used");
        let (code, printed) = check(&source.join("wellhead.yaml"));
        assert_eq!(code, Some(0), "{name}\n{printed}");
    }
}

/// What the objects rely on is in the configs of kustomize as in that of the chart.
#[test]
fn kustomize_configs_fit_the_objects() {
    let set = r#"config={"chains":{"a":{"upstreams":[{"url":"http://a"}]}}}"#;
    let of_chart = config_of(&output(&mut helm(KUBERNETES[4], &["--set-json", set]))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wellhead.yaml");
    fs::write(&file, of_chart).unwrap();
    let settings = |file: &Path| -> Vec<String> {
        let (_, printed) = check(file);
        let wanted =
            ["listen:", "admin:", "workers:", "shutdown_delay:", "drain:", "metrics_open:"];
        let lines = printed.lines().map(str::trim);
        lines
            .filter(|line| wanted.iter().any(|key| line.starts_with(key)))
            .map(str::to_owned)
            .collect()
    };
    let expected = settings(&file);
    assert_eq!(expected.len(), 6, "{expected:?}");
    for name in ["base", "example"] {
        let config = deploy("kustomize").join(name).join("wellhead.yaml");
        assert_eq!(settings(&config), expected, "{name}");
    }
}
