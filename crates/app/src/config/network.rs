//! Networks and names of certificates, as settings write them.

use wellhead_access::{NetworkSet, parse_network};
use wellhead_server::ClientName;

use super::name::names;
use super::problem::Wrong;
use super::read::SettingWord;
use super::rule::ValueShape;
use super::write::Yaml;

names! {
    /// A network, or an address, which is a network of one. As it was written: that it is one was checked.
    Network = "a network such as `10.0.0.0/8`, or an address", "network", "[0-9a-fA-F:.]+(/[0-9]+)?", |text| {
        let read = parse_network(text).map(drop);
        read.map_err(|wrong| Wrong::hinted(Self::expected(), wrong.to_string()))
    }
}

impl Network {
    /// A set of these; or in words what is wrong with them together.
    pub(crate) fn set(networks: &[Self]) -> Result<NetworkSet<()>, Vec<String>> {
        let read = |Self(text): &Self| parse_network(text).ok().map(|network| (network, ()));
        NetworkSet::new(networks.iter().filter_map(read))
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
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
        named.ok_or_else(|| Wrong::new(Self::expected()))
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
