// viem over WebSocket: URL LOGGER. Prints a line for each head, log and pending transaction; unsubscribes when stdin ends.
import assert from "node:assert/strict";
import { createPublicClient, parseAbiItem, webSocket } from "viem";

const [url, logger] = process.argv.slice(2);
const print = (line) => console.log(JSON.stringify(line));
// viem keeps a connection alive with calls of `net_version` whose id is null.
const client = createPublicClient({
  transport: webSocket(url, { keepAlive: { interval: 100 }, reconnect: { attempts: 40, delay: 1000 } }),
});
// It tells each watcher of a close and of keep-alive calls that fail for it, and subscribes again by itself.
const onError = (error) => {
  if (!["SocketClosedError", "WebSocketRequestError"].includes(error.name)) print({ error: String(error) });
};

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
  client.watchPendingTransactions({
    onTransactions: (hashes) => hashes.forEach((hash) => print({ pending: hash })),
    onError,
  }),
];
let restarts = 0;
let isOver = false;
const rpcClient = await client.transport.getRpcClient();
let last;

// viem does not say when it has subscribed.
async function subscribed() {
  while (rpcClient.socket === last || rpcClient.subscriptions.size < unwatch.length) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  print("subscribed");
  last = rpcClient.socket;
  last.addEventListener("close", ({ code }) => {
    if (isOver) return;
    restarts += 1;
    print({ closed: code });
    subscribed();
  });
}

await subscribed();

for await (const _ of process.stdin);
const answers = await Promise.all(unwatch.map((stop) => stop()));
// After it has subscribed again it still names the subscriptions of the first connection.
assert.deepEqual(answers.map((answer) => answer.result), unwatch.map(() => restarts === 0));
assert.equal(await client.getChainId(), 7357);
print("unsubscribed");
isOver = true;
rpcClient.close();
