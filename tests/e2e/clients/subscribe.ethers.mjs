// ethers over WebSocket: URL LOGGER. Prints a line for each head, log and pending transaction; unsubscribes when stdin ends.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { ethers } from "ethers";

const [url, logger] = process.argv.slice(2);
const print = (line) => console.log(JSON.stringify(line));
const answers = { eth_subscribe: [], eth_unsubscribe: [] };

// ethers does not say when it has subscribed or unsubscribed.
class Provider extends ethers.WebSocketProvider {
  async send(method, params) {
    const answer = await super.send(method, params);
    answers[method]?.push(answer);
    return answer;
  }
}

async function answered(method, count) {
  while (answers[method].length < count) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const transfer = new ethers.Interface([
  "event Transfer(address indexed from, address indexed to, uint256 value)",
]);
const filter = { address: logger, topics: [transfer.getEvent("Transfer").topicHash] };
// An event of a block has the height alone. The lines keep the order of the events, not of the answers.
let printed = Promise.resolve();

let provider;

async function subscribe() {
  // By itself ethers answers the same question from memory for 250 ms.
  provider = new Provider(url, undefined, { cacheTimeout: -1 });
  // ethers does not connect again by itself.
  provider.websocket.onclose = async ({ code }) => {
    print({ closed: code });
    await listens();
    await subscribe();
  };
  answers.eth_subscribe = [];
  await provider.on("block", (number) => {
    const read = provider.getBlock(number);
    printed = printed.then(async () => print({ head: (await read)?.hash ?? null }));
  });
  await provider.on(filter, (log) => print({
    log: [log.blockHash, log.index, log.transactionHash, log.removed],
    value: Number(transfer.parseLog(log).args.value),
  }));
  await provider.on("pending", (hash) => print({ pending: hash }));
  await provider.on("error", (error) => print({ error: String(error) }));
  await answered("eth_subscribe", 3);
  print("subscribed");
}

// A provider whose first connection fails cannot be used any more.
async function listens() {
  for (;;) {
    const socket = connect(new URL(url).port, "127.0.0.1");
    const [isOpen] = await Promise.race([
      once(socket, "connect").then(() => [true]),
      once(socket, "close").then(() => [false]),
    ]).catch(() => [false]);
    socket.destroy();
    if (isOpen) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

await subscribe();
for await (const _ of process.stdin);
await provider.off("block");
await provider.off(filter);
await provider.off("pending");
await answered("eth_unsubscribe", 3);
assert.deepEqual(answers.eth_unsubscribe, [true, true, true]);
assert.equal((await provider.getNetwork()).chainId, 7357n);
print("unsubscribed");
provider.websocket.onclose = null;
await provider.destroy();
