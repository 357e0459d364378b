//! Records come back as they were written, and a cut costs one line.

use std::fs;

use super::*;

fn call(n: u64) -> Record {
    Record::Call(CallRecord {
        experiment: "rate".to_owned(),
        n,
        method: "eth_chainId".to_owned(),
        ended_at: 30,
        status: Some(200),
        class: "answer".to_owned(),
        rule: "result".to_owned(),
        ..CallRecord::default()
    })
}

fn wire() -> Record {
    let event = WireEvent::Goaway { code: 11, last_stream: 199, debug: "<b>too\nmany".to_owned() };
    Record::Wire(WireRecord {
        experiment: "streams".to_owned(),
        cell: 3,
        target: 1,
        at: 5,
        connection: 7,
        event,
    })
}

fn text(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    for record in records {
        writer.write(record).expect("a vector takes everything");
    }
    out
}

#[test]
fn what_is_written_is_read() {
    let cell = Record::Cell(Cell {
        factors: BTreeMap::from([("rate".to_owned(), "125".to_owned())]),
        load: GeneratorLoad { cpu: 0.25, ..GeneratorLoad::default() },
        ..Cell::default()
    });
    let rollup = Record::Rollup(Rollup {
        calls: 60,
        served: 58,
        unserved: BTreeMap::from([("throttled".to_owned(), 2)]),
        p50: Some(20_000),
        load: GeneratorLoad { cpu: 0.25, ..GeneratorLoad::default() },
        ..Rollup::default()
    });
    let records = [call(0), wire(), cell, rollup];
    let out = text(&records);
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 4);
    let (read, torn) = read_all(out.as_slice()).expect("it is what we wrote");
    assert_eq!((read.as_slice(), torn), (records.as_slice(), None));
}

#[test]
fn a_line_is_flat_and_says_what_it_is() {
    let line = String::from_utf8(text(&[wire()])).expect("JSON is text");
    assert_eq!(
        line,
        "{\"kind\":\"wire\",\"experiment\":\"streams\",\"cell\":3,\"target\":1,\"at_us\":5,\
         \"connection\":7,\"event\":\"goaway\",\"code\":11,\"last_stream\":199,\
         \"debug\":\"<b>too\\nmany\"}\n"
    );
}

/// As it was written before a cell told why it is saturated, and what its thread had waited for.
#[test]
fn a_cell_of_an_older_run_is_read() {
    let line = "{\"kind\":\"cell\",\"experiment\":\"rate\",\"version\":2,\"cell\":0,\"repeat\":0,\
                \"target\":0,\"factors\":{\"rate\":\"10\"},\"begun_at\":1,\"ended_at\":2,\"calls\":3,\
                \"late_p99\":4,\"cpu\":0.9,\"saturated\":true}\n";
    let (read, torn) = read_all(line.as_bytes()).expect("it is a record");
    let [Record::Cell(cell)] = &read[..] else { panic!("{read:?}") };
    assert_eq!((cell.load.doubted(), cell.load.lag_p99, torn), (Some(CellDoubt::Behind), 0, None));
}

#[test]
fn what_did_not_happen_is_absent() {
    let line = String::from_utf8(text(&[call(0)])).expect("JSON is text");
    assert!(!line.contains("null") && !line.contains("tls"), "{line}");
}

#[test]
fn a_torn_last_line_is_told_and_skipped() {
    let mut out = text(&[call(0), call(1)]);
    out.truncate(out.len() - 9);
    let (read, torn) = read_all(out.as_slice()).expect("only the end is torn");
    assert_eq!((read, torn), (vec![call(0)], Some(2)));
}

#[test]
fn a_last_line_that_only_lacks_its_end_counts() {
    let mut out = text(&[call(0)]);
    out.pop();
    assert_eq!(read_all(out.as_slice()).expect("a whole record").0, [call(0)]);
}

#[test]
fn a_broken_line_in_the_middle_is_an_error() {
    let mut out = text(&[call(0)]);
    out.extend_from_slice(b"{\"kind\":\"other\"}\n");
    out.extend(text(&[call(1)]));
    let why = read_all(out.as_slice()).expect_err("that kind is unknown").to_string();
    assert!(why.starts_with("line 2 is no record: unknown variant `other`"), "{why}");
}

#[test]
fn a_line_without_an_end_is_not_read_into_memory() {
    let out = vec![b'x'; 3 << 20];
    let why = read_all(out.as_slice()).expect_err("no record is that long").to_string();
    assert_eq!(why, "line 1 is no record: it is longer than 1048576 bytes");
}

#[test]
fn a_torn_file_is_mended_and_gone_on_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("records.jsonl");
    let mut out = text(&[call(0)]);
    let whole = out.len();
    // Longer than the piece that is searched at a time.
    out.extend(vec![b' '; 10_000]);
    fs::write(&path, &out).expect("a file");
    let file = append(&path).expect("it opens");
    assert_eq!(file.metadata().expect("it is there").len(), whole as u64);
    Writer::new(file).write(&call(1)).expect("it takes a line");
    let read = read_all(fs::read(&path).expect("it is there").as_slice()).expect("all whole");
    assert_eq!(read, (vec![call(0), call(1)], None));
}

#[test]
fn a_new_file_is_begun() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("records.jsonl");
    let mut writer = Writer::new(append(&path).expect("it opens"));
    writer.write(&call(0)).expect("it takes a line");
    assert_eq!(fs::read(&path).expect("it is there"), text(&[call(0)]));
}

#[test]
fn a_run_is_read_as_written() {
    let run = RunRecord {
        format: FORMAT,
        seed: u64::MAX,
        targets: vec![MeasuredTarget { id: "a".to_owned(), ..MeasuredTarget::default() }],
        ..RunRecord::default()
    };
    let text = serde_json::to_string(&run).expect("plain data");
    assert_eq!(serde_json::from_str::<RunRecord>(&text).expect("plain data"), run);
}

#[test]
fn what_no_run_has_written_is_no_record() {
    let cell = r#"{"kind":"cell","experiment":"rate","version":1,"cell":0,"repeat":0,"target":0,
        "factors":{},"begun_at":5,"ended_at":9,"calls":1,"late_p99":0,"cpu":0.1,"saturated":false}"#;
    let rollup = r#"{"kind":"rollup","experiment":"soak","cell":0,"target":0,"begun_at":5,
        "ended_at":9,"calls":3,"served":2,"unserved":{"throttled":1},"late_p99":0,"cpu":0.1,
        "saturated":false}"#;
    let call = r#"{"kind":"call","experiment":"rate","cell":0,"target":0,"n":0,"method":"eth_call",
        "intended_at":5,"begun_at":5,"ended_at":9,"bytes_out":1,"bytes_in":1,"class":"answer",
        "rule":"result","first_byte":2}"#;
    let huge = "18446744073709551615";
    for (line, was, is, why) in [
        (cell, "", "", ""),
        (rollup, "", "", ""),
        (call, "", "", ""),
        (cell, "\"ended_at\":9", "\"ended_at\":4", "it ends before it begins"),
        (call, "\"ended_at\":9", "\"ended_at\":4", "it ends before it begins"),
        (rollup, "\"ended_at\":9", "\"ended_at\":4", "it ends before it begins"),
        (rollup, "\"served\":2", "\"served\":3", "it has fewer calls than became of them"),
        (rollup, "\"throttled\":1", huge, "it has fewer calls than became of them"),
        (cell, "\"calls\":1", huge, "a number in it is absurd"),
        (cell, "\"cpu\":0.1", "-0.1", "a number in it is absurd"),
        (cell, "\"cpu\":0.1", "1e300", "a number in it is absurd"),
        (call, "\"first_byte\":2", huge, "a number in it is absurd"),
        (call, "\"intended_at\":5", huge, "a number in it is absurd"),
        (call, "\"ended_at\":9", huge, "a number in it is absurd"),
    ] {
        // A value alone takes the place of the one before it.
        let key = was.rsplit_once(':').map_or("", |(key, _)| key);
        let is = if is.starts_with('"') { is.to_owned() } else { format!("{key}:{is}") };
        let text = if was.is_empty() { line.to_owned() } else { line.replace(was, &is) };
        let text = text.replace('\n', "") + "\n";
        let told = read_all(text.as_bytes()).err().map(|error| error.to_string());
        let expected = (!why.is_empty()).then(|| format!("line 1 is no record: {why}"));
        assert_eq!(told, expected, "{text}");
    }
}

#[test]
fn names_without_units_are_still_read() {
    let lines = [
        r#"{"kind":"cell","experiment":"rate","version":1,"cell":0,"repeat":0,"target":0,"factors":{},
        "begun_at_us":5,"ended_at_us":9,"calls":1,"late_p99_us":3,"lag_p99_us":2,"cpu_share":0.1,
        "waited_share":0.2,"saturated":false}"#,
        r#"{"kind":"rollup","experiment":"soak","cell":0,"target":0,"begun_at_us":5,"ended_at_us":9,
        "calls":3,"served":2,"unserved":{"throttled":1},"p50_us":1,"p95_us":2,"p99_us":3,"max_us":4,
        "late_p99_us":3,"lag_p99_us":2,"cpu_share":0.1,"waited_share":0.2,"saturated":false}"#,
        r#"{"kind":"call","experiment":"rate","cell":0,"target":0,"n":0,"method":"eth_blockNumber",
        "intended_at_us":5,"begun_at_us":6,"queue_us":1,"dns_us":2,"tcp_us":3,"tls_us":4,"write_us":5,
        "first_byte_us":6,"transfer_us":7,"ended_at_us":9,"bytes_out":1,"bytes_in":1,
        "class":"answer","rule":"result"}"#,
        r#"{"kind":"wire","experiment":"rate","cell":0,"target":0,"at_us":5,"connection":1,
        "event":"opened","protocol":"h2","dns_us":1,"tcp_us":2,"tls_us":3}"#,
    ];
    for line in lines {
        let read = |text: &str| serde_json::from_str::<Record>(text).expect("a record");
        let old = line.replace("_us\"", "\"").replace("_share\"", "\"");
        assert_eq!(read(line), read(&old), "{line}");
        let written = serde_json::to_string(&read(&old)).expect("plain data");
        assert_eq!(written.matches("_us\":").count(), line.matches("_us\":").count(), "{written}");
    }
}

#[test]
fn a_line_names_its_run_its_target_and_the_time_of_day() {
    let target = |id: &str| MeasuredTarget { id: id.to_owned(), ..MeasuredTarget::default() };
    let run = RunRecord {
        id: "00ff".to_owned(),
        targets: vec![target("a"), target("\"b")],
        ..RunRecord::default()
    };
    let call = CallRecord {
        target: 1,
        begun_at: 5,
        ended_at: 9,
        class: "answer".to_owned(),
        ..CallRecord::default()
    };
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.stamp(RecordStamp::new(&run, 1_795_000_000_000_000));
    writer.write(&Record::Call(call.clone())).expect("written");
    // A target that the run does not have has no name.
    writer.write(&Record::Call(CallRecord { target: 2, ..call.clone() })).expect("written");
    let text = String::from_utf8(out.clone()).expect("text");
    let head = r#"{"run":"00ff","target_id":"\"b","unix_us":1795000000000005,"kind":"call","#;
    assert!(text.starts_with(head), "{text}");
    let (records, torn) = read_all(out.as_slice()).expect("records");
    assert_eq!((records.first(), records.len(), torn), (Some(&Record::Call(call)), 2, None));
}
