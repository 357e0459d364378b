//! Files in a temporary folder.

use wellhead_access::usage::{
    MilliCredits, UsageAmounts, UsageMinute, UsageOutcome, UsageRecord, UsageSource, UsageTable,
};
use wellhead_access::{AccessGrant, GrantKind, Tenant};

use super::*;
use crate::config::ByteSize;

/// 2026-11-25.
const DAY: u32 = 20_782;
const MINUTES: u32 = 24 * 60;

/// One row for each minute, in their order.
fn rows(minutes: &[u32]) -> Vec<UsageRow> {
    let table = UsageTable::new("r");
    let grant = AccessGrant::new(GrantKind::Key, "k1", Arc::new(Tenant::new("acme")));
    let chain = Arc::from("ethereum");
    let amounts =
        UsageAmounts { calls: 1, credits_in: MilliCredits::whole(2), ..UsageAmounts::default() };
    let (source, outcome) = (UsageSource::Upstream, UsageOutcome::Answered);
    let mut rows = Vec::new();
    for minute in minutes {
        let method = "eth_call";
        let record = UsageRecord { grant: &grant, chain: &chain, method, source, outcome, amounts };
        table.record(&record, UsageMinute(*minute));
        rows.extend(table.take_minute(UsageMinute::MAX));
    }
    rows
}

fn settings(folder: &Path, format: UsageFormat) -> UsageFileConfig {
    let folder = folder.join("usage");
    UsageFileConfig { folder, format, bytes: ByteSize(1_000_000), files: 5 }
}

fn writer(settings: &UsageFileConfig) -> FileWriter {
    FileWriter::new(settings.clone(), "r")
}

/// The names of all files with the number of their lines, in order.
fn shown(settings: &UsageFileConfig) -> Vec<String> {
    let entries = fs::read_dir(&settings.folder).expect("a folder");
    let mut shown: Vec<String> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let text = fs::read_to_string(&path).expect("text");
            assert!(text.is_empty() || text.ends_with('\n'), "whole lines");
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            format!("{name} {}", text.lines().count())
        })
        .collect();
    shown.sort();
    shown
}

#[test]
fn rows_are_in_the_file_of_their_day() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = settings(folder.path(), UsageFormat::Csv);
    let mut first = writer(&settings);
    let next = (DAY + 1) * MINUTES;
    first.write(&rows(&[next - 2, next - 1, next])).expect("written");
    first.write(&rows(&[next + 1])).expect("written");
    // One that comes late.
    first.write(&rows(&[next - 1])).expect("written");
    drop(first);
    writer(&settings).write(&rows(&[next + 2])).expect("a restart goes on");
    assert_eq!(shown(&settings), ["usage-2026-11-25.csv 4", "usage-2026-11-26.csv 4"]);
    let path = settings.folder.join("usage-2026-11-26.csv");
    let text = fs::read_to_string(path).expect("text");
    assert!(text.starts_with(CSV_HEADER));
    assert_eq!(text.matches("replica").count(), 1, "one header");
}

#[test]
fn a_full_file_is_followed_by_another_and_the_oldest_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = settings(folder.path(), UsageFormat::Jsonl);
    let one = {
        let mut text = Vec::new();
        write_jsonl(&mut text, "r", &rows(&[DAY * MINUTES]));
        text.len() as u64
    };
    (settings.bytes.0, settings.files) = (2 * one, 3);
    fs::create_dir_all(&settings.folder).expect("made");
    let others =
        ["usage-2026-11-25.csv.gz", "usage-2026-1-1.csv", "usage-2026-11-01.x.csv", "notes"];
    for name in others {
        fs::write(settings.folder.join(name), "").expect("written");
    }
    let mut writer = writer(&settings);
    for _ in 0..5 {
        writer.write(&rows(&[DAY * MINUTES])).expect("written");
    }
    let ours = |settings: &UsageFileConfig| -> Vec<String> {
        shown(settings).into_iter().filter(|name| !name.ends_with(" 0")).collect()
    };
    let expected =
        ["usage-2026-11-25.1.jsonl 2", "usage-2026-11-25.2.jsonl 1", "usage-2026-11-25.jsonl 2"];
    assert_eq!(ours(&settings), expected);
    for _ in 0..2 {
        writer.write(&rows(&[DAY * MINUTES])).expect("written");
    }
    writer.write(&rows(&[(DAY + 1) * MINUTES])).expect("written");
    let expected =
        ["usage-2026-11-25.2.jsonl 2", "usage-2026-11-25.3.jsonl 1", "usage-2026-11-26.jsonl 1"];
    assert_eq!(ours(&settings), expected);
    assert_eq!(shown(&settings).len(), 3 + others.len(), "what is not ours stays");
    // A take that is longer than a file has one of its own.
    writer.write(&rows(&[(DAY + 1) * MINUTES; 7])).expect("written");
    assert!(ours(&settings).contains(&"usage-2026-11-26.1.jsonl 7".to_owned()));
}

#[test]
fn half_a_line_of_a_crash_is_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |format: UsageFormat, left: &str, expected: &str| {
        let settings = settings(folder.path(), format);
        let mut writer = writer(&settings);
        fs::create_dir_all(&settings.folder).expect("made");
        let end = writer.end();
        let path = settings.folder.join(format!("usage-2026-11-25.{end}"));
        fs::write(&path, left).expect("written");
        writer.write(&rows(&[DAY * MINUTES])).expect("written");
        let text = fs::read_to_string(&path).expect("text");
        assert!(text.starts_with(expected), "{left:?}: {text}");
        let rest = text.strip_prefix(expected).expect("checked");
        assert_eq!(rest.lines().count(), 1, "{left:?}: {text}");
    };
    check(UsageFormat::Jsonl, "", "");
    check(UsageFormat::Jsonl, "{\"id\":", "");
    check(UsageFormat::Jsonl, "{}\n{\"id\":", "{}\n");
    check(UsageFormat::Csv, "id,rep", CSV_HEADER);
    let line = format!("{CSV_HEADER}a,b\n");
    check(UsageFormat::Csv, &line, &line);
    check(UsageFormat::Csv, &format!("{line}c,"), &line);
}

#[test]
fn a_file_of_another_version_or_process_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = settings(folder.path(), UsageFormat::Csv);
    fs::create_dir_all(&settings.folder).expect("made");
    fs::write(settings.folder.join("usage-2026-11-25.csv"), "id,other\n1,2\n").expect("written");
    let (mut first, mut second) = (writer(&settings), writer(&settings));
    first.write(&rows(&[DAY * MINUTES])).expect("written");
    second.write(&rows(&[DAY * MINUTES])).expect("written");
    first.write(&rows(&[DAY * MINUTES])).expect("written");
    let expected =
        ["usage-2026-11-25.1.csv 3", "usage-2026-11-25.2.csv 2", "usage-2026-11-25.csv 2"];
    assert_eq!(shown(&settings), expected);
}

#[test]
fn a_file_that_was_removed_is_made_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = settings(folder.path(), UsageFormat::Csv);
    let mut writer = writer(&settings);
    writer.write(&rows(&[DAY * MINUTES])).expect("written");
    fs::remove_dir_all(&settings.folder).expect("removed");
    writer.write(&rows(&[DAY * MINUTES])).expect("written");
    assert_eq!(shown(&settings), ["usage-2026-11-25.csv 2"]);
}

/// `/dev/full` takes nothing, as a full disk.
#[test]
fn a_full_disk_is_an_error_and_then_rows_are_written_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = settings(folder.path(), UsageFormat::Jsonl);
    fs::create_dir_all(&settings.folder).expect("made");
    let path = settings.folder.join("usage-2026-11-25.jsonl");
    std::os::unix::fs::symlink("/dev/full", &path).expect("linked");
    let mut writer = writer(&settings);
    let rows = rows(&[DAY * MINUTES]);
    for _ in 0..2 {
        let error = writer.write(&rows).expect_err("full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
    fs::remove_file(&path).expect("removed");
    writer.write(&rows).expect("written");
    assert_eq!(shown(&settings), ["usage-2026-11-25.jsonl 1"]);
}

#[tokio::test]
async fn rows_wait_for_a_disk_that_fails_and_the_end_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = settings(folder.path(), UsageFormat::Csv);
    // A file where the folder should be.
    fs::write(&settings.folder, "").expect("written");
    let (backlog, counts) = (Arc::new(OutletBacklog::new(3)), Arc::new(UsageCounts::default()));
    let closing = watch::Sender::new(false);
    let own = (Arc::clone(&backlog), writer(&settings), Arc::clone(&counts), closing.subscribe());
    let running = tokio::spawn(run(own.0, own.1, own.2, own.3));
    for _ in 0..5 {
        let rows: Arc<[UsageRow]> = rows(&[DAY * MINUTES]).into();
        counts.dropped_by_file(backlog.push(rows, 1));
    }
    let of = |outlet: &str, what: &str| {
        let all = counts.all();
        all.iter().find(|it| (it.0, it.1) == (outlet, what)).map(|it| it.2)
    };
    while of("file", "failed_attempts") == Some(0) {
        tokio::task::yield_now().await;
    }
    assert!(backlog.weight() <= 3, "bounded");
    closing.send_replace(true);
    running.await.expect("it ended");
    assert_eq!(of("file", "written"), Some(0));
    assert!(of("file", "dropped") > Some(0));
}
