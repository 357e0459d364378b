// viem over WebSocket: URL LOGGER. Prints a line for each head and log; unsubscribes when stdin ends.
import assert from "node:assert/strict";
import { createPublicClient, parseAbiItem, webSocket } from "viem";

const [url, logger] = process.argv.slice(2);
const print = (line) => console.log(JSON.stringify(line));
// viem keeps a connection alive with calls of `net_version` whose id is null.
const client = createPublicClient({
  transport: webSocket(url, { keepAlive: { interval: 100 }, reconnect: false }),
});
const onError = (error) => print({ error: String(error) });

const unwatch = [
  // For each head viem reads the block of that height, and passes on what it read.
  client.watchBlocks({ onBlock: (block) => print({ head: block?.hash ?? null }), onError }),
  client.watchEvent({
    address: logger,
    event: parseAbiItem("event Transfer(address indexed from, address indexed to, uint256 value)"),
    onLogs: (logs) => logs.forEach((log) => print({
      log: [log.blockHash, log.logIndex, log.transactionHash, log.removed],
      value: Number(log.args.value),
    })),
    onError,
  }),
];
// viem does not say when it has subscribed.
const socket = await client.transport.getRpcClient();
while (socket.subscriptions.size < unwatch.length) {
  await new Promise((resolve) => setTimeout(resolve, 10));
}
print("subscribed");

for await (const _ of process.stdin);
const answers = await Promise.all(unwatch.map((stop) => stop()));
assert.deepEqual(answers.map((answer) => answer.result), [true, true]);
assert.equal(await client.getChainId(), 7357);
print("unsubscribed");
socket.close();
