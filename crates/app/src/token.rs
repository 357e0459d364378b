//! `wellhead token`: a token for the admin listener, printed once, with the settings that accept it.

use std::fmt::Write as _;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use wellhead_access::{ApiKey, Pepper};
use wellhead_server::AdminRole;

use crate::cli::NewToken;
use crate::terminal::{CommandError, say};

/// What stands in the place of an environment, so that such a token is known for what it is.
const KIND: &str = "admin";

/// Makes a token, and prints it.
pub(crate) fn command(arguments: &NewToken) -> Result<(), CommandError> {
    let made = ApiKey::generate(KIND, &mut StdRng::from_os_rng()).map_err(CommandError::system)?;
    say(&text(arguments, made.text.expose()));
    Ok(())
}

fn text(arguments: &NewToken, token: &str) -> String {
    let hash = Pepper::well_known().hash(token).to_hex();
    let roles: Vec<&str> = arguments.role.iter().copied().map(AdminRole::word).collect();
    let mut text = format!("token (shown this once): {token}\n\n");
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "admin_access:\n  tokens:\n    - name: {}\n      roles: [{}]\n      hash: {hash}",
        arguments.name,
        roles.join(", ")
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    /// What is printed can be pasted, and lets the token in.
    #[test]
    fn the_settings_that_are_printed_accept_the_token() {
        let arguments =
            NewToken { name: "ops".to_owned(), role: vec![AdminRole::Operate, AdminRole::Keys] };
        let printed = text(&arguments, "wh_admin_example");
        let (first, settings) = printed.split_once("\n\n").expect("two parts");
        assert_eq!(first, "token (shown this once): wh_admin_example");
        let yaml =
            format!("chains: {{ a: {{ upstreams: [{{ url: \"http://a\" }}] }} }}\n{settings}");
        let read = config::sound(&yaml);
        let token = &read.admin_access.tokens[0];
        assert_eq!(token.name.0, "ops");
        assert_eq!(token.roles, arguments.role);
        assert!(token.hash == Pepper::well_known().hash("wh_admin_example"));
        assert!(!settings.contains("wh_admin"));
    }
}
