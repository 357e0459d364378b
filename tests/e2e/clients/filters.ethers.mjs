// ethers over HTTP: URL LOGGER. Keeps a filter for logs by its own events, and one for blocks, which it has no event
// for. Prints a line for each head and log that they tell; ends them when stdin ends.
import assert from "node:assert/strict";
import { ethers } from "ethers";

// ethers writes to stdout what keeps it from polling, such as a restart.
console.log = console.error;
const [url, logger] = process.argv.slice(2);
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
// It says no word when its filter is made.
class Provider extends ethers.JsonRpcProvider {
  async send(method, params) {
    const result = await super.send(method, params);
    if (method === "eth_newFilter") this.filterMade();
    return result;
  }
}
const provider = new Provider(url, 7357, { staticNetwork: true });
const ofBlocks = await provider.send("eth_newBlockFilter", []);
const event = { address: logger, topics: [ethers.id("Transfer(address,address,uint256)")] };
const show = (log) => print({
  log: [log.blockHash, log.index, log.transactionHash, log.removed],
  value: Number(log.data),
});
await new Promise((resolve) => {
  provider.filterMade = resolve;
  provider.on(event, show);
});
print("subscribed");

// wellhead may be started anew.
const changes = () => provider.send("eth_getFilterChanges", [ofBlocks]).catch((error) => {
  if (["ECONNREFUSED", "ECONNRESET"].includes(error.code)) return [];
  throw error;
});
let isOver = false;
process.stdin.on("end", () => { isOver = true; }).resume();
while (!isOver) {
  for (const hash of await changes()) print({ head: hash });
  // It polls when it hears of another height, which a reorg may not bring.
  await provider.emit("block", 0);
  await new Promise((resolve) => setTimeout(resolve, 100));
}
await provider.off(event, show);
assert.ok(await provider.send("eth_uninstallFilter", [ofBlocks]));
print("unsubscribed");
provider.destroy();
