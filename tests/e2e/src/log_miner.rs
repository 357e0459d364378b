//! Blocks with logs on the geths of a [`ConsensusDriver`], and what a subscriber to all logs must be told of
//! them.

use serde_json::{Value, json};

use crate::{Block, ConsensusDriver, Transactions};

/// Makes blocks with three logs each.
#[derive(Debug)]
pub struct LogMiner {
    head: Block,
    /// The next one of each of the three accounts.
    nonce: u64,
    /// What the next block logs: no two blocks log one value.
    value: u64,
}

impl LogMiner {
    /// One that goes on from this block, before which there is no transaction.
    #[must_use]
    pub fn new(head: &Block) -> Self {
        Self { head: head.clone(), nonce: 0, value: 0 }
    }

    /// The newest block of its branch.
    #[must_use]
    pub fn head(&self) -> &Block {
        &self.head
    }

    /// Leaves `back` blocks and makes `count` others, whose last one becomes the head of these nodes.
    /// Returns the new blocks, and what a subscriber to all logs must be told.
    pub async fn step(
        &mut self,
        driver: &ConsensusDriver,
        back: u64,
        count: u64,
        nodes: &[usize],
    ) -> (Vec<Block>, Vec<Value>) {
        let abandoned: Vec<_> = (0..back).map(|at| driver.ancestor(&self.head, at)).collect();
        self.head = driver.ancestor(&self.head, back);
        self.nonce -= back;
        let mut branch = Vec::new();
        for _ in 0..count {
            let calls =
                [0, 1, 2].map(|account| ConsensusDriver::log_call(account, self.nonce, self.value));
            self.nonce += 1;
            self.value += 1;
            self.head = driver.mine_on(&self.head, Transactions::These(calls.into())).await;
            branch.push(self.head.clone());
        }
        for node in nodes {
            driver.set_head(*node, &self.head).await;
        }
        let mut logs = Vec::new();
        for (block, is_removed) in
            abandoned.iter().map(|it| (it, true)).chain(branch.iter().map(|it| (it, false)))
        {
            logs.extend(logs_of(driver, nodes[0], block, is_removed).await);
        }
        (branch, logs)
    }
}

/// The logs that a node has for a block, as a subscriber is told of them.
async fn logs_of(
    driver: &ConsensusDriver,
    node: usize,
    block: &Block,
    is_removed: bool,
) -> Vec<Value> {
    let params = json!([{ "blockHash": block.hash }]);
    let logs = driver.node(node).rpc().result("eth_getLogs", params).await;
    let mut logs = logs.expect("the node holds the block").as_array().expect("a list").clone();
    logs.iter_mut().for_each(|log| log["removed"] = is_removed.into());
    logs
}
