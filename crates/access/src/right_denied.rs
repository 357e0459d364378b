//! What a right denies, in words.

use wellhead_eth::{AddressBytes, UnnamedContracts};

use crate::effect_class::EffectClass;

/// What is denied, and by which right. In the words that a client may read; holds no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RightDenied {
    /// `expires_at`.
    #[error("it has expired")]
    Expired,
    /// `networks`.
    #[error("it may not be used from this address")]
    Network,
    /// `origins`.
    #[error("it may not be used from this web page")]
    Origin,
    /// `chains`.
    #[error("this chain is not allowed for this key")]
    Chain,
    /// `methods`.
    #[error("this method is not allowed for this key")]
    Method,
    /// `effects`.
    #[error("methods of the effect `{}` are not allowed for this key", effect.word())]
    Effect {
        /// What the method does.
        effect: EffectClass,
    },
    /// `contracts`: one that is not in the list.
    #[error("the contract {} is not allowed for this key", wellhead_eth::hex::encode(contract))]
    Contract {
        /// Which.
        contract: AddressBytes,
    },
    /// `contracts`: the call may touch one that is not in the list.
    #[error("this key is limited to some contracts, and {}", in_words(*reason))]
    UnnamedContracts {
        /// How.
        reason: UnnamedContracts,
    },
    /// `select`.
    #[error("upstreams may not be selected by this label with this key")]
    Select,
    /// `logs_range_max`.
    #[error(
        "a search for logs over {blocks} blocks: at most {blocks_max} are allowed for this key"
    )]
    LogsRange {
        /// How many it goes over.
        blocks: u64,
        /// How many it may.
        blocks_max: u64,
    },
    /// `batch_items_max`.
    #[error("a batch of {items} calls: at most {items_max} are allowed for this key")]
    BatchItems {
        /// How many it has.
        items: u64,
        /// How many it may have.
        items_max: u64,
    },
}

impl RightDenied {
    /// The right, as the settings name it.
    pub const fn right(&self) -> &'static str {
        match self {
            Self::Expired => "expires_at",
            Self::Network => "networks",
            Self::Origin => "origins",
            Self::Chain => "chains",
            Self::Method => "methods",
            Self::Effect { .. } => "effects",
            Self::Contract { .. } | Self::UnnamedContracts { .. } => "contracts",
            Self::Select => "select",
            Self::LogsRange { .. } => "logs_range_max",
            Self::BatchItems { .. } => "batch_items_max",
        }
    }
}

fn in_words(reason: UnnamedContracts) -> &'static str {
    match reason {
        UnnamedContracts::Any => "this call names none: name its addresses",
        UnnamedContracts::OwnCode => {
            "this call brings code along: it needs `to`, and no overrides or authorizations"
        }
        UnnamedContracts::Unreadable => "the one of this call cannot be read",
        UnnamedContracts::Method => "this method may touch any",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_reads_well() {
        let say = |denied: RightDenied| denied.to_string();
        assert_eq!(
            say(RightDenied::UnnamedContracts { reason: UnnamedContracts::Any }),
            "this key is limited to some contracts, and this call names none: name its addresses"
        );
        assert_eq!(
            say(RightDenied::Effect { effect: EffectClass::Write }),
            "methods of the effect `write` are not allowed for this key"
        );
        let contract = RightDenied::Contract { contract: [0xbb; 20] };
        assert_eq!(contract.right(), "contracts");
        assert!(say(contract).contains(&format!("0x{}", "bb".repeat(20))));
    }
}
