//! `wellhead upgrade`: has a running wellhead hand its sockets over to a new process of its binary.

use crate::admin_client::ask_json_within;
use crate::cli::UpgradeCommand;
use crate::terminal::{CommandError, say};

/// Asks for it, and waits until the new process is ready or the old one goes on.
pub(crate) fn command(arguments: &UpgradeCommand) -> Result<(), CommandError> {
    let admin = &arguments.asked.admin;
    let (text, told) = ask_json_within(admin, "POST", "/upgrade", "", arguments.timeout)?;
    match arguments.asked.json {
        true => say(&text),
        false => say(&format!("process {} serves from now on; the old one drains", told["pid"])),
    }
    Ok(())
}
