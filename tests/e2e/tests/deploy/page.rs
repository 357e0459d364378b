//! The commands of docs/operation.md: each one names programs, options, units and objects that are there. Those that
//! need neither a daemon nor a cluster are run as they are written.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use wellhead_e2e::{binary, tool};

use super::{deploy, output, said};

/// What the page may do to a unit, and what it may ask of the admin listener.
const UNIT_VERBS: [&str; 6] = ["daemon-reload", "edit", "enable", "restart", "start", "stop"];
const ADMIN_PAGES: [&str; 1] = ["/readyz"];

fn page() -> String {
    fs::read_to_string(deploy("../docs/operation.md")).unwrap()
}

/// The blocks of a language, without their fences.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let blocks = page.split(&fence).skip(1).filter_map(|rest| rest.split_once("\n```"));
    let blocks: Vec<String> = blocks.map(|(block, _)| format!("{block}\n")).collect();
    assert!(!blocks.is_empty(), "no block of {language}");
    blocks
}

/// The words of each command: of pipes and sub-shells each part by itself, without comments, variables and what is
/// between quotes.
fn commands(block: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let text = block.replace("\\\n", " ");
    for line in text.lines() {
        let line = line.split(" #").next().unwrap_or(line);
        // The text of a program for sed.
        let line: String = line.split('\'').step_by(2).collect::<Vec<_>>().join("TEXT");
        for command in line.split([';', '|', '(', ')']) {
            let words = command.split_whitespace().map(str::to_owned);
            let words: Vec<String> = words.skip_while(|word| is_variable(word)).collect();
            if !words.is_empty() {
                commands.push(words);
            }
        }
    }
    commands
}

fn is_variable(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|it| it.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

/// The options of a command that its help does not name.
fn unknown_options(help: &str, words: &[String]) -> Vec<String> {
    let known: BTreeSet<&str> =
        help.split(|c: char| c.is_whitespace() || ",=".contains(c)).collect();
    let options = words.iter().filter(|word| word.starts_with('-'));
    let options = options.map(|option| option.split('=').next().unwrap_or(option).to_owned());
    options.filter(|option| !known.contains(option.as_str())).collect()
}

/// What is wrong with a command of the page; `None` for a program that another test judges.
fn problem(words: &[String]) -> Option<String> {
    let program = words[0].rsplit('/').next().unwrap_or(&words[0]);
    let rest: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let problem = match program {
        "wellhead" | "wellhead.old" => {
            let (code, help) = said(Command::new(binary()).args([rest[0], "--help"]));
            let unknown = unknown_options(&help, &words[2..]);
            (code != Some(0) || !unknown.is_empty()).then(|| format!("no option {unknown:?}"))
        }
        "make" => {
            let makefile = fs::read_to_string(deploy("../Makefile")).unwrap();
            let is_target = makefile.contains(&format!("\n{}: ##", rest[0]));
            (!is_target).then(|| "no such target".to_owned())
        }
        "systemctl" => {
            let units = rest[1..].iter().filter(|word| !word.starts_with('-'));
            let mut units = units.map(|unit| unit.strip_suffix(".socket").unwrap_or(unit));
            let is_good = UNIT_VERBS.contains(&rest[0]) && units.all(|unit| unit == "wellhead");
            (!is_good).then(|| "an unknown verb or unit".to_owned())
        }
        "curl" => {
            let path = rest[0].splitn(4, '/').nth(3).map(|path| format!("/{path}"));
            let is_known = path.is_some_and(|path| ADMIN_PAGES.contains(&path.as_str()));
            (!is_known).then(|| "an unknown address".to_owned())
        }
        // `with_helm` judges the first two; the others belong to the system.
        "helm" | "kubectl" | "docker" | "skopeo" | "cp" | "mv" | "install" | "chown" | "sed"
        | "set" | "." => None,
        _ if words[0].starts_with("scripts/") => {
            let is_there = deploy("..").join(&words[0]).exists();
            (!is_there).then(|| "no such script".to_owned())
        }
        _ => Some("a program that no test knows".to_owned()),
    };
    problem.map(|problem| format!("{words:?}: {problem}"))
}

#[test]
fn commands_name_what_is_there() {
    let blocks = blocks(&page(), "sh");
    let commands: Vec<_> = blocks.iter().flat_map(|block| commands(block)).collect();
    assert!(commands.len() > 40, "{commands:?}");
    let problems: Vec<String> = commands.iter().filter_map(|words| problem(words)).collect();
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn wrong_commands_are_found() {
    for line in [
        "wellhead serve --no-such-option",
        "FOO=1 wellhead chek -c a",
        "make nothing",
        "(cd a; systemctl restart nginx)",
        "curl http://127.0.0.1:4546/ready",
        "scripts/nothing",
        "podman run wellhead",
    ] {
        let problems = commands(line).iter().filter_map(|words| problem(words)).count();
        assert!(problems > 0, "{line}");
    }
}

mod with_helm {
    use super::*;

    fn commands_of(program: &str) -> Vec<Vec<String>> {
        let commands = blocks(&page(), "sh").into_iter().flat_map(|block| commands(&block));
        let commands: Vec<_> = commands.filter(|words| words[0] == program).collect();
        assert!(commands.len() >= 4, "{commands:?}");
        commands
    }

    #[test]
    fn helm_knows_each_option() {
        for words in commands_of("helm") {
            let (code, help) = said(Command::new(tool("helm")).args([&words[1], "--help"]));
            assert_eq!((code, unknown_options(&help, &words[2..])), (Some(0), vec![]), "{words:?}");
        }
    }

    /// The Deployments that kubectl is told to wait for are those that the chart and the base have.
    #[test]
    fn kubectl_names_deployments_that_are_there() {
        let values = deploy("helm/wellhead/ci/minimal.yaml");
        let mut helm = Command::new(tool("helm"));
        helm.args(["template", "rpc", "--kube-version", "1.37", "-f"]).arg(values);
        let chart = output(helm.arg(deploy("helm/wellhead")));
        let base = fs::read_to_string(deploy("kustomize/base/objects.yaml")).unwrap();
        let has = |objects: &str, name: &str| {
            objects.contains(&format!("\nkind: Deployment\nmetadata:\n  name: {name}\n"))
        };
        let mut named = 0;
        for words in commands_of("kubectl") {
            for name in words.iter().filter_map(|word| word.strip_prefix("deployment/")) {
                assert!(has(&chart, name) || has(&base, name), "{words:?}");
                named += 1;
            }
        }
        assert!(named >= 2, "{named}");
    }

    /// The block that shows the problems of a config before it is installed, with the values of the page.
    #[test]
    fn a_config_is_checked_before_it_is_installed() {
        let page = page();
        let of_page = |language: &str, part: &str| {
            let found = blocks(&page, language).into_iter().find(|block| block.contains(part));
            found.unwrap_or_else(|| panic!("no block with {part}"))
        };
        let (block, values) = (of_page("sh", "rendered.yaml"), of_page("yaml", "config:"));
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(
            deploy("").canonicalize().unwrap(),
            folder.path().join("deploy"),
        )
        .unwrap();
        fs::write(folder.path().join("my-values.yaml"), values).unwrap();
        let programs = [binary(), PathBuf::from(tool("helm"))];
        let folders = programs.iter().filter_map(|it| it.parent()).map(|it| it.to_str().unwrap());
        let path = folders.collect::<Vec<_>>().join(":") + ":" + &std::env::var("PATH").unwrap();
        let play = |block: &str| {
            let mut bash = Command::new("bash");
            bash.args(["-euo", "pipefail", "-c", block]).env("PATH", &path);
            said(bash.current_dir(folder.path()))
        };
        let (code, printed) = play(&block);
        assert_eq!(code, Some(0), "{printed}");
        assert!(printed.contains("id: geth"), "{printed}");
        // A config with a fault does not pass.
        let values = fs::read_to_string(folder.path().join("my-values.yaml")).unwrap();
        let wrong = values.replace("id: geth,", "idd: geth,");
        fs::write(folder.path().join("my-values.yaml"), wrong).unwrap();
        let (code, printed) = play(&block);
        assert!(code == Some(1) && printed.contains("idd"), "{printed}");
    }
}
