//! What was seen, for people and for the records.

use serde_json::{Value, json};
use tokio::time::Duration;
use wellhead_e2e::attack::caller::{RATE, Seen};
use wellhead_e2e::attack::{Attack, By, Report};

/// How to read the rows.
pub(crate) fn heading(lasts: Duration) {
    println!(
        "each attack lasts {} s; beside it one caller makes {RATE} calls a second from another \
         address, which take 20 ms at the upstream",
        lasts.as_secs()
    );
    println!("times in ms, quiet > under attack; memory and descriptors quiet > peak > after");
}

/// One contender under one attack.
pub(crate) fn row(name: &str, attack: &Attack, report: &Report) {
    let Report { quiet, under, direct, peak, .. } = report;
    println!(
        "  {name:<9} ok {:6.2} %  p50 {:.0} > {:.0}  p99 {:.0} > {:.0} (upstream alone {:.0})  \
         MiB {} > {} > {}  fds {} > {} > {}  cores {:.2} (idle {:.0} %)",
        under.success_percent(),
        quiet.quantile_ms(0.5),
        under.quantile_ms(0.5),
        quiet.quantile_ms(0.99),
        under.quantile_ms(0.99),
        direct.quantile_ms(0.99),
        report.quiet_kib / 1024,
        peak.resident_kib / 1024,
        report.after_kib / 1024,
        report.quiet_descriptors,
        peak.descriptors,
        report.after_descriptors,
        peak.cores,
        peak.machine_idle_percent,
    );
    if report.client_calls > 0 {
        println!(
            "            {} requests of the attack, {:.2} calls at the upstream for each",
            report.client_calls,
            report.calls_per_call(),
        );
    }
    if matches!(attack.by, By::Upstream(_)) {
        println!(
            "            {} calls of the caller reached the attacking upstream",
            report.hostile_calls
        );
    }
    for failure in &under.failures {
        println!("            failed: {failure}");
    }
    for remark in report.remarks.iter().chain(&report.violations).take(12) {
        println!("            {remark}");
    }
}

/// The figures, as they are kept.
pub(crate) fn record(name: &str, report: &Report) -> Value {
    let Report { quiet, under, direct, peak, .. } = report;
    let times = |seen: &Seen| {
        json!({
            "ok": seen.ok, "failed": seen.failed,
            "p50_ms": seen.quantile_ms(0.5), "p99_ms": seen.quantile_ms(0.99),
        })
    };
    json!({
        "attack": report.name, "target": name,
        "quiet": times(quiet), "under_attack": times(under), "upstream_alone": times(direct),
        "resident_kib": [report.quiet_kib, peak.resident_kib, report.after_kib],
        "descriptors":
            [report.quiet_descriptors, peak.descriptors, report.after_descriptors],
        "back_after_ms": report.back_after.as_millis() as u64,
        "cores": peak.cores, "machine_idle_percent": peak.machine_idle_percent,
        "attack_requests": report.client_calls, "upstream_calls": report.upstream_calls,
        "violations": report.violations, "remarks": report.remarks,
    })
}
