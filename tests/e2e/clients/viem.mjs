// viem against one endpoint: URL KEY CHAIN_ID. Prints a line for each thing done.
import assert from "node:assert/strict";
import {
  createPublicClient, createWalletClient, defineChain, http, parseEther, parseGwei, webSocket,
} from "viem";
import { privateKeyToAccount } from "viem/accounts";

const [url, key, chainId] = process.argv.slice(2);
const account = privateKeyToAccount(key);
const chain = defineChain({
  id: Number(chainId),
  name: "test",
  nativeCurrency: { name: "Ether", symbol: "ETH", decimals: 18 },
  rpcUrls: { default: { http: [url] } },
});
// WebSocket has no batches in viem: they go over HTTP there, too.
const transport = url.startsWith("ws") ? webSocket(url) : http(url);
const reader = createPublicClient({ chain, transport, pollingInterval: 100 });
const wallet = createWalletClient({ account, chain, transport });
// Stores 42, logs it, and returns it when called with nothing; reverts with "no" for 0x02.
const bytecode = process.env.CONTRACT;
const done = (what) => console.log(`viem: ${what}`);

assert.equal(await reader.getChainId(), Number(chainId));
const head = await reader.getBlockNumber();
assert.ok((await reader.getBlockNumber({ cacheTime: 0 })) >= head);
const balance = await reader.getBalance({ address: account.address });
assert.ok(balance > parseEther("1"));
const block = await reader.getBlock({ blockTag: "latest", includeTransactions: true });
assert.ok(block.number >= head);
done("reads");

const to = "0x00000000000000000000000000000000000000bb";
const before = await reader.getBalance({ address: to });
const hash = await wallet.sendTransaction({ to, value: parseGwei("1") });
const receipt = await reader.waitForTransactionReceipt({ hash, timeout: 30_000 });
assert.equal(receipt.status, "success");
assert.equal(receipt.transactionHash, hash);
assert.equal(await reader.getBalance({ address: to }), before + parseGwei("1"));
const transaction = await reader.getTransaction({ hash });
assert.equal(transaction.blockHash, receipt.blockHash);
done("a transaction and its receipt");

const deployed = await reader.waitForTransactionReceipt({
  hash: await wallet.sendTransaction({ data: bytecode }),
  timeout: 30_000,
});
const contract = deployed.contractAddress;
const called = await reader.waitForTransactionReceipt({
  hash: await wallet.sendTransaction({ to: contract, gas: 200_000n }),
  timeout: 30_000,
});
assert.equal(called.logs.length, 1);
const logs = await reader.getLogs({ address: contract, blockHash: called.blockHash });
assert.deepEqual(logs.map((log) => log.transactionHash), [called.transactionHash]);
const answer = await reader.call({ to: contract, data: "0x06" });
assert.equal(BigInt(answer.data), 42n);
await assert.rejects(reader.call({ to: contract, data: "0x02" }), (error) => {
  assert.match(String(error.message), /no/);
  return error.walk((cause) => cause.name === "ExecutionRevertedError") !== null;
});
done("a contract: a log, a call, a revert with its reason");

const batching = createPublicClient({ chain, transport: http(url.replace(/^ws/, "http"), { batch: { wait: 10 } }) });
const numbers = [0n, 1n, block.number];
const blocks = await Promise.all(numbers.map((n) => batching.getBlock({ blockNumber: n })));
assert.deepEqual(blocks.map((b) => b.number), numbers);
done("a batch");

const serializedTransaction = await account.signTransaction({
  chainId: Number(chainId) + 1,
  to,
  nonce: await reader.getTransactionCount({ address: account.address }),
  gas: 21_000n,
  maxFeePerGas: (await reader.getGasPrice()) * 2n,
  value: 1n,
});
await assert.rejects(reader.sendRawTransaction({ serializedTransaction }), /chain|signer|sender/i);
done("another chain is noticed");
// Over WebSocket both share one connection, which would keep the process.
if (url.startsWith("ws")) (await reader.transport.getRpcClient()).close();
