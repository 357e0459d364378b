// web3.js over WebSocket: URL LOGGER. Prints a line for each head, log and pending transaction; unsubscribes when stdin ends.
import assert from "node:assert/strict";
import { Web3, WebSocketProvider } from "web3";

const [url, logger] = process.argv.slice(2);
const print = (line) => console.log(JSON.stringify(line));
const provider = new WebSocketProvider(url, {}, { autoReconnect: true, delay: 500, maxAttempts: 40 });
const web3 = new Web3(provider);
let subscriptions;

async function subscribe() {
  const heads = await web3.eth.subscribe("newHeads");
  heads.on("data", (head) => print({ head: head.hash }));
  const topics = [web3.utils.keccak256("Transfer(address,address,uint256)")];
  const logs = await web3.eth.subscribe("logs", { address: logger, topics });
  logs.on("data", (log) => print({
    log: [log.blockHash, Number(log.logIndex), log.transactionHash, log.removed],
    value: Number(log.data),
  }));
  const pending = await web3.eth.subscribe("newPendingTransactions");
  pending.on("data", (hash) => print({ pending: hash }));
  subscriptions = [heads, logs, pending];
  for (const subscription of subscriptions) {
    subscription.on("error", (error) => print({ error: String(error) }));
  }
  print("subscribed");
}

await subscribe();
// web3.js connects again by itself, and leaves it to its user to subscribe again.
provider.SocketConnection.addEventListener("close", ({ code }) => print({ closed: code }));
provider.on("connect", subscribe);

for await (const _ of process.stdin);
await Promise.all(subscriptions.map((subscription) => subscription.unsubscribe()));
assert.equal(await web3.eth.getChainId(), 7357n);
print("unsubscribed");
provider.disconnect();
