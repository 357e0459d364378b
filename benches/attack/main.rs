//! Every attack that wellhead is known to meet, played against the real binary.
//!
//! The attacks, the caller beside them and what has to hold are in `wellhead_e2e::attack`; here
//! they are chosen, printed, and played before nginx and Envoy as well (`beside`).
//!
//! The run ends with 1 when a claim does not hold.

#![allow(clippy::print_stdout, reason = "a tool of the command line")]

mod beside;
#[path = "../scenario/claim.rs"]
mod claim;
#[path = "../compare/machine.rs"]
mod machine;
mod options;
mod table;

use claim::Claims;
use options::{Options, USAGE};
use serde_json::json;
use tokio::time::Duration;
use wellhead_e2e::Certificate;
use wellhead_e2e::attack::{ATTACKS, Attack, Report, Scale, Upstream, play, wellhead};

/// How long an attack lasts by default.
const LASTS: Duration = Duration::from_secs(8);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    if std::env::args().any(|argument| argument == "--help") {
        print!("{USAGE}");
        return;
    }
    let Some(options) = Options::parse(std::env::args().skip(1)) else {
        print!("{USAGE}");
        std::process::exit(2);
    };
    let chosen: Vec<&Attack> = ATTACKS.iter().filter(|attack| options.wants(attack.name)).collect();
    if options.list {
        chosen.iter().for_each(|attack| println!("{:<22} {}", attack.name, attack.about));
        return;
    }
    let lasts = options.seconds.map_or(LASTS, Duration::from_secs);
    let certificate = Certificate::new();
    let mut claims = Claims::default();
    let mut records = Vec::new();
    table::heading(lasts);
    for attack in chosen {
        println!("\n{}: {}", attack.name, attack.about);
        // Upstreams of their own: what one attack left behind is not seen by the next.
        let (hostile, well) = (Upstream::start(), Upstream::start());
        let (target, subject) =
            wellhead(attack, [&hostile, &well], &certificate, Scale::Full).await;
        let report = play(attack, &subject, [&hostile, &well], Scale::Full, lasts).await;
        table::row("wellhead", attack, &report);
        if !target.answers().await {
            println!("the end of its log:\n{}", target.process.log());
            claims.check(false, format!("{}: wellhead is alive", attack.name));
        }
        drop(target);
        judge(attack, &report, &mut claims);
        records.push(table::record("wellhead", &report));
        if attack.beside {
            for kind in &options.beside {
                match beside::play(*kind, attack, &certificate, lasts).await {
                    Ok(report) => {
                        table::row(kind.name(), attack, &report);
                        records.push(table::record(kind.name(), &report));
                    }
                    Err(why) => println!("  {:<9} {why}", kind.name()),
                }
            }
        }
    }
    let record = || json!({ "seconds": lasts.as_secs(), "results": records });
    claims.end("attack", options.keep.then(record));
}

fn judge(attack: &Attack, report: &Report, claims: &mut Claims) {
    let mut broken = report.broken(attack);
    broken.extend(report.late());
    if broken.is_empty() {
        let times = match report.is_machine_limited() {
            true => ", the machine has nothing to spare: no claim of p99",
            false => "",
        };
        let most = attack.ceiling_mib;
        claims.check(
            true,
            format!(
                "{}: the caller is served, at most {most} MiB, descriptors back{times}",
                attack.name
            ),
        );
    }
    for what in broken {
        claims.check(false, format!("{}: {what}", attack.name));
    }
}
