//! One request to the admin listener of a running wellhead, for the commands that ask one.
//!
//! A token is taken from the environment, where no list of processes shows it.

use std::time::Duration;

use serde_json::Value;
use wellhead_server::{AdminAnswer, AdminPlace, AdminRequest, ask_admin};

use crate::config::Admin;
use crate::terminal::{CommandError, environment};

/// The pages are quick; longer means that another program listens there.
const PATIENCE: Duration = Duration::from_secs(5);
/// The environment variable with the token for the admin listener.
const TOKEN: &str = "WELLHEAD_ADMIN_TOKEN";

/// Asks, with the token of the environment. The error is in words.
pub(crate) fn ask(
    admin: &Admin,
    method: &'static str,
    target: &str,
    body: &str,
    patience: Duration,
) -> Result<AdminAnswer, String> {
    let place = match admin {
        Admin::Off => return Err("it is `off`".to_owned()),
        Admin::At(address) => AdminPlace::Address(*address),
        Admin::Unix(path) => AdminPlace::File(path),
    };
    let token = environment(TOKEN);
    let request = AdminRequest { method, target, body, token: token.as_deref() };
    ask_admin(place, request, patience)
}

/// Asks for JSON on behalf of a command: its text and its value. An answer other than 200 is an error.
pub(crate) fn ask_json(
    admin: &Admin,
    method: &'static str,
    target: &str,
    body: &str,
) -> Result<(String, Value), CommandError> {
    ask_json_within(admin, method, target, body, PATIENCE)
}

/// As [`ask_json`], for an answer that may take this long.
pub(crate) fn ask_json_within(
    admin: &Admin,
    method: &'static str,
    target: &str,
    body: &str,
    patience: Duration,
) -> Result<(String, Value), CommandError> {
    let answer = ask(admin, method, target, body, patience).map_err(|why| {
        CommandError::System(format!("no wellhead answers at {admin} (--admin): {why}"))
    })?;
    let AdminAnswer { status, body } = answer;
    let told: Value = serde_json::from_str(&body).map_err(|_| {
        CommandError::System(format!("this is not the answer of a wellhead: HTTP {status}"))
    })?;
    if status != 200 {
        let why = told["error"].as_str().unwrap_or("it does not say why");
        return Err(CommandError::Config(why.to_owned()));
    }
    Ok((body, told))
}
