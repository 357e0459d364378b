//! What single values look like: one [`SettingWord`] per type.
//!
//! Types of other crates are read here too, so that those crates need to know
//! nothing of the config. Messages name what was expected and never quote what
//! was found: it may be a secret put in the wrong place.

use std::net::SocketAddr;
use std::path::PathBuf;

use wellhead_access::{AnonymousRule, EffectClass, KeyHash, KeyId};
use wellhead_dispatch::{Otherwise, TierScope};
use wellhead_eth::{ChainId, MethodGlob};
use wellhead_limit::lease::WhenAway;
use wellhead_net::HttpVersion;
use wellhead_proxy::{ByHashMode, ClientVersion, Level, ParentMode};
use wellhead_route::Balance;
use wellhead_server::{AdminRole, ProxyMode};
use wellhead_telemetry::log::Format;
use wellhead_telemetry::{BadUrl, Secret, SecretUrl};
use wellhead_upstream::Tier;
use wellhead_watch::{CheckKind, Mode};

use super::mask::Hide;
use super::name::names;
use super::near::near;
use super::problem::Wrong;
use super::read::{SettingWord, listed};
use super::rule::ValueShape;
use super::write::Yaml;

/// Longer texts are a file pasted by mistake.
const TEXT_LEN_MAX: usize = 8 * 1024;

impl SettingWord for bool {
    const EXPECTED: &'static str = "`true` or `false`";
    const SHAPE: ValueShape = ValueShape::Flag;

    fn parse(text: &str) -> Result<Self, Wrong> {
        match text {
            "true" => Ok(true),
            "false" => Ok(false),
            "yes" | "on" | "True" | "TRUE" => Err(flag("true")),
            "no" | "off" | "False" | "FALSE" => Err(flag("false")),
            _ => Err(Wrong::new("expected `true` or `false`")),
        }
    }

    fn write(&self) -> Yaml {
        Yaml::Plain(self.to_string())
    }

    fn blank() -> Self {
        false
    }
}

fn flag(meant: &str) -> Wrong {
    Wrong::hinted("expected `true` or `false`", format!("write `{meant}`"))
}

impl SettingWord for SocketAddr {
    const EXPECTED: &'static str = "an address with a port such as `127.0.0.1:4545`";
    const SHAPE: ValueShape = ValueShape::word("address", ".+:[0-9]+");

    fn parse(text: &str) -> Result<Self, Wrong> {
        if let Ok(address) = text.parse() {
            return Ok(address);
        }
        let message = Self::expected();
        let port = |text: &str| text.parse::<u16>().is_ok();
        let hint = match text.rsplit_once(':') {
            _ if port(text) => format!(
                "write `127.0.0.1:{text}`, or `0.0.0.0:{text}` to be reached from other machines"
            ),
            Some(("", after)) if port(after) => {
                format!("write `0.0.0.0:{after}` for every address of this machine")
            }
            Some(("localhost", after)) if port(after) => format!("write `127.0.0.1:{after}`"),
            Some(("*", after)) if port(after) => format!("write `0.0.0.0:{after}`"),
            _ if text.parse::<std::net::IpAddr>().is_ok() => "add `:` and a port".to_owned(),
            Some((_, after)) if !port(after) => "a port is a number up to 65535".to_owned(),
            Some(_) | None => "write an IP address, not a name; IPv6 as `[::1]:4545`".to_owned(),
        };
        Err(Wrong::hinted(message, hint))
    }

    fn write(&self) -> Yaml {
        // Brackets mean a list to YAML.
        match self {
            Self::V4(_) => Yaml::Plain(self.to_string()),
            Self::V6(_) => Yaml::Text(self.to_string()),
        }
    }

    fn blank() -> Self {
        Self::from(([127, 0, 0, 1], 0))
    }
}

/// Where the admin listener is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admin {
    /// There is none.
    Off,
    /// Here.
    At(SocketAddr),
    /// At this socket file.
    Unix(PathBuf),
}

/// What the path of a socket file begins with.
const UNIX: &str = "unix:";

/// As it is written.
impl std::fmt::Display for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl SettingWord for Admin {
    const EXPECTED: &'static str =
        "an address with a port such as `127.0.0.1:4546`, `unix:/path`, or `off`";
    const SHAPE: ValueShape =
        ValueShape::word("address, `unix:/path` or `off`", "off|unix:/.+|.+:[0-9]+");

    fn parse(text: &str) -> Result<Self, Wrong> {
        if let Some(path) = text.strip_prefix(UNIX) {
            let path = <PathBuf as SettingWord>::parse(path)?;
            return match path.is_absolute() {
                true => Ok(Self::Unix(path)),
                false => {
                    let hint = "write the whole path: `unix:/run/wellhead/admin.sock`";
                    Err(Wrong::hinted("the path of the socket does not begin with `/`", hint))
                }
            };
        }
        match text {
            "off" => Ok(Self::Off),
            "false" | "no" | "none" | "disabled" => {
                Err(Wrong::hinted(Self::expected(), "write `off`"))
            }
            text => <SocketAddr as SettingWord>::parse(text)
                .map(Self::At)
                .map_err(|wrong| Wrong { message: Self::expected(), ..wrong }),
        }
    }

    fn write(&self) -> Yaml {
        match self {
            // Plain: YAML 1.1 reads `off` as a flag, but we read the word itself.
            Self::Off => Yaml::Plain("off".to_owned()),
            Self::At(address) => SettingWord::write(address),
            Self::Unix(_) => Yaml::Text(self.to_string()),
        }
    }

    fn blank() -> Self {
        Self::Off
    }
}

/// Who may use a file, in octal: owner, group, others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl SettingWord for FileMode {
    const EXPECTED: &'static str = "a mode such as `0660`: owner, group, others";
    const SHAPE: ValueShape = ValueShape::word("file mode", "0?[0-7]{3}");

    fn parse(text: &str) -> Result<Self, Wrong> {
        let digits = text.strip_prefix('0').unwrap_or(text);
        let is_octal = digits.len() == 3 && digits.bytes().all(|b| (b'0'..=b'7').contains(&b));
        match u32::from_str_radix(digits, 8) {
            Ok(mode) if is_octal && mode & 0o600 == 0o600 => Ok(Self(mode)),
            Ok(_) if is_octal => {
                Err(Wrong::hinted("the owner could not connect", "begin it with `06`"))
            }
            Ok(_) | Err(_) => Err(Wrong::new(Self::expected())),
        }
    }

    fn write(&self) -> Yaml {
        Yaml::Plain(format!("{:04o}", self.0))
    }

    fn blank() -> Self {
        Self(0o660)
    }
}

impl SettingWord for KeyHash {
    const EXPECTED: &'static str =
        "a hash as `wellhead token` or `wellhead key create` prints it: 64 hex digits";
    // It may be the token or key itself, by mistake.
    const HIDE: Option<Hide> = Some(Hide::Whole);
    const SHAPE: ValueShape = ValueShape::word("hash", "[0-9a-f]{64}");

    fn parse(text: &str) -> Result<Self, Wrong> {
        text.parse().map_err(|_| {
            let hint = "the token or key itself does not belong here: `wellhead token` makes one for `admin`, \
                 and `wellhead key create` one for a client, each with its hash";
            Wrong::hinted(Self::expected(), hint)
        })
    }

    fn write(&self) -> Yaml {
        Yaml::Text("***".to_owned())
    }

    fn blank() -> Self {
        "00".repeat(32).parse().expect("64 hex digits")
    }
}

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

names! {
    /// What is logged: a level, and other levels for single targets.
    LogFilter = "a level such as `info`, or `info,wellhead_net=debug`", "log filter",
    "([a-z_:]+=)?(error|warn|info|debug|trace|off)(,([a-z_:]+=)?(error|warn|info|debug|trace|off))*", |text| {
        for part in text.split(',') {
            let (target, level) = match part.split_once('=') {
                Some((target, level)) => (target, level),
                None => ("wellhead", part),
            };
            let tidy = !target.is_empty()
                && target.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':'));
            if !tidy || !LEVELS.contains(&level) {
                let hint = match near(level, LEVELS) {
                    Some(meant) if tidy => format!("did you mean `{meant}`?"),
                    Some(_) | None => format!("the levels are {}", listed(&LEVELS)),
                };
                return Err(Wrong::hinted(Self::expected(), hint));
            }
        }
        Ok(())
    }
}

/// How single calls travel to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallsOver {
    /// Each is a request.
    Http,
    /// Each is a message on a connection that many share.
    WebSocket,
}

/// Reads and writes an enum of a few words; the last stands behind `;`, for the `or` before it. The first stands
/// in for one that could not be read.
macro_rules! choice {
    ($type:ident: $first:literal => $one:ident $(, $word:literal => $value:ident)*; $last:literal => $end:ident) => {
        impl SettingWord for $type {
            const EXPECTED: &'static str =
                concat!("`", $first, "`" $(, ", `", $word, "`")*, " or `", $last, "`");
            const SHAPE: ValueShape = ValueShape::Choice(|| vec![$first, $($word,)* $last]);

            fn parse(text: &str) -> Result<Self, Wrong> {
                match text {
                    $first => Ok(Self::$one),
                    $($word => Ok(Self::$value),)*
                    $last => Ok(Self::$end),
                    other => {
                        let meant = near(other, [$first, $($word,)* $last]);
                        Err(Wrong {
                            message: Self::expected(),
                            hint: meant.map(|meant| format!("did you mean `{meant}`?")),
                        })
                    }
                }
            }

            fn write(&self) -> Yaml {
                // Spelt out by the compiler: a new value must get a word.
                let word = match self {
                    Self::$one => $first,
                    $(Self::$value => $word,)*
                    Self::$end => $last,
                };
                Yaml::Plain(word.to_owned())
            }

            fn blank() -> Self {
                Self::$one
            }
        }
    };
}

choice!(Format: "auto" => Auto, "text" => Text; "json" => Json);
choice!(Tier: "primary" => Primary, "fallback" => Fallback; "public" => Public);
choice!(Mode: "on" => On, "ephemeral" => Ephemeral; "off" => Off);
choice!(CheckKind: "chain_id" => ChainId, "head" => Head, "syncing" => Syncing, "peers" => Peers;
    "version" => Version);
choice!(ByHashMode: "auto" => Auto, "on" => On; "off" => Off);
choice!(Level: "off" => Off, "cheap" => Cheap; "full" => Full);
choice!(HttpVersion: "auto" => Auto, "1.1" => H1; "2" => H2);
choice!(Otherwise: "error" => Fail; "most" => MostSaid);
choice!(ClientVersion: "own" => Own; "upstream" => Upstream);
choice!(Balance: "cost" => Cost; "rendezvous" => Rendezvous);
choice!(TierScope: "best" => Best; "all" => All);
choice!(ProxyMode: "off" => Off, "accept" => Accept; "require" => Require);
choice!(AdminRole: "view" => View, "operate" => Operate; "keys" => Keys);
choice!(CallsOver: "http" => Http; "websocket" => WebSocket);

choice!(ParentMode: "ignore" => Ignore, "continue" => Continue; "follow" => Follow);
choice!(UsageFormat: "csv" => Csv; "jsonl" => Jsonl);
choice!(AnonymousRule: "allow" => Allow; "deny" => Deny);
choice!(WhenAway: "share" => Share, "open" => Open; "closed" => Closed);
choice!(SharedProbes: "one" => One; "each" => Each);
choice!(KeyPlace: "path" => Path, "x-api-key" => ApiKey, "bearer" => Bearer, "basic" => Basic, "subprotocol" => Subprotocol;
    "query" => Query);

choice!(ReloadTrigger: "auto" => Auto, "signal" => Signal; "off" => Off);

/// When the config is read again while wellhead runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadTrigger {
    /// When a file has changed, on a signal and on request.
    Auto,
    /// On a signal and on request.
    Signal,
    /// Never.
    Off,
}

/// Where a client may put its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPlace {
    /// In the path.
    Path,
    /// In the header `x-api-key`.
    ApiKey,
    /// As Bearer.
    Bearer,
    /// As the password of Basic.
    Basic,
    /// Among the subprotocols of WebSocket.
    Subprotocol,
    /// In the query.
    Query,
}

/// Which replica asks an upstream on its own behalf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedProbes {
    /// One, which tells the others.
    One,
    /// Each for itself.
    Each,
}

/// How files of usage are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageFormat {
    /// `usage-2026-11-25.csv`.
    Csv,
    /// `usage-2026-11-25.jsonl`.
    Jsonl,
}

impl SettingWord for KeyId {
    const EXPECTED: &'static str = "the id of a key";
    const SHAPE: ValueShape = ValueShape::word("key id", "[0-9a-hjkmnp-tv-z]{8}");

    fn parse(text: &str) -> Result<Self, Wrong> {
        text.parse().map_err(|_| {
            let hint = "it has 8 characters, and stands behind the second `_` of a key";
            Wrong::hinted(Self::expected(), hint)
        })
    }

    fn write(&self) -> Yaml {
        Yaml::Text(self.to_string())
    }

    fn blank() -> Self {
        "00000000".parse().expect("a good id")
    }
}

impl SettingWord for EffectClass {
    const EXPECTED: &'static str = "`read`, `subscribe`, `broadcast`, `write` or `admin`";
    const SHAPE: ValueShape = ValueShape::Choice(|| Self::ALL.map(Self::word).to_vec());

    fn parse(text: &str) -> Result<Self, Wrong> {
        Self::from_word(text).ok_or_else(|| Wrong::new(Self::expected()))
    }

    fn write(&self) -> Yaml {
        Yaml::Plain(self.word().to_owned())
    }

    fn blank() -> Self {
        Self::Read
    }
}

impl SettingWord for ChainId {
    const EXPECTED: &'static str = "a chain id such as `1` or `0x1`";
    const SHAPE: ValueShape = ValueShape::word("chain id", "[0-9]+|0x[0-9a-fA-F]+");

    fn parse(text: &str) -> Result<Self, Wrong> {
        match text.parse() {
            Ok(Self(0)) => Err(Wrong::new("a chain id is at least 1")),
            Ok(id) => Ok(id),
            Err(_) => Err(Wrong::new(Self::expected())),
        }
    }

    fn write(&self) -> Yaml {
        Yaml::Plain(self.to_string())
    }

    fn blank() -> Self {
        Self(0)
    }
}

impl SettingWord for MethodGlob {
    const EXPECTED: &'static str = "a method name such as `eth_call` or `debug_*`";
    const SHAPE: ValueShape = ValueShape::word("method", r"[A-Za-z0-9_./*-]+");

    fn parse(text: &str) -> Result<Self, Wrong> {
        text.parse().map_err(|_| {
            let hint = "`*` matches any characters; there is no `?`, `[...]` or `{...}`";
            Wrong::hinted(Self::expected(), hint)
        })
    }

    fn write(&self) -> Yaml {
        Yaml::Text(self.to_string())
    }

    fn blank() -> Self {
        "*".parse().expect("a star is a good pattern")
    }
}

impl SettingWord for SecretUrl {
    const EXPECTED: &'static str = "a URL such as `http://geth:8545`";
    const HIDE: Option<Hide> = Some(Hide::Url);
    const SHAPE: ValueShape = ValueShape::word("URL", "[a-z]+://.+");

    fn parse(text: &str) -> Result<Self, Wrong> {
        Self::parse(text).map_err(|bad| match bad {
            BadUrl::NoScheme => {
                Wrong::hinted("the URL has no scheme", "begin it with `http://` or `https://`")
            }
            BadUrl::NoHost => Wrong::new("the URL has no host"),
            BadUrl::Blank => Wrong::hinted(
                "the URL holds a line break, another control character or a blank",
                "did one slip in at the end of a variable? in a path or query a blank is `%20`",
            ),
            BadUrl::NotAUrl => Wrong::new(Self::expected()),
        })
    }

    fn write(&self) -> Yaml {
        Yaml::Text(self.to_string().replace('…', "***"))
    }

    fn blank() -> Self {
        Self::parse("http://blank.invalid").expect("a good URL")
    }
}

impl SettingWord for Secret {
    const EXPECTED: &'static str = "a text";
    const HIDE: Option<Hide> = Some(Hide::Whole);
    const SHAPE: ValueShape = ValueShape::Text { name: "secret text", pattern: None };

    fn parse(text: &str) -> Result<Self, Wrong> {
        text_like(text)?;
        Ok(Self::new(text))
    }

    fn write(&self) -> Yaml {
        Yaml::Text(self.to_string())
    }

    fn blank() -> Self {
        Self::new("")
    }
}

/// A text that is part of an HTTP header in the end.
fn text_like(text: &str) -> Result<(), Wrong> {
    if text.is_empty() {
        return Err(Wrong::new("the text is empty"));
    }
    if text.len() > TEXT_LEN_MAX {
        return Err(Wrong::new(format!("the text is longer than {} KiB", TEXT_LEN_MAX >> 10)));
    }
    if text.chars().any(char::is_control) {
        let hint = "did a line break slip in at its end?";
        return Err(Wrong::hinted("the text holds a control character", hint));
    }
    Ok(())
}

names! {
    /// A text of one line.
    TextLine, "a" "text", text_like
}

impl SettingWord for PathBuf {
    const EXPECTED: &'static str = "the path of a file";
    const SHAPE: ValueShape = ValueShape::Text { name: "path", pattern: None };

    fn parse(text: &str) -> Result<Self, Wrong> {
        if text.contains("-----BEGIN") {
            let hint = "write it to a file and name that here";
            return Err(Wrong::hinted("this is the content of such a file, not its path", hint));
        }
        text_like(text).map(|()| Self::from(text))
    }

    fn write(&self) -> Yaml {
        Yaml::Text(self.display().to_string())
    }

    fn blank() -> Self {
        Self::new()
    }
}

/// The path of a file with a private key. Shown like any path once it is known to be one;
/// excerpts hide it, because the key itself may stand there by mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile(pub PathBuf);

impl SettingWord for KeyFile {
    const EXPECTED: &'static str = PathBuf::EXPECTED;
    const HIDE: Option<Hide> = Some(Hide::Whole);
    const SHAPE: ValueShape = PathBuf::SHAPE;

    fn parse(text: &str) -> Result<Self, Wrong> {
        <PathBuf as SettingWord>::parse(text).map(Self)
    }

    fn write(&self) -> Yaml {
        SettingWord::write(&self.0)
    }

    fn blank() -> Self {
        Self(PathBuf::new())
    }
}

#[cfg(test)]
mod tests {
    use super::super::name::{ChainName, HeaderName, Origin};
    use super::super::network::Network;
    use super::*;
    use wellhead_server::ClientName;

    /// What is read, written again; or the message and hint.
    fn check<T: SettingWord>(text: &str, written: &str) {
        let found = match T::parse(text) {
            Ok(value) => value.write().inline(),
            Err(Wrong { message, hint: None }) => message,
            Err(Wrong { message, hint: Some(hint) }) => format!("{message} | {hint}"),
        };
        assert_eq!(found, written, "{text}");
    }

    #[test]
    fn flags() {
        check::<bool>("true", "true");
        check::<bool>("yes", "expected `true` or `false` | write `true`");
        check::<bool>("1", "expected `true` or `false`");
    }

    #[test]
    fn addresses() {
        const EXPECTED: &str = "expected an address with a port such as `127.0.0.1:4545`";
        check::<SocketAddr>("0.0.0.0:80", "0.0.0.0:80");
        check::<SocketAddr>("[::1]:80", "\"[::1]:80\"");
        for (text, hint) in [
            ("80", "write `127.0.0.1:80`, or `0.0.0.0:80` to be reached from other machines"),
            (":80", "write `0.0.0.0:80` for every address of this machine"),
            ("localhost:80", "write `127.0.0.1:80`"),
            ("127.0.0.1", "add `:` and a port"),
            ("127.0.0.1:99999", "a port is a number up to 65535"),
            ("host:80", "write an IP address, not a name; IPv6 as `[::1]:4545`"),
        ] {
            check::<SocketAddr>(text, &format!("{EXPECTED} | {hint}"));
        }
        check::<Admin>("off", "off");
        check::<Admin>("127.0.0.1:1", "127.0.0.1:1");
        check::<Admin>("unix:/run/a.sock", "unix:/run/a.sock");
        check::<Admin>(
            "unix:a.sock",
            "the path of the socket does not begin with `/` | write the whole path: `unix:/run/wellhead/admin.sock`",
        );
        check::<Admin>(
            "none",
            "expected an address with a port such as `127.0.0.1:4546`, `unix:/path`, or `off` | write `off`",
        );
    }

    #[test]
    fn modes_of_files() {
        check::<FileMode>("0660", "0660");
        check::<FileMode>("600", "0600");
        check::<FileMode>("0060", "the owner could not connect | begin it with `06`");
        for text in ["660u", "0680", "066", "rw", "-660", "00660", "+66"] {
            check::<FileMode>(text, "expected a mode such as `0660`: owner, group, others");
        }
    }

    #[test]
    fn hashes_are_not_shown_and_tokens_are_none() {
        check::<KeyHash>(&"ab".repeat(32), "\"***\"");
        let hint = "the token or key itself does not belong here: `wellhead token` makes one for `admin`, \
             and `wellhead key create` one for a client, each with its hash";
        let expected =
            "expected a hash as `wellhead token` or `wellhead key create` prints it: 64 hex digits";
        check::<KeyHash>("wh_admin_ab12", &format!("{expected} | {hint}"));
    }

    #[test]
    fn networks_and_names_of_certificates() {
        check::<Network>("10.0.0.0/8", "\"10.0.0.0/8\"");
        check::<Network>("::1", "\"::1\"");
        let expected = "expected a network such as `10.0.0.0/8`, or an address";
        let hint = "there is more in the address than its prefix: for the whole network write `10.0.0.0/8`";
        check::<Network>("10.0.0.1/8", &format!("{expected} | {hint}"));
        check::<ClientName>("uri:spiffe://a/b", "uri:spiffe://a/b");
        check::<ClientName>("cn:Ops 7", "\"cn:Ops 7\"");
        for text in ["ops", "cn:", "mail:a@b", ":x"] {
            let expected = format!("expected {}", <ClientName as SettingWord>::EXPECTED);
            check::<ClientName>(text, &expected);
        }
    }

    #[test]
    fn choices_and_names() {
        check::<Tier>("fallback", "fallback");
        check::<Tier>(
            "falback",
            "expected `primary`, `fallback` or `public` | did you mean `fallback`?",
        );
        check::<HttpVersion>("1.1", "1.1");
        check::<HttpVersion>("3", "expected `auto`, `1.1` or `2`");
        check::<CallsOver>("websocket", "websocket");
        check::<TierScope>("best", "best");
        check::<TierScope>("al", "expected `best` or `all` | did you mean `all`?");
        check::<CallsOver>("ws", "expected `http` or `websocket`");
        check::<ChainId>("0xa", "10");
        check::<ChainId>("0", "a chain id is at least 1");
        check::<ChainName>(
            "Base",
            "a chain name is lower case | write `base`: it is part of the URL",
        );
        check::<HeaderName>("Host", "the header `Host` is set by wellhead itself");
        check::<LogFilter>("info,wellhead_net=debug", "\"info,wellhead_net=debug\"");
        check::<Origin>("https://a.example", "https://a.example");
    }

    #[test]
    fn secrets_are_not_written() {
        check::<SecretUrl>("https://h/KEY?k=KEY", "\"https://h/***\"");
        check::<SecretUrl>("http://h:8545", "http://h:8545");
        check::<Secret>("KEY", "\"***\"");
        check::<Secret>(
            "a\nb",
            "the text holds a control character | did a line break slip in at its end?",
        );
    }
}
