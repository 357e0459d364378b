// web3.js over HTTP: URL LOGGER. Keeps a filter for blocks and one for logs, and prints a line for each head and log
// that they tell; ends them when stdin ends.
import assert from "node:assert/strict";
import { Web3 } from "web3";

const [url, logger] = process.argv.slice(2);
const print = (line) => console.log(JSON.stringify(line));
const { eth, utils } = new Web3(url);
const blocks = await eth.createNewBlockFilter();
const topics = [utils.keccak256("Transfer(address,address,uint256)")];
const logs = await eth.createNewFilter({ address: logger, topics });
print("subscribed");

// wellhead may be started anew.
const changes = (id) => eth.getFilterChanges(id).catch((error) => {
  if (["ECONNREFUSED", "ECONNRESET"].includes(error.code)) return [];
  throw error;
});
let isOver = false;
process.stdin.on("end", () => { isOver = true; }).resume();
while (!isOver) {
  for (const hash of await changes(blocks)) print({ head: hash });
  for (const log of await changes(logs)) {
    print({
      log: [log.blockHash, Number(log.logIndex), log.transactionHash, log.removed],
      value: Number(log.data),
    });
  }
  await new Promise((resolve) => setTimeout(resolve, 100));
}
assert.ok(await eth.uninstallFilter(blocks));
assert.ok(await eth.uninstallFilter(logs));
print("unsubscribed");
