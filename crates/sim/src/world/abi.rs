//! The few corners of Solidity's ABI that the world's contracts speak.

use alloy_primitives::{Address, B256, U256, b256};

/// `Transfer(address,address,uint256)`.
pub const TRANSFER: B256 =
    b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");
/// `Approval(address,address,uint256)`.
pub const APPROVAL: B256 =
    b256!("8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925");
/// `Swap(address,uint256,uint256,uint256,uint256,address)`.
pub const SWAP: B256 = b256!("d78ad95fa46c994b6551d0da85fc275fe613ce37657fb8d5e3d130840159d822");
/// `Sync(uint112,uint112)`.
pub const SYNC: B256 = b256!("1c411e9a96e071241c2f21f7726b17ae89e3cab4c78be50e062b03a9fffbbad1");

/// The first four bytes of calldata, by function.
pub mod selector {
    /// `name()`.
    pub const NAME: [u8; 4] = [0x06, 0xfd, 0xde, 0x03];
    /// `symbol()`.
    pub const SYMBOL: [u8; 4] = [0x95, 0xd8, 0x9b, 0x41];
    /// `decimals()`.
    pub const DECIMALS: [u8; 4] = [0x31, 0x3c, 0xe5, 0x67];
    /// `totalSupply()`.
    pub const TOTAL_SUPPLY: [u8; 4] = [0x18, 0x16, 0x0d, 0xdd];
    /// `balanceOf(address)`.
    pub const BALANCE_OF: [u8; 4] = [0x70, 0xa0, 0x82, 0x31];
    /// `allowance(address,address)`.
    pub const ALLOWANCE: [u8; 4] = [0xdd, 0x62, 0xed, 0x3e];
    /// `transfer(address,uint256)`.
    pub const TRANSFER: [u8; 4] = [0xa9, 0x05, 0x9c, 0xbb];
    /// `approve(address,uint256)`.
    pub const APPROVE: [u8; 4] = [0x09, 0x5e, 0xa7, 0xb3];
    /// `getReserves()`.
    pub const GET_RESERVES: [u8; 4] = [0x09, 0x02, 0xf1, 0xac];
    /// `token0()`.
    pub const TOKEN0: [u8; 4] = [0x0d, 0xfe, 0x16, 0x81];
    /// `token1()`.
    pub const TOKEN1: [u8; 4] = [0xd2, 0x12, 0x20, 0xa7];
    /// `swap(uint256,bool)`: of this world's pair alone.
    pub const SWAP: [u8; 4] = [0x2a, 0xea, 0x66, 0x05];
    /// `submitBatch(uint256)`: of this world's rollup inbox alone.
    pub const SUBMIT_BATCH: [u8; 4] = [0x94, 0xbc, 0xd8, 0xc9];
    /// `Error(string)`: how Solidity says why it reverted.
    pub const ERROR: [u8; 4] = [0x08, 0xc3, 0x79, 0xa0];
}

/// An address as a 32-byte word.
pub fn address_word(address: Address) -> B256 {
    address.into_word()
}

/// A number as a 32-byte word.
pub fn word(value: U256) -> B256 {
    B256::from(value)
}

/// Calldata: selector and static words.
pub fn call(selector: [u8; 4], words: &[B256]) -> Vec<u8> {
    let mut out = selector.to_vec();
    for word in words {
        out.extend_from_slice(word.as_slice());
    }
    out
}

/// The argument word at `index`; `None` when the calldata is too short.
pub fn argument(input: &[u8], index: usize) -> Option<B256> {
    let start = 4 + 32 * index;
    input.get(start..start + 32).map(B256::from_slice)
}

/// The argument at `index` as a number.
pub fn argument_number(input: &[u8], index: usize) -> Option<U256> {
    argument(input, index).map(|word| U256::from_be_bytes(word.0))
}

/// The argument at `index` as an address.
pub fn argument_address(input: &[u8], index: usize) -> Option<Address> {
    argument(input, index).map(Address::from_word)
}

/// A string as a return value.
pub fn string(text: &str) -> Vec<u8> {
    let mut out = word(U256::from(32)).to_vec();
    out.extend_from_slice(word(U256::from(text.len())).as_slice());
    out.extend_from_slice(text.as_bytes());
    out.resize(out.len().next_multiple_of(32), 0);
    out
}

/// `Error(string)` as revert data.
pub fn revert_reason(text: &str) -> Vec<u8> {
    let mut out = selector::ERROR.to_vec();
    out.extend(string(text));
    out
}

/// The text of `Error(string)` revert data.
pub fn reason_of(output: &[u8]) -> Option<String> {
    let rest = output.strip_prefix(&selector::ERROR)?;
    let length = usize::try_from(U256::from_be_slice(rest.get(32..64)?)).ok()?;
    let text = rest.get(64..64usize.checked_add(length)?)?;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::keccak256;

    #[test]
    fn topics_are_the_hashes_of_their_signatures() {
        let check = |topic: B256, signature: &str| assert_eq!(topic, keccak256(signature));
        check(TRANSFER, "Transfer(address,address,uint256)");
        check(APPROVAL, "Approval(address,address,uint256)");
        check(SWAP, "Swap(address,uint256,uint256,uint256,uint256,address)");
        check(SYNC, "Sync(uint112,uint112)");
    }

    #[test]
    fn selectors_are_the_heads_of_their_hashes() {
        let check = |selector: [u8; 4], signature: &str| {
            assert_eq!(selector, keccak256(signature)[..4], "{signature}");
        };
        check(selector::NAME, "name()");
        check(selector::SYMBOL, "symbol()");
        check(selector::DECIMALS, "decimals()");
        check(selector::TOTAL_SUPPLY, "totalSupply()");
        check(selector::BALANCE_OF, "balanceOf(address)");
        check(selector::ALLOWANCE, "allowance(address,address)");
        check(selector::TRANSFER, "transfer(address,uint256)");
        check(selector::APPROVE, "approve(address,uint256)");
        check(selector::GET_RESERVES, "getReserves()");
        check(selector::TOKEN0, "token0()");
        check(selector::TOKEN1, "token1()");
        check(selector::SWAP, "swap(uint256,bool)");
        check(selector::SUBMIT_BATCH, "submitBatch(uint256)");
        check(selector::ERROR, "Error(string)");
    }

    #[test]
    fn a_reason_comes_back_from_its_data() {
        for text in ["", "short", "a reason that is longer than one word of thirty-two bytes"] {
            assert_eq!(reason_of(&revert_reason(text)).as_deref(), Some(text));
        }
        assert_eq!(reason_of(&[]), None);
        assert_eq!(reason_of(&revert_reason("cut")[..40]), None);
    }
}
