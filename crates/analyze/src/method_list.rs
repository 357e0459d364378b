//! The methods that `reach` tries: `data/reach.txt`.

use std::sync::OnceLock;

use crate::work::WorkCall;

const TEXT: &str = include_str!("../data/reach.txt");

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Such as `eth`.
    pub namespace: &'static str,
    /// Such as `eth_call`.
    pub name: &'static str,
    /// With places for what the chain has.
    params: &'static str,
}

/// What parameters are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SampleValues {
    pub(crate) block: String,
    pub(crate) hash: String,
    pub(crate) tx: String,
    pub(crate) address: String,
}

impl Listed {
    /// The call.
    pub(crate) fn ask(&self, known: &SampleValues) -> WorkCall {
        let params = self
            .params
            .replace("{block}", &known.block)
            .replace("{hash}", &known.hash)
            .replace("{tx}", &known.tx)
            .replace("{address}", &known.address);
        WorkCall { method: self.name, params }
    }
}

/// All of them, by namespace.
pub fn methods() -> &'static [Listed] {
    static LIST: OnceLock<Vec<Listed>> = OnceLock::new();
    LIST.get_or_init(|| {
        let mut namespace = "";
        let mut list = Vec::new();
        for line in TEXT.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                namespace = heading;
            } else if let Some((name, params)) = line.split_once(' ')
                && !line.starts_with('#')
            {
                list.push(Listed { namespace, name, params: params.trim_start() });
            }
        }
        list
    })
}

#[cfg(test)]
mod tests {
    use wellhead_eth::{Effect, MethodTable};

    use super::*;

    #[test]
    fn each_is_known_can_be_asked_and_changes_nothing() {
        let word = |digits: usize| format!("0x{:0>digits$}", "a");
        let known = SampleValues {
            block: "0x1".to_owned(),
            hash: word(64),
            tx: word(64),
            address: word(40),
        };
        assert!(methods().len() > 60);
        for listed in methods() {
            let row = MethodTable::standard().row(listed.name);
            assert!(!row.is_unknown(), "{} is not in the table of methods", listed.name);
            assert!(listed.name.starts_with(&format!("{}_", listed.namespace)), "{listed:?}");
            let ask = listed.ask(&known);
            let params: serde_json::Value =
                serde_json::from_str(&ask.params).unwrap_or_else(|why| panic!("{ask:?}: {why}"));
            assert!(params.is_array(), "{ask:?}");
            // Bytes that are no transaction are refused by every upstream that would take one.
            let harmless = listed.name == "eth_sendRawTransaction";
            assert!(row.effect != Effect::Write, "{}", listed.name);
            assert!(row.effect != Effect::Broadcast || harmless, "{}", listed.name);
        }
    }
}
