//! `wellhead log`: the filter of a running wellhead's log, shown or changed for a while.

use serde_json::{Value, json};

use crate::admin_client::ask_json;
use crate::cli::LogCommand;
use crate::terminal::{CommandError, say};

const PATH: &str = "/log";

/// Shows or changes it, and prints what holds then.
pub(crate) fn command(arguments: &LogCommand) -> Result<(), CommandError> {
    let admin = &arguments.asked.admin;
    let told = match (&arguments.filter, arguments.reset) {
        (None, false) => ask_json(admin, "GET", PATH, ""),
        (_, true) => ask_json(admin, "DELETE", PATH, ""),
        (Some(filter), false) => {
            let lasting = format!("{}ms", arguments.lasting.as_millis());
            let order = json!({ "filter": filter, "for": lasting });
            ask_json(admin, "PUT", PATH, &order.to_string())
        }
    };
    let (body, told) = told?;
    match arguments.asked.json {
        true => say(&body),
        false => say(&shown(&told)),
    }
    Ok(())
}

fn shown(told: &Value) -> String {
    let configured = told["configured"].as_str().unwrap_or("-");
    match (told["over"].as_str(), told["seconds_left"].as_u64()) {
        (Some(over), Some(left)) => format!(
            "settings  {configured}\nover it   {over}, for {} min {} s more",
            left / 60,
            left % 60
        ),
        (Some(over), None) => format!("settings  {configured}\nover it   {over}"),
        (None, _) => format!("settings  {configured}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_for_people() {
        let plain = json!({ "configured": "info", "over": null, "seconds_left": null });
        assert_eq!(shown(&plain), "settings  info");
        let over = json!({ "configured": "info", "over": "debug", "seconds_left": 599 });
        assert_eq!(shown(&over), "settings  info\nover it   debug, for 9 min 59 s more");
    }
}
