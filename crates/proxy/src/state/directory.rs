//! Finding a chain by what a client calls it.

use std::collections::HashMap;
use std::sync::Arc;

use wellhead_eth::ChainId;

use crate::answer::NoSuchChain;
use crate::state::chain::ServedChain;

/// The place of a chain in the proxy's list, and of its upstreams in a worker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainIndex(pub(crate) usize);

/// Finds chains by name, alias or id.
#[derive(Debug)]
pub(crate) struct Directory {
    by_name: HashMap<String, ChainIndex>,
}

impl Directory {
    pub(crate) fn new(chains: &[Arc<ServedChain>]) -> Self {
        let mut by_name = HashMap::new();
        for (index, chain) in chains.iter().enumerate() {
            let names = chain.name.aliases.iter().cloned().chain([chain.name.name.to_string()]);
            by_name.extend(names.map(|name| (name, ChainIndex(index))));
        }
        Self { by_name }
    }

    /// `None` in the path is the only chain there is. Ids are asked last, since one
    /// may only be found out while running.
    pub(crate) fn find(
        &self,
        chains: &[Arc<ServedChain>],
        named: Option<&str>,
    ) -> Result<ChainIndex, NoSuchChain> {
        let Some(named) = named else {
            return match chains.len() {
                1 => Ok(ChainIndex(0)),
                _ => Err(NoSuchChain::NotNamed),
            };
        };
        if let Some(index) = self.by_name.get(named) {
            return Ok(*index);
        }
        let id = parse_id(named).ok_or(NoSuchChain::Unknown)?;
        let with_id = |chain: &Arc<ServedChain>| chain.pulse.chain_id() == Some(id);
        if let Some(place) = chains.iter().position(with_id) {
            return Ok(ChainIndex(place));
        }
        match chains.iter().all(|chain| chain.pulse.chain_id().is_some()) {
            true => Err(NoSuchChain::Unknown),
            false => Err(NoSuchChain::NotYetKnown),
        }
    }
}

/// A chain id in digits, or in hex after `0x`.
fn parse_id(text: &str) -> Option<ChainId> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16));
    // The library's parser would take a sign too.
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok().map(ChainId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_digits_or_hex() {
        let check = |text, id: Option<u64>| assert_eq!(parse_id(text), id.map(ChainId), "{text}");
        check("1", Some(1));
        check("0x1", Some(1));
        check("0xaA36a7", Some(11_155_111));
        check("11155111", Some(11_155_111));
        for text in ["", "0x", "+1", "-1", "0x+1", "1 ", "a", "1_0", "18446744073709551616"] {
            check(text, None);
        }
    }
}
