//! What nodes really said, block by block, and whether an answer agrees with it.
//!
//! Blocks are learnt from the nodes themselves whenever one of them was made to move, so
//! every block that ever was is here with all that can be asked about it. Time is a count of
//! events: what was counted lower came earlier. A **storm** begins before the first node
//! leaves a branch and ends when both have left it and the tested program showed the new
//! one and looked at both: from then on the blocks that were left are **buried**, and no answer may be from them.
//! Between storms there is one chain, and each answer is what it says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use wellhead_e2e::Node;

/// Accounts whose balances are watched.
pub(crate) const WATCHED: usize = 3;

/// Blocks that clients ask for by hash, or for their transactions.
const LATELY: usize = 60;

/// A moment, as a count of events.
pub(crate) type Moment = u64;

/// The address of a watched account, which had nothing at the genesis.
pub(crate) fn watched(who: usize) -> String {
    format!("0x{:040x}", 0xaaaa_0000 + who)
}

/// A question to which the ledger knows the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    Height,
    Newest,
    ByNumber(u64),
    ByHash(String),
    Receipt(String),
    Logs { from: u64, to: u64 },
    Balance { who: usize, at: Option<u64> },
}

impl Ask {
    /// The body of the call, always with the same id.
    pub(crate) fn body(&self) -> String {
        let (method, params) = match self {
            Self::Height => ("eth_blockNumber", json!([])),
            Self::Newest => ("eth_getBlockByNumber", json!(["latest", false])),
            Self::ByNumber(number) => ("eth_getBlockByNumber", json!([hex(*number), false])),
            Self::ByHash(hash) => ("eth_getBlockByHash", json!([hash, false])),
            Self::Receipt(hash) => ("eth_getTransactionReceipt", json!([hash])),
            Self::Logs { from, to } => {
                ("eth_getLogs", json!([{ "fromBlock": hex(*from), "toBlock": hex(*to) }]))
            }
            Self::Balance { who, at } => {
                let at = at.map_or_else(|| "latest".to_owned(), hex);
                ("eth_getBalance", json!([watched(*who), at]))
            }
        };
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
    }
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}

pub(crate) fn number(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}

/// A call that was answered with a result.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) ask: Ask,
    pub(crate) sent: Moment,
    pub(crate) got: Moment,
    pub(crate) result: Value,
}

/// A block that was.
#[derive(Debug)]
struct Block {
    number: u64,
    header: Value,
    /// By transaction.
    receipts: BTreeMap<String, Value>,
    logs: Vec<Value>,
    balances: Vec<Value>,
    /// Before it could be known.
    born: Moment,
    /// When it had been shown, and might be asked for.
    published: Option<Moment>,
    buried: Option<Moment>,
}

/// All blocks that were, and when.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Whether a block may be told to a client that names it by its hash when it is buried: it is
    /// that block still, and a program that only polls does not see how deep a reorg went.
    pub(crate) digs_up: bool,
    now: Moment,
    looked: Moment,
    blocks: BTreeMap<String, Block>,
    /// The chains that nodes had, by the hashes of their blocks, the latest last.
    branches: Vec<(Moment, Vec<String>)>,
    /// Beginning and end of each.
    storms: Vec<(Moment, Option<Moment>)>,
    /// Those that might be asked for, in order.
    published: Vec<String>,
    /// Of the newest chain, the highest of those.
    head: u64,
    /// The chain between two storms; one more than there are storms that have ended.
    calms: Vec<Vec<String>>,
}

impl Ledger {
    /// Counts an event.
    pub(crate) fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    /// The chain that a node has now, and the blocks of it that are not known yet.
    pub(crate) async fn read(
        node: &Node,
        (last, known): (Vec<String>, BTreeSet<String>),
    ) -> (Vec<String>, Vec<(String, Facts)>) {
        let rpc = node.rpc();
        let (mut tail, mut facts) = (Vec::new(), Vec::new());
        let mut height = node.head().await.expect("the node answers");
        let same = loop {
            let header = rpc.result("eth_getBlockByNumber", json!([hex(height), false])).await;
            let header = header.expect("the node has its blocks");
            let hash = header["hash"].as_str().expect("a block has a hash").to_owned();
            if last.get(height as usize) == Some(&hash) {
                break height as usize + 1;
            }
            if !known.contains(&hash) {
                let receipts = rpc.result("eth_getBlockReceipts", json!([hex(height)])).await;
                let receipts = receipts.expect("receipts");
                let mut balances = Vec::new();
                for who in 0..WATCHED {
                    let params = json!([watched(who), hex(height)]);
                    balances.push(rpc.result("eth_getBalance", params).await.expect("a balance"));
                }
                facts.push((hash.clone(), Facts { header, receipts, balances }));
            }
            tail.push(hash);
            match height.checked_sub(1) {
                Some(below) => height = below,
                None => break 0,
            }
        };
        let chain = last.into_iter().take(same).chain(tail.into_iter().rev()).collect();
        (chain, facts)
    }

    /// What [`Self::read`] needs.
    pub(crate) fn known(&self) -> (Vec<String>, BTreeSet<String>) {
        (self.chain().to_vec(), self.blocks.keys().cloned().collect())
    }

    /// When it was looked at last, and before this look.
    pub(crate) fn looked(&mut self) -> Moment {
        let now = self.tick();
        std::mem::replace(&mut self.looked, now)
    }

    /// Writes down what [`Self::read`] found.
    pub(crate) fn note(&mut self, born: Moment, chain: Vec<String>, facts: Vec<(String, Facts)>) {
        for (hash, Facts { header, receipts, balances }) in facts {
            let receipts = receipts.as_array().cloned().unwrap_or_default();
            let logs = receipts.iter().filter_map(|it| it["logs"].as_array()).flatten();
            let block = Block {
                number: number(&header["number"]).expect("a block has a number"),
                logs: logs.cloned().collect(),
                receipts: receipts
                    .into_iter()
                    .map(|it| (it["transactionHash"].as_str().unwrap_or_default().to_owned(), it))
                    .collect(),
                header,
                balances,
                born,
                published: None,
                buried: None,
            };
            self.blocks.insert(hash, block);
        }
        match (self.storms.last(), self.calms.last_mut()) {
            // The chain of a storm is that of the calm after it, when it has ended.
            (Some((_, None)), _) => {}
            (_, Some(calm)) => calm.clone_from(&chain),
            (_, None) => self.calms.push(chain.clone()),
        }
        self.branches.push((born, chain));
    }

    /// The newest chain that a node had.
    pub(crate) fn chain(&self) -> &[String] {
        self.branches.last().map_or(&[], |(_, chain)| chain)
    }

    /// The highest block that may be asked for.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// One of the blocks that might be asked for lately, also of those that were left.
    pub(crate) fn some_hash(&self, chance: u64) -> String {
        let lately = &self.published[self.published.len().saturating_sub(LATELY)..];
        lately[chance as usize % lately.len()].clone()
    }

    /// A transaction of [`Self::some_hash`], if it has any.
    pub(crate) fn some_transaction(&self, chance: u64) -> Option<String> {
        let receipts = &self.blocks[&self.some_hash(chance)].receipts;
        receipts.keys().nth((chance >> 16) as usize % receipts.len().max(1)).cloned()
    }

    /// All blocks of the newest chain may be asked for from now on.
    pub(crate) fn publish(&mut self) {
        let now = self.tick();
        for hash in self.chain().to_vec() {
            let block = self.blocks.get_mut(&hash).expect("it was learnt");
            if block.published.is_none() {
                block.published = Some(now);
                self.published.push(hash);
            }
        }
        self.head = self.chain().len() as u64 - 1;
    }

    /// Nodes begin to leave the chain that they have.
    pub(crate) fn begin_storm(&mut self) {
        let now = self.tick();
        self.storms.push((now, None));
    }

    /// Both have the newest chain, and the tested program has shown it.
    pub(crate) fn end_storm(&mut self) {
        let now = self.tick();
        let chain = self.chain().to_vec();
        for (hash, block) in &mut self.blocks {
            if !chain.contains(hash) {
                block.buried.get_or_insert(now);
            }
        }
        self.calms.push(chain);
        self.storms.last_mut().expect("one began").1 = Some(now);
        self.publish();
    }

    /// The chain that all nodes have, for a call that no storm touched.
    fn calm(&self, sent: Moment, got: Moment) -> Option<&[String]> {
        let touched = |(begin, end): &(Moment, Option<Moment>)| {
            *begin <= got && end.is_none_or(|end| end >= sent)
        };
        if self.storms.iter().any(touched) {
            return None;
        }
        let before = self.storms.iter().filter(|(begin, _)| *begin < sent).count();
        self.calms.get(before).map(Vec::as_slice)
    }

    /// The height that the answer gives for the newest block, where it gives one and no storm
    /// touched the call; and how many storms had been.
    pub(crate) fn shown(&self, one: &Answered) -> Option<(u64, usize)> {
        self.calm(one.sent, one.got)?;
        let height = match one.ask {
            Ask::Height => number(&one.result),
            Ask::Newest => number(&one.result["number"]),
            Ask::ByNumber(_) | Ask::ByHash(_) | Ask::Receipt(_) | Ask::Logs { .. } => None,
            Ask::Balance { .. } => None,
        };
        let storms = self.storms.iter().filter(|(begin, _)| *begin < one.sent).count();
        Some((height?, storms))
    }

    /// Why the answer cannot be true, if it cannot.
    pub(crate) fn judge(&self, one: &Answered) -> Result<(), String> {
        let Answered { ask, sent, got, result } = one;
        let calm = self.calm(*sent, *got);
        let stands = |hash: &str, block: &Block| {
            block.born <= *got
                && block.buried.is_none_or(|buried| buried > *sent)
                && calm.is_none_or(|chain| chain.iter().any(|it| it == hash))
        };
        let standing = |hash: &Value| {
            let hash = hash.as_str().ok_or("no hash")?;
            let block = self.blocks.get(hash).ok_or(format!("{hash} never was"))?;
            let told = || format!("{hash} is of another branch, buried at {:?}", block.buried);
            if stands(hash, block) { Ok(block) } else { Err(told()) }
        };
        let is_one = |expected: &Value| {
            if expected == result { Ok(()) } else { Err(format!("it is {expected}")) }
        };
        let may_be_missing = |is_it: &dyn Fn(&str, &Block) -> bool| {
            let there = calm.into_iter().flatten().find(|hash| {
                let block = &self.blocks[*hash];
                is_it(hash, block) && block.published.is_some_and(|moment| moment < *sent)
            });
            there.map_or(Ok(()), |hash| Err(format!("it is in {hash}")))
        };
        match ask {
            Ask::Height => {
                let height = number(result).ok_or("no number")?;
                let is_there = |(hash, block): (&String, &Block)| {
                    block.number == height && stands(hash, block)
                };
                let found = self.blocks.iter().any(is_there);
                if found { Ok(()) } else { Err("no block of that height".to_owned()) }
            }
            Ask::Newest => is_one(&standing(&result["hash"])?.header),
            Ask::ByNumber(height) if result.is_null() => {
                may_be_missing(&|_, block| block.number == *height)
            }
            Ask::ByNumber(height) => {
                let block = standing(&result["hash"])?;
                if block.number != *height {
                    return Err(format!("block {} for {height}", block.number));
                }
                is_one(&block.header)
            }
            Ask::ByHash(hash) if result.is_null() => may_be_missing(&|it, _| it == hash),
            Ask::ByHash(hash) if self.digs_up => {
                is_one(&self.blocks.get(hash).ok_or("it never was")?.header)
            }
            Ask::ByHash(hash) => is_one(&standing(&json!(hash))?.header),
            Ask::Receipt(hash) if result.is_null() => {
                may_be_missing(&|_, block| block.receipts.contains_key(hash))
            }
            Ask::Receipt(hash) => {
                let block = standing(&result["blockHash"])?;
                is_one(block.receipts.get(hash).ok_or("not in that block")?)
            }
            Ask::Logs { from, to } => {
                let logs = result.as_array().ok_or("no list")?;
                let says_so = |chain: &[String]| {
                    let end = chain.len().min(*to as usize + 1);
                    let part = chain[(*from as usize).min(end)..end].iter();
                    let blocks: Vec<_> = part.map(|hash| (hash, &self.blocks[hash])).collect();
                    blocks.iter().all(|(hash, block)| stands(hash, block))
                        && blocks.iter().flat_map(|(_, block)| &block.logs).eq(logs)
                };
                let is_so = match calm {
                    Some(chain) => says_so(chain),
                    // A node on its way to a branch has so much of it as it has.
                    None => {
                        let known = self.branches.iter().filter(|(born, _)| born <= got);
                        let ends = |chain: &Vec<String>| *from as usize..=chain.len();
                        known
                            .flat_map(|(_, chain)| ends(chain).map(move |end| &chain[..end]))
                            .any(says_so)
                    }
                };
                if is_so { Ok(()) } else { Err("no branch has these".to_owned()) }
            }
            Ask::Balance { who, at } => {
                let mut blocks = self.blocks.iter();
                let found = blocks.any(|(hash, block)| {
                    // anvil has the state of a block that it is making under the number of the
                    // one below, and on its way from branch to branch of any under any.
                    let is_new = block.published.is_none_or(|moment| moment > *sent);
                    let is_there = |at: u64| at == block.number || is_new && at + 1 == block.number;
                    (at.is_none_or(is_there) || calm.is_none())
                        && stands(hash, block)
                        && block.balances[*who] == *result
                });
                if found { Ok(()) } else { Err("no block there has it".to_owned()) }
            }
        }
    }

    /// Whether the question names a buried block by its hash, and that may be told.
    pub(crate) fn may_dig_up(&self, ask: &Ask) -> bool {
        let is_buried = |hash: &String| self.blocks[hash].buried.is_some();
        self.digs_up && matches!(ask, Ask::ByHash(hash) if is_buried(hash))
    }

    /// All that can be asked of the blocks from this height on, those that are buried too.
    pub(crate) fn questions(&self, from: u64) -> Vec<Ask> {
        let mut asks = vec![Ask::Height, Ask::Newest];
        asks.extend((0..WATCHED).map(|who| Ask::Balance { who, at: None }));
        let head = self.chain().len() as u64 - 1;
        for height in from..=head {
            asks.push(Ask::ByNumber(height));
            asks.push(Ask::Logs { from: height, to: (height + 3).min(head) });
            asks.extend((0..WATCHED).map(|who| Ask::Balance { who, at: Some(height) }));
        }
        asks.push(Ask::Logs { from, to: head });
        for (hash, block) in self.blocks.iter().filter(|(_, block)| block.number >= from) {
            asks.push(Ask::ByHash(hash.clone()));
            asks.extend(block.receipts.keys().cloned().map(Ask::Receipt));
        }
        asks
    }
}

/// What a node says of one block.
#[derive(Debug)]
pub(crate) struct Facts {
    header: Value,
    receipts: Value,
    balances: Vec<Value>,
}
