//! A config with damage anywhere: no panic, no secret shown, and a message each time.
//!
//! Every line is dropped, indented, cut and spoilt in turn: a poor fuzzer that needs
//! no tool and has no luck.

use wellhead_app::config::{self, Overrides};

const CONFIG: &str = "\
listen: 127.0.0.1:4545
limits: { body_bytes: 5MiB, batch_items: 1_000 }
chains:
  ethereum:
    id: 0x1
    aliases: [mainnet, \"eth\"]
    methods: { deny: [debug_*] }
    upstreams:
      - { id: a, url: \"https://eth.example/v2/0SECRET0SECRET0\", labels: &l { archive: \"true\" } }
      - id: b
        labels: { <<: *l, b: c }
        url: https://user:SECRET@two.example/${KEY}/SECRET?k=SECRET
        headers: { x-api-key: 'SECRET', X-Team: \"SECRET\" }
        auth: { basic: { user: me, password: SECRET } }
      - url: 'http://übér:8545'
        labels: *l
        auth:
          bearer: SECRET
    routes:
      - { methods: [trace_*], only: { archive: \"true\" } }
";

fn lookup(name: &str) -> Option<String> {
    (name == "KEY").then(|| "SECRET".to_owned())
}

fn check(source: &str) {
    outcome(source, true);
}

/// Reads and renders; `whole` says that no secret was torn from its key.
fn outcome(source: &str, whole: bool) {
    let secret = |text: &str| whole && text.contains("SECRET");
    match config::parse("f", source, &lookup, Overrides::default()) {
        Ok(loaded) => {
            let rendered = loaded.settings.render();
            assert!(!secret(&rendered), "{source}\n{rendered}");
        }
        Err(report) => {
            let rendered = report.render(false);
            assert!(report.errors() > 0, "{source}\n{rendered}");
            assert!(!secret(&rendered), "{source}\n{rendered}");
            assert!(
                !secret(&format!("{:?}", report.problems())),
                "{source}\n{:?}",
                report.problems()
            );
        }
    }
}

#[test]
fn undamaged() {
    let loaded = config::parse("f", CONFIG, &lookup, Overrides::default());
    let report = loaded.map(|loaded| loaded.warnings).unwrap_or_else(|report| report);
    // Credentials in the URL are the one thing that it does wrong.
    assert_eq!(report.problems().len(), 1, "{report}");
}

#[test]
fn cut_anywhere() {
    for (at, _) in CONFIG.char_indices() {
        check(&CONFIG[..at]);
        outcome(&CONFIG[at..], false);
    }
}

#[test]
fn any_line_dropped_doubled_or_moved() {
    let lines: Vec<&str> = CONFIG.lines().collect();
    let join = |lines: Vec<String>| lines.join("\n") + "\n";
    for index in 0..lines.len() {
        let each = |change: &dyn Fn(&str) -> String| {
            let changed = lines.iter().enumerate().map(|(position, line)| {
                if position == index { change(line) } else { (*line).to_owned() }
            });
            join(changed.collect())
        };
        check(&each(&|_| String::new()));
        check(&each(&|line| format!("{line}\n{line}")));
        check(&each(&|line| format!(" {line}")));
        check(&each(&|line| format!("\t{line}")));
        check(&each(&|line| line.trim_start().to_owned()));
        check(&each(&|line| line.replace(": ", ":")));
        check(&each(&|line| line.replace(':', "")));
        check(&each(&|line| line.replace('s', "ſ")));
    }
}

#[test]
fn any_character_spoilt() {
    for (at, c) in CONFIG.char_indices() {
        // Not in a secret: a spoilt one is another word.
        let next = at + c.len_utf8();
        for spoilt in
            ["", "\"", "'", "{", "}", "[", ",", ": ", "#", "&", "*", "!", "|", "$", "\n", "é"]
        {
            if c.is_ascii_uppercase() {
                continue;
            }
            check(&format!("{}{spoilt}{}", &CONFIG[..at], &CONFIG[next..]));
        }
    }
}
