//! The JSON schema for editors, made from the tables of the settings.
//!
//! Every value may also hold a `${VAR}`, so each pattern has that way out: an
//! editor must not underline what we accept.

use serde_json::{Value, json};

use super::read::Setting;
use super::rule::{Absent, SettingRow, SettingTable, ValueShape};
use super::settings::Settings;
use super::write::Yaml;

/// What an editor may take a reference for.
const REFERENCE: &str = r".*\$\{[A-Za-z_].*";

/// The whole schema (JSON Schema 2020-12).
pub fn schema() -> Value {
    let mut schema = of(&Settings::shape());
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("wellhead.yaml");
    schema
}

fn of(shape: &ValueShape) -> Value {
    let reference = || json!({ "type": "string", "pattern": format!("^{REFERENCE}$") });
    match shape {
        ValueShape::Flag => json!({ "anyOf": [{ "type": "boolean" }, reference()] }),
        ValueShape::Count => json!({ "anyOf": [
            { "type": "integer", "minimum": 0 },
            { "type": "string", "pattern": format!("^([0-9][0-9_]*[KMG]?|{REFERENCE})$") },
        ] }),
        // `1.1` and `2` are numbers to an editor, words to us.
        ValueShape::Choice(words) => {
            let words = words();
            let numbers = words.iter().filter_map(|word| serde_json::from_str::<Value>(word).ok());
            let all: Vec<Value> = words.iter().map(|word| json!(word)).chain(numbers).collect();
            json!({ "anyOf": [{ "enum": all }, reference()] })
        }
        ValueShape::Text { pattern: None, .. } => {
            json!({ "type": ["string", "number", "boolean"] })
        }
        // Numbers are only checked by pattern once they are texts.
        ValueShape::Text { pattern: Some(pattern), .. } => json!({
            "type": ["string", "number", "boolean"],
            "pattern": format!("^({pattern}|{REFERENCE})$"),
        }),
        ValueShape::Section(table) => section(table),
        ValueShape::List(item) => json!({ "type": "array", "items": of(item) }),
        ValueShape::Map { key, value } => {
            let mut names = json!({});
            if let ValueShape::Text { pattern: Some(pattern), .. } = &**key {
                names["pattern"] = json!(format!("^({pattern})$"));
            }
            json!({ "type": "object", "propertyNames": names, "additionalProperties": of(value) })
        }
    }
}

fn section(table: &SettingTable) -> Value {
    let properties: serde_json::Map<String, Value> =
        table.rows.iter().map(|row| (row.key.to_owned(), property(row))).collect();
    let required: Vec<&str> = table
        .rows
        .iter()
        .filter(|row| matches!(row.absent, Absent::Required))
        .map(|row| row.key)
        .collect();
    let mut schema = json!({
        "type": "object",
        "description": table.about,
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn property(row: &SettingRow) -> Value {
    let mut schema = of(&row.shape);
    let mut about = row.about.clone() + row.bounds.as_deref().unwrap_or_default();
    match &row.absent {
        Absent::Required | Absent::Default(Yaml::Map(_)) => {}
        Absent::Default(value) => about.push_str(&format!(" Default: {}.", value.inline())),
        Absent::Derived(words) => about.push_str(&format!(" Default: {words}.")),
    }
    schema["description"] = json!(about);
    // A group may be written and left empty.
    if let ValueShape::Section(_) = row.shape {
        schema["type"] = json!(["object", "null"]);
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_described() {
        fn walk(value: &Value, path: &str, seen: &mut usize) {
            if let Some(properties) = value["properties"].as_object() {
                for (key, property) in properties {
                    let about = property["description"].as_str().unwrap_or_default();
                    assert!(about.ends_with('.'), "{path}.{key}: {about}");
                    *seen += 1;
                    walk(property, &format!("{path}.{key}"), seen);
                }
            }
            for inner in ["items", "additionalProperties"] {
                if value[inner].is_object() {
                    walk(&value[inner], path, seen);
                }
            }
        }
        let mut seen = 0;
        walk(&schema(), "", &mut seen);
        assert!(seen > 60, "{seen}");
    }

    #[test]
    fn unknown_keys_are_marked_everywhere() {
        let schema = schema();
        let upstream = &schema["properties"]["chains"]["additionalProperties"]["properties"]["upstreams"]
            ["items"];
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(upstream["additionalProperties"], json!(false));
        assert_eq!(upstream["required"], json!(["url"]));
        assert_eq!(
            upstream["properties"]["http"]["anyOf"][0]["enum"],
            json!(["auto", "1.1", "2", 1.1, 2])
        );
    }
}
