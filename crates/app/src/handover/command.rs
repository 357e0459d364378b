//! `wellhead upgrade`: has a running wellhead hand its sockets over to a new process of its binary.

use serde_json::Value;

use crate::admin_client::ask;
use crate::cli::UpgradeCommand;
use crate::terminal::{CommandError, say};

/// Asks for it, and waits until the new process is ready or the old one goes on.
pub(crate) fn command(arguments: &UpgradeCommand) -> Result<(), CommandError> {
    let admin = &arguments.asked.admin;
    let answer = ask(admin, "POST", "/upgrade", "", arguments.timeout).map_err(|why| {
        CommandError::System(format!("no wellhead answers at {admin} (--admin): {why}"))
    })?;
    let told: Value = serde_json::from_str(&answer.body).map_err(|_| {
        CommandError::System(format!(
            "this is not the answer of a wellhead: HTTP {}",
            answer.status
        ))
    })?;
    if let Some(problem) = told["error"].as_str() {
        return Err(CommandError::Config(format!("nothing was handed over: {problem}")));
    }
    match arguments.asked.json {
        true => say(&answer.body),
        false => say(&format!("process {} serves from now on; the old one drains", told["pid"])),
    }
    Ok(())
}
