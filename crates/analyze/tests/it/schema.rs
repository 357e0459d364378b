//! Reads the part of JSON Schema that our own schemas use; a word that is not known here is an
//! error, so that no rule of a schema goes unchecked.

use serde_json::Value;
use wellhead_analyze::record::{RECORDS_SCHEMA, RUN_SCHEMA, Record, RecordStamp, Writer};

use super::synthetic::{World, metered, shaped};

/// What is wrong with `value` by `schema`, a line each.
pub(crate) fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, schema, value, "", &mut found);
    found
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    for (word, rule) in schema.as_object().expect("a schema is an object") {
        let wrong = match word.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" => false,
            "$ref" => {
                let name =
                    rule.as_str().and_then(|it| it.strip_prefix("#/$defs/")).expect("a name");
                check(root, &root["$defs"][name], value, at, found);
                false
            }
            "type" => !is_a(value, rule.as_str().expect("one type")),
            "const" => value != rule,
            "enum" => !rule.as_array().expect("a list").contains(value),
            "minimum" => value.as_f64().is_some_and(|it| it < rule.as_f64().expect("a number")),
            "maximum" => value.as_f64().is_some_and(|it| it > rule.as_f64().expect("a number")),
            "required" => {
                let names = rule.as_array().expect("a list").iter().filter_map(Value::as_str);
                names.into_iter().any(|name| value.get(name).is_none())
            }
            "properties" => {
                for (name, rule) in rule.as_object().expect("an object") {
                    if let Some(member) = value.get(name) {
                        check(root, rule, member, &format!("{at}/{name}"), found);
                    }
                }
                false
            }
            "additionalProperties" => {
                others(root, schema, value, at, found);
                false
            }
            "items" => {
                for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, item, &format!("{at}/{n}"), found);
                }
                false
            }
            "oneOf" => {
                let rules = rule.as_array().expect("a list");
                let fit = |rule: &&Value| {
                    let mut inner = Vec::new();
                    check(root, rule, value, at, &mut inner);
                    inner.is_empty()
                };
                rules.iter().filter(fit).count() != 1
            }
            other => panic!("`{other}` is no word that the test reads"),
        };
        if wrong {
            found.push(format!("{at}: {word} {rule} is not met by {value}"));
        }
    }
}

/// Members that the schema does not name.
fn others(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let known = schema.get("properties").and_then(Value::as_object);
    for (name, member) in value.as_object().into_iter().flatten() {
        if known.is_some_and(|known| known.contains_key(name)) {
            continue;
        }
        match &schema["additionalProperties"] {
            Value::Bool(true) => {}
            Value::Bool(false) => found.push(format!("{at}/{name}: not known")),
            rule => check(root, rule, member, &format!("{at}/{name}"), found),
        }
    }
}

fn is_a(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("`{other}` is no type that the test reads"),
    }
}

#[test]
fn what_is_wrong_is_told() {
    let schema = serde_json::json!({
        "type": "object", "additionalProperties": false, "required": ["a"],
        "properties": { "a": { "type": "integer", "minimum": 0 }, "b": { "enum": ["x"] } },
    });
    let count = |text: &str| problems(&schema, &serde_json::from_str(text).expect("JSON")).len();
    assert_eq!(count(r#"{"a":1,"b":"x"}"#), 0);
    assert_eq!(count(r#"{"a":-1,"b":"y","c":1}"#), 3);
    assert_eq!(count(r#"{"b":"x"}"#), 1);
    assert_eq!(count(r#"{"a":1.5}"#), 1);
}

/// Each kind of record of made-up runs of all experiments, with and without a stamp.
#[test]
fn records_and_runs_are_what_their_schemas_say() {
    let mut world = World::new(1, vec![shaped(), metered()]);
    world.run.id = "00ff".to_owned();
    world.play_all();
    let schema = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.stamp(RecordStamp::new(&world.run, 1));
    // Of many calls alike a part is enough.
    for record in world
        .records
        .iter()
        .enumerate()
        .filter(|(n, record)| !matches!(record, Record::Call(_)) || n % 50 == 0)
    {
        writer.write(record.1).expect("written");
    }
    let records = schema(RECORDS_SCHEMA);
    for line in String::from_utf8(out).expect("text").lines() {
        let line = schema(line);
        let of_kind = &records["$defs"][line["kind"].as_str().expect("a kind")];
        assert_eq!(problems(of_kind, &line), Vec::<String>::new());
        assert_eq!(problems(&records, &line), Vec::<String>::new());
    }
    let run = serde_json::to_value(&world.run).expect("plain data");
    assert_eq!(problems(&schema(RUN_SCHEMA), &run), Vec::<String>::new());
}
