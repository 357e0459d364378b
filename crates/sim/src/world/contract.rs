//! The contracts of the world: two ERC-20 coins, a pair that swaps them, a
//! rollup inbox that burns gas, and one that always reverts.
//!
//! There is no EVM: each contract is a Rust function over storage words, laid
//! out as Solidity would, so that `eth_getStorageAt` agrees with `eth_call`.
//! Fees, nonces and value transfer are handled in `execute`.

use alloy_primitives::{Address, B256, Bytes, Log, U256, keccak256};

use super::abi::{self, selector};
use super::state::{State, mapping_slot};

/// What the always-reverting contract says.
pub const CLOSED_REASON: &str = "Closed: come back tomorrow";
/// Coins of both kinds that exist, in whole units.
const SUPPLY_UNITS: u64 = 1_000_000_000;
/// Where a coin keeps `balances`, `allowances` and `totalSupply`.
const BALANCES: B256 = B256::ZERO;
const ALLOWANCES: B256 = B256::with_last_byte(1);
const TOTAL_SUPPLY: B256 = B256::with_last_byte(2);
/// Where the rollup inbox counts its batches.
const BATCHES: B256 = B256::ZERO;

/// One ERC-20 coin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coin {
    /// Its contract.
    pub address: Address,
    /// `name()`.
    pub name: &'static str,
    /// `symbol()`.
    pub symbol: &'static str,
    /// `decimals()`.
    pub decimals: u8,
}

impl Coin {
    /// One whole unit in the coin's smallest.
    pub fn unit(&self) -> U256 {
        U256::from(10).pow(U256::from(self.decimals))
    }

    /// The storage word that holds the balance of `owner`.
    pub fn balance_slot(&self, owner: Address) -> B256 {
        mapping_slot(abi::address_word(owner), BALANCES)
    }

    /// The balance of `owner`.
    pub fn balance(&self, state: &State, owner: Address) -> U256 {
        state.slot(self.address, self.balance_slot(owner))
    }

    /// Gives `amount` out of nothing.
    pub(super) fn mint(&self, state: &mut State, owner: Address, amount: U256) {
        let balance = self.balance(state, owner);
        state.set_slot(self.address, self.balance_slot(owner), balance + amount);
        let supply = state.slot(self.address, TOTAL_SUPPLY);
        state.set_slot(self.address, TOTAL_SUPPLY, supply + amount);
    }

    fn allowance_slot(&self, owner: Address, spender: Address) -> B256 {
        let inner = mapping_slot(abi::address_word(owner), ALLOWANCES);
        mapping_slot(abi::address_word(spender), inner)
    }

    fn transfer(
        &self,
        state: &mut State,
        from: Address,
        to: Address,
        amount: U256,
    ) -> Result<Log, Ran> {
        let Some(left) = self.balance(state, from).checked_sub(amount) else {
            return Err(Ran::reverted("ERC20: transfer amount exceeds balance"));
        };
        state.set_slot(self.address, self.balance_slot(from), left);
        let gained = self.balance(state, to) + amount;
        state.set_slot(self.address, self.balance_slot(to), gained);
        let topics = vec![abi::TRANSFER, abi::address_word(from), abi::address_word(to)];
        Ok(Log::new_unchecked(self.address, topics, abi::word(amount).0.into()))
    }

    /// `None`: the input is no call of it.
    fn run(&self, state: &mut State, from: Address, input: &[u8]) -> Option<Ran> {
        let address_at = |index| abi::argument_address(input, index);
        let amount_at = |index| abi::argument_number(input, index);
        let ran = match *input.first_chunk::<4>()? {
            selector::NAME => Ran::view(abi::string(self.name)),
            selector::SYMBOL => Ran::view(abi::string(self.symbol)),
            selector::DECIMALS => Ran::view_number(U256::from(self.decimals)),
            selector::TOTAL_SUPPLY => Ran::view_number(state.slot(self.address, TOTAL_SUPPLY)),
            selector::BALANCE_OF => Ran::view_number(self.balance(state, address_at(0)?)),
            selector::ALLOWANCE => {
                let slot = self.allowance_slot(address_at(0)?, address_at(1)?);
                Ran::view_number(state.slot(self.address, slot))
            }
            selector::TRANSFER => match self.transfer(state, from, address_at(0)?, amount_at(1)?) {
                Ok(log) => Ran::agreed(log, 29_500),
                Err(reverted) => reverted,
            },
            selector::APPROVE => {
                let (spender, amount) = (address_at(0)?, amount_at(1)?);
                state.set_slot(self.address, self.allowance_slot(from, spender), amount);
                let topics =
                    vec![abi::APPROVAL, abi::address_word(from), abi::address_word(spender)];
                let data = abi::word(amount).0.into();
                Ran::agreed(Log::new_unchecked(self.address, topics, data), 24_600)
            }
            _ => return None,
        };
        Some(ran)
    }
}

/// How a contract call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ran {
    /// It returned.
    Done {
        /// Return data.
        output: Vec<u8>,
        /// Logs it left.
        logs: Vec<Log>,
        /// Gas beyond the intrinsic.
        gas: u64,
    },
    /// It reverted.
    Reverted {
        /// Revert data, perhaps empty.
        output: Vec<u8>,
        /// Gas beyond the intrinsic.
        gas: u64,
    },
}

impl Ran {
    fn view(output: Vec<u8>) -> Self {
        Self::Done { output, logs: Vec::new(), gas: 2_600 }
    }

    fn view_number(number: U256) -> Self {
        Self::view(abi::word(number).to_vec())
    }

    /// `true`, and what it logged.
    fn agreed(log: Log, gas: u64) -> Self {
        Self::Done { output: abi::word(U256::ONE).to_vec(), logs: vec![log], gas }
    }

    fn reverted(reason: &str) -> Self {
        Self::Reverted { output: abi::revert_reason(reason), gas: 3_100 }
    }

    fn reverted_silently() -> Self {
        Self::Reverted { output: Vec::new(), gas: 200 }
    }
}

/// Every contract of one world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contracts {
    /// The two ERC-20 coins.
    pub coins: [Coin; 2],
    /// Swaps one coin for the other; answers `getReserves()`, `token0()`, `token1()`.
    pub pair: Address,
    /// Takes batches and burns the gas it is told to.
    pub rollup: Address,
    /// Reverts with [`CLOSED_REASON`] whatever it is asked.
    pub closed: Address,
}

impl Contracts {
    /// Addresses that follow from the world's seed.
    pub fn derive(seed: u64) -> Self {
        let address = |name: &str| {
            let hash = keccak256([&seed.to_be_bytes()[..], name.as_bytes()].concat());
            Address::from_slice(&hash[12..])
        };
        Self {
            coins: [
                Coin { address: address("coin/0"), name: "Artesian", symbol: "ARTS", decimals: 18 },
                Coin {
                    address: address("coin/1"),
                    name: "Bore Dollar",
                    symbol: "BORD",
                    decimals: 6,
                },
            ],
            pair: address("pair"),
            rollup: address("rollup"),
            closed: address("closed"),
        }
    }

    /// Puts code and the coins' supply in place: the pair gets half, `owners` share the rest.
    pub(super) fn deploy(&self, state: &mut State, owners: &[Address]) {
        let all =
            [self.coins[0].address, self.coins[1].address, self.pair, self.rollup, self.closed];
        for address in all {
            let account = state.account_mut(address);
            account.nonce = 1;
            account.code = code_of(address);
        }
        for coin in &self.coins {
            let half = coin.unit() * U256::from(SUPPLY_UNITS / 2);
            coin.mint(state, self.pair, half);
            let share = half / U256::from(owners.len().max(1));
            for owner in owners {
                coin.mint(state, *owner, share);
            }
        }
    }

    /// Runs the contract at `to`; `None` when there is none.
    pub(super) fn run(
        &self,
        state: &mut State,
        from: Address,
        to: Address,
        input: &[u8],
    ) -> Option<Ran> {
        let ran = if let Some(coin) = self.coins.iter().find(|coin| coin.address == to) {
            coin.run(state, from, input)
        } else if to == self.pair {
            self.run_pair(state, from, input)
        } else if to == self.rollup {
            self.run_rollup(state, input)
        } else if to == self.closed {
            Some(Ran::reverted(CLOSED_REASON))
        } else {
            return None;
        };
        Some(ran.unwrap_or_else(Ran::reverted_silently))
    }

    /// `None`: the input is no call of it.
    fn run_pair(&self, state: &mut State, from: Address, input: &[u8]) -> Option<Ran> {
        let ran = match *input.first_chunk::<4>()? {
            selector::TOKEN0 => Ran::view(abi::address_word(self.coins[0].address).to_vec()),
            selector::TOKEN1 => Ran::view(abi::address_word(self.coins[1].address).to_vec()),
            selector::GET_RESERVES => {
                let mut output = Vec::with_capacity(96);
                for coin in &self.coins {
                    output.extend(abi::word(coin.balance(state, self.pair)));
                }
                // The time of the last trade is not kept.
                output.extend(B256::ZERO);
                Ran::view(output)
            }
            selector::SWAP => {
                let amount = abi::argument_number(input, 0)?;
                let first = abi::argument_number(input, 1)?;
                self.swap(state, from, amount, !first.is_zero())
            }
            _ => return None,
        };
        Some(ran)
    }

    /// Constant product with a fee of 0.3 %.
    fn swap(&self, state: &mut State, from: Address, amount: U256, first_in: bool) -> Ran {
        let (paid, bought) = match first_in {
            true => (&self.coins[0], &self.coins[1]),
            false => (&self.coins[1], &self.coins[0]),
        };
        if amount.is_zero() || amount >= U256::ONE << 112 {
            return Ran::reverted("Pair: bad amount");
        }
        let (reserve_in, reserve_out) =
            (paid.balance(state, self.pair), bought.balance(state, self.pair));
        let effective = amount * U256::from(997);
        let out = effective * reserve_out / (reserve_in * U256::from(1000) + effective);
        if out.is_zero() {
            return Ran::reverted("Pair: insufficient output amount");
        }
        let transfers = paid
            .transfer(state, from, self.pair, amount)
            .and_then(|log| Ok([log, bought.transfer(state, self.pair, from, out)?]));
        let [log_in, log_out] = match transfers {
            Ok(logs) => logs,
            Err(reverted) => return reverted,
        };
        let zero = U256::ZERO;
        let amounts = if first_in { [amount, zero, zero, out] } else { [zero, amount, out, zero] };
        let reserves =
            [self.coins[0].balance(state, self.pair), self.coins[1].balance(state, self.pair)];
        let sync = Log::new_unchecked(self.pair, vec![abi::SYNC], words(&reserves));
        let topics = vec![abi::SWAP, abi::address_word(from), abi::address_word(from)];
        let swap = Log::new_unchecked(self.pair, topics, words(&amounts));
        let output = abi::word(out).to_vec();
        Ran::Done { output, logs: vec![log_in, log_out, sync, swap], gas: 88_000 }
    }

    /// `None`: the input is no call of it.
    fn run_rollup(&self, state: &mut State, input: &[u8]) -> Option<Ran> {
        if input.first_chunk::<4>() != Some(&selector::SUBMIT_BATCH) {
            return None;
        }
        let gas = abi::argument_number(input, 0)?;
        let index = state.slot(self.rollup, BATCHES);
        state.set_slot(self.rollup, BATCHES, index + U256::ONE);
        let topics = vec![keccak256("BatchSubmitted(uint256)"), abi::word(index)];
        let log = Log::new_unchecked(self.rollup, topics, Bytes::new());
        let gas = u64::try_from(gas).unwrap_or(u64::MAX / 2).min(u64::MAX / 2);
        Some(Ran::Done { output: Vec::new(), logs: vec![log], gas })
    }
}

fn words(values: &[U256]) -> Bytes {
    values.iter().flat_map(|value| abi::word(*value)).collect::<Vec<u8>>().into()
}

/// Bytes that look like compiled code and differ between contracts.
fn code_of(address: Address) -> Bytes {
    let mut code = vec![0x60, 0x80, 0x60, 0x40, 0x52, 0x34, 0x80, 0x15];
    let mut chunk = keccak256(address);
    for _ in 0..8 {
        code.extend_from_slice(chunk.as_slice());
        chunk = keccak256(chunk);
    }
    code.into()
}
