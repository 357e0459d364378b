// viem over HTTP: URL LOGGER. Keeps a filter for blocks and one for logs, and prints a line for each head and log
// that they tell; ends them when stdin ends.
import assert from "node:assert/strict";
import { createPublicClient, http, parseAbiItem } from "viem";

const [url, logger] = process.argv.slice(2);
const print = (line) => console.log(JSON.stringify(line));
const client = createPublicClient({ transport: http(url, { retryCount: 40, retryDelay: 50 }) });
const blocks = await client.createBlockFilter();
const logs = await client.createEventFilter({
  address: logger,
  event: parseAbiItem("event Transfer(address indexed from, address indexed to, uint256 value)"),
});
print("subscribed");

let isOver = false;
process.stdin.on("end", () => { isOver = true; }).resume();
while (!isOver) {
  for (const hash of await client.getFilterChanges({ filter: blocks })) print({ head: hash });
  for (const log of await client.getFilterChanges({ filter: logs })) {
    print({
      log: [log.blockHash, log.logIndex, log.transactionHash, log.removed],
      value: Number(log.args.value),
    });
  }
  await new Promise((resolve) => setTimeout(resolve, 100));
}
assert.ok(await client.uninstallFilter({ filter: blocks }));
assert.ok(await client.uninstallFilter({ filter: logs }));
print("unsubscribed");
