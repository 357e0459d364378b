//! Networks and names of certificates, as settings write them.

use wellhead_access::{NetworkSet, parse_network};
use wellhead_server::ClientName;

use super::read::SettingWord;
use super::rule::ValueShape;
use super::unit::Wrong;
use super::write::Yaml;

/// A network, or an address, which is a network of one. As it was written: that it is one was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network(String);

impl Network {
    /// A set of these; or in words what is wrong with them together.
    pub(crate) fn set(networks: &[Self]) -> Result<NetworkSet<()>, Vec<String>> {
        let read = |Self(text): &Self| parse_network(text).ok().map(|network| (network, ()));
        NetworkSet::new(networks.iter().filter_map(read))
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }
}

impl AsRef<str> for Network {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl SettingWord for Network {
    const EXPECTED: &'static str = "a network such as `10.0.0.0/8`, or an address";
    const SHAPE: ValueShape = ValueShape::word("network", "[0-9a-fA-F:.]+(/[0-9]+)?");

    fn parse(text: &str) -> Result<Self, Wrong> {
        match parse_network(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(wrong) => {
                Err(Wrong::hinted(format!("expected {}", Self::EXPECTED), wrong.to_string()))
            }
        }
    }

    fn write(&self) -> Yaml {
        Yaml::Text(self.0.clone())
    }

    fn blank() -> Self {
        Self("192.0.2.0/32".to_owned())
    }
}

impl SettingWord for ClientName {
    const EXPECTED: &'static str =
        "a name with its kind, such as `uri:spiffe://example/ops`, `dns:ops.example` or `cn:ops`";
    const SHAPE: ValueShape = ValueShape::word("name of a certificate", "(uri|dns|cn):.+");

    fn parse(text: &str) -> Result<Self, Wrong> {
        let named = match text.split_once(':') {
            Some((kind, name)) if !name.is_empty() => match kind {
                "uri" => Some(Self::Uri(name.into())),
                "dns" => Some(Self::Dns(name.into())),
                "cn" => Some(Self::Common(name.into())),
                _ => None,
            },
            Some(_) | None => None,
        };
        let is_seen = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        if !is_seen {
            return Err(Wrong::new("names of certificates are read as printable ASCII only"));
        }
        named.ok_or_else(|| Wrong::new(format!("expected {}", Self::EXPECTED)))
    }

    fn write(&self) -> Yaml {
        let kind = match self {
            Self::Uri(_) => "uri",
            Self::Dns(_) => "dns",
            Self::Common(_) => "cn",
        };
        Yaml::Text(format!("{kind}:{}", self.text()))
    }

    fn blank() -> Self {
        Self::Common("".into())
    }
}
