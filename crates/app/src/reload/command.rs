//! `wellhead reload`: has a running wellhead read its config again, and prints what became of it.

use serde_json::Value;

use crate::admin_client::ask_json_within;
use crate::cli::ReloadCommand;
use crate::terminal::{CommandError, say};

/// Reads and applies it, or shows what that would do.
pub(crate) fn command(arguments: &ReloadCommand) -> Result<(), CommandError> {
    let admin = &arguments.asked.admin;
    let target = if arguments.dry_run { "/reload?dry_run=true" } else { "/reload" };
    let (text, told) = ask_json_within(admin, "POST", target, "", arguments.timeout)?;
    match arguments.asked.json {
        true => say(&text),
        false => say(&shown(&told)),
    }
    Ok(())
}

/// A line for each change.
fn shown(told: &Value) -> String {
    let list = |key: &str| told[key].as_array().cloned().unwrap_or_default();
    let mut lines = Vec::new();
    for change in list("applied") {
        lines.push(change["text"].as_str().unwrap_or_default().to_owned());
    }
    for change in list("needs_restart") {
        lines.push(format!("restart needed: {}", change["text"].as_str().unwrap_or_default()));
    }
    for warning in list("warnings") {
        lines.push(format!("warning: {}", warning.as_str().unwrap_or_default()));
    }
    if list("applied").is_empty() {
        lines.push("no change to apply".to_owned());
    } else if told["dry_run"].as_bool() == Some(true) {
        lines.push("not applied: this was a dry run".to_owned());
    } else {
        lines.push(format!("applied: generation {}", told["generation"]));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plan_is_told_for_people() {
        let mut told = json!({
            "dry_run": true, "generation": 1, "warnings": ["w"],
            "applied": [{ "text": "+ chains.eth.upstreams.c" }],
            "needs_restart": [{ "text": "~ listen: 127.0.0.1:1 -> 127.0.0.1:2" }],
        });
        let lines = "+ chains.eth.upstreams.c\nrestart needed: ~ listen: 127.0.0.1:1 -> 127.0.0.1:2\nwarning: w\n";
        assert_eq!(shown(&told), format!("{lines}not applied: this was a dry run"));
        told["dry_run"] = json!(false);
        told["generation"] = json!(2);
        assert_eq!(shown(&told), format!("{lines}applied: generation 2"));
        assert_eq!(shown(&json!({})), "no change to apply");
    }
}
