//! Which contracts a call names, for rights that are limited to some.
//!
//! Errs on the side of not knowing: a call is limited by the contracts that it names only if nothing
//! else in it could run or read another one. Methods that run code or search, and whose params are not
//! read here, name unknown contracts; so do methods that are not in the table.
//!
//! What a contract calls in its turn is not looked at, and neither is whose balance or nonce is read:
//! those are of accounts. Blocks, transactions and receipts are whole, and transactions that are sent
//! go where they go.

use wellhead_jsonrpc::raw;

use crate::hex;
use crate::log_pattern::{AddressBytes, LogPattern, LogPatternBounds};
use crate::member::find_members;
use crate::method::{CostClass, Effect, MethodRow};
use crate::param::{self, NotPositional};

/// Why the contracts of a call cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnnamedContracts {
    /// It asks for logs of any address.
    Any,
    /// It runs code that comes with it: a call without `to`, one with overrides of the state, or with
    /// authorizations that put code in accounts.
    OwnCode,
    /// Its params cannot be read in exactly one way.
    Unreadable,
    /// It is a method that may touch any contract, or one that is not known.
    Method,
}

impl MethodRow {
    /// The contracts that a call with these parameters (raw JSON) names; empty for a method that touches
    /// none. At most 1000: more in one filter are [`UnnamedContracts::Unreadable`].
    pub fn named_contracts(
        &self,
        params: Option<&[u8]>,
    ) -> Result<Vec<AddressBytes>, UnnamedContracts> {
        match self.name {
            // Block, then overrides of the state and of the block.
            "eth_call"
            | "eth_estimateGas"
            | "eth_createAccessList"
            | "eth_callDetailed"
            | "linea_estimateGas" => {
                called(argument(params, 0)?, &[argument(params, 2)?, argument(params, 3)?])
            }
            // Kinds of traces, then the block.
            "trace_call" | "arbtrace_call" => {
                called(argument(params, 0)?, &[argument(params, 3)?, argument(params, 4)?])
            }
            "eth_getCode" | "eth_getStorageAt" | "eth_getProof" | "linea_getProof"
            | "zks_getProof" => Ok(vec![address(argument(params, 0)?)?]),
            "eth_getLogs" | "eth_newFilter" | "erigon_getLogs" | "erigon_getLatestLogs" => {
                searched(argument(params, 0)?)
            }
            "eth_subscribe" => match argument(params, 0)?.and_then(raw::string).as_deref() {
                Some("logs" | "pendingLogs" | "monadLogs") => searched(argument(params, 1)?),
                Some("newHeads" | "monadNewHeads" | "newPendingTransactions" | "syncing") => {
                    Ok(Vec::new())
                }
                Some(_) => Err(UnnamedContracts::Method),
                None => Err(UnnamedContracts::Unreadable),
            },
            _ => self.touches_no_contract().then(Vec::new).ok_or(UnnamedContracts::Method),
        }
    }

    /// Whether no call of the method runs, reads or searches a contract that its client chose.
    fn touches_no_contract(&self) -> bool {
        match self.effect {
            // A filter was judged when it was made.
            Effect::Sticky | Effect::Filter | Effect::Local => return true,
            Effect::Subscribe => return self.name.contains("unsubscribe"),
            Effect::Read | Effect::Broadcast | Effect::Write => {}
        }
        if matches!(self.name, "eth_getBalance" | "eth_getTransactionCount") {
            return true;
        }
        match self.class {
            CostClass::Light | CostClass::Block | CostClass::Write => !self.is_unknown(),
            CostClass::State | CostClass::Call | CostClass::Logs | CostClass::Trace => false,
        }
    }
}

/// One positional parameter; `None` when it is absent or `null`.
fn argument(params: Option<&[u8]>, index: u8) -> Result<Option<&[u8]>, UnnamedContracts> {
    param::argument(params, index).map_err(|NotPositional| UnnamedContracts::Unreadable)
}

/// What a call object runs. `extras` are params that could bring code along.
fn called(
    call: Option<&[u8]>,
    extras: &[Option<&[u8]>],
) -> Result<Vec<AddressBytes>, UnnamedContracts> {
    let call = call.ok_or(UnnamedContracts::Unreadable)?;
    let found = find_members(call, ["to", "authorizationList"]);
    let found = found.map_err(|_| UnnamedContracts::Unreadable)?;
    let [to, authorizations] = found.map(param::not_null);
    if to.is_none() || authorizations.is_some() || extras.iter().any(Option::is_some) {
        return Err(UnnamedContracts::OwnCode);
    }
    Ok(vec![address(to)?])
}

fn searched(filter: Option<&[u8]>) -> Result<Vec<AddressBytes>, UnnamedContracts> {
    let filter = filter.ok_or(UnnamedContracts::Any)?;
    let pattern = LogPattern::read(filter, LogPatternBounds::OF_GETH);
    let pattern = pattern.map_err(|_| UnnamedContracts::Unreadable)?;
    match pattern.addresses() {
        [] => Err(UnnamedContracts::Any),
        addresses => Ok(addresses.to_vec()),
    }
}

fn address(value: Option<&[u8]>) -> Result<AddressBytes, UnnamedContracts> {
    let text = value.and_then(raw::string).ok_or(UnnamedContracts::Unreadable)?;
    hex::decode_array(&text).map_err(|_| UnnamedContracts::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::UnnamedContracts::{Any, Method, OwnCode, Unreadable};
    use super::*;
    use crate::table::MethodTable;

    fn contract(byte: u8) -> String {
        format!("0x{}", format!("{byte:02x}").repeat(20))
    }

    /// `'` stands for `"`, and `a` and `b` alone for addresses.
    #[track_caller]
    fn check(method: &str, params: &str, want: Result<&str, UnnamedContracts>) {
        let json = params.replace("'a'", &format!("'{}'", contract(0xaa)));
        let json = json.replace("'b'", &format!("'{}'", contract(0xbb))).replace('\'', "\"");
        let row = MethodTable::standard().row(method);
        let got = row.named_contracts((!json.is_empty()).then_some(json.as_bytes()));
        let got = got.map(|found| {
            let letter = |address: &AddressBytes| if address[0] == 0xaa { 'a' } else { 'b' };
            found.iter().map(letter).collect::<String>()
        });
        assert_eq!(got, want.map(str::to_owned), "{method} {params}");
    }

    #[test]
    fn a_call_names_what_it_calls() {
        for method in ["eth_call", "eth_estimateGas", "eth_createAccessList"] {
            check(method, "[{'to':'a','from':'b','data':'0x'},'latest']", Ok("a"));
            check(method, "[ {'to' : 'a'} , 'latest' , null ]", Ok("a"));
            check(method, "[{'data':'0x60'},'latest']", Err(OwnCode));
            check(method, "[{'to':null,'data':'0x60'}]", Err(OwnCode));
            check(method, "[{'to':'a'},'latest',{'a':{'code':'0x60'}}]", Err(OwnCode));
            check(method, "[{'to':'a'},'latest',{}]", Err(OwnCode));
            check(method, "[{'to':'a'},'latest',null,{}]", Err(OwnCode));
            check(method, "[{'to':'a','authorizationList':[{}]}]", Err(OwnCode));
            check(method, "[{'to':'a','to':'b'}]", Err(Unreadable));
            check(method, "[{'to':'a','TO':'b'}]", Err(Unreadable));
            check(method, "[{'to':'a','\\u0074o':'b'}]", Err(Unreadable));
            check(method, "[{'to':'0x12'}]", Err(Unreadable));
            check(method, "[{'to':'name.eth'}]", Err(Unreadable));
            check(method, "[{'to':['a']}]", Err(Unreadable));
            check(method, "['a']", Err(Unreadable));
            check(method, "[]", Err(Unreadable));
            check(method, "", Err(Unreadable));
            check(method, "{'to':'a'}", Err(Unreadable));
        }
        check("trace_call", "[{'to':'a'},['trace'],'latest']", Ok("a"));
        check("trace_call", "[{},['trace'],'latest']", Err(OwnCode));
    }

    #[test]
    fn a_search_names_its_addresses() {
        for method in ["eth_getLogs", "eth_newFilter"] {
            check(method, "[{'address':'a'}]", Ok("a"));
            check(method, "[{'fromBlock':'0x1','address':['b','a','b']}]", Ok("ab"));
            check(method, "[{'address':[]}]", Err(Any));
            check(method, "[{'address':null}]", Err(Any));
            check(method, "[{'topics':[]}]", Err(Any));
            check(method, "[null]", Err(Any));
            check(method, "[]", Err(Any));
            check(method, "[{'address':'a','Address':'b'}]", Err(Unreadable));
            check(method, "[{'address':['a',1]}]", Err(Unreadable));
            check(method, "[['a']]", Err(Unreadable));
        }
        check("eth_subscribe", "['logs',{'address':'a'}]", Ok("a"));
        check("eth_subscribe", "['logs']", Err(Any));
        check("eth_subscribe", "['monadLogs',{'address':'a'}]", Ok("a"));
        check("eth_subscribe", "['newHeads']", Ok(""));
        check("eth_subscribe", "['somethingNew']", Err(Method));
        check("eth_subscribe", "[]", Err(Unreadable));
        check("eth_unsubscribe", "['0x1']", Ok(""));
    }

    #[test]
    fn reads_of_a_contract_name_it() {
        for method in ["eth_getCode", "eth_getStorageAt", "eth_getProof"] {
            check(method, "['a','0x0','latest']", Ok("a"));
            check(method, "[]", Err(Unreadable));
            check(method, "[1]", Err(Unreadable));
        }
    }

    #[test]
    fn what_touches_no_contract_names_none() {
        for method in [
            "eth_blockNumber",
            "eth_chainId",
            "eth_gasPrice",
            "eth_getBalance",
            "eth_getTransactionCount",
            "eth_getBlockByNumber",
            "eth_getTransactionReceipt",
            "eth_sendRawTransaction",
            "eth_getFilterChanges",
        ] {
            check(method, "['a']", Ok(""));
        }
    }

    #[test]
    fn what_is_not_understood_may_touch_any() {
        for method in [
            "no_such_method",
            "ETH_call",
            "eth_callMany",
            "eth_simulateV1",
            "debug_traceCall",
            "debug_traceTransaction",
            "trace_filter",
            "alchemy_getAssetTransfers",
            "debug_subscribe",
            "parity_subscribe",
        ] {
            check(method, "[{'to':'a','address':'a'}]", Err(Method));
        }
    }

    #[test]
    fn every_method_that_runs_code_is_read_or_refused() {
        for row in MethodTable::standard().rows() {
            let is_heavy =
                matches!(row.class, CostClass::Call | CostClass::Trace | CostClass::Logs);
            let named = row.named_contracts(Some(b"[]"));
            assert!(!is_heavy || named.is_err() || row.effect == Effect::Sticky, "{}", row.name);
        }
    }
}
