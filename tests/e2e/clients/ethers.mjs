// ethers against one endpoint: URL KEY CHAIN_ID. Prints a line for each thing done.
import assert from "node:assert/strict";
import { ethers } from "ethers";

const [url, key, chainId] = process.argv.slice(2);
// By itself ethers answers the same question from memory for 250 ms: a block that comes
// sooner would seem to have changed no balance.
const options = { pollingInterval: 100, cacheTimeout: -1 };
const Provider = url.startsWith("ws") ? ethers.WebSocketProvider : ethers.JsonRpcProvider;
const provider = new Provider(url, undefined, options);
const wallet = new ethers.NonceManager(new ethers.Wallet(key, provider));
// Stores 42, logs it, and returns it when called with nothing; reverts with "no" for 0x02.
const bytecode = process.env.CONTRACT;
const done = (what) => console.log(`ethers: ${what}`);

assert.equal((await provider.getNetwork()).chainId, BigInt(chainId));
const head = await provider.getBlockNumber();
assert.ok((await provider.getBalance(await wallet.getAddress())) > ethers.parseEther("1"));
const block = await provider.getBlock("latest", true);
assert.ok(block.number >= head);
assert.ok((await provider.getFeeData()).maxFeePerGas > 0n);
done("reads");

const to = "0x00000000000000000000000000000000000000bc";
const before = await provider.getBalance(to);
const sent = await wallet.sendTransaction({ to, value: 1000n });
const receipt = await sent.wait(1, 30_000);
assert.equal(receipt.status, 1);
assert.equal(receipt.hash, sent.hash);
assert.equal(await provider.getBalance(to), before + 1000n);
assert.equal((await provider.getTransaction(sent.hash)).blockHash, receipt.blockHash);
done("a transaction and its receipt");

const deployed = await (await wallet.sendTransaction({ data: bytecode })).wait(1, 30_000);
const contract = deployed.contractAddress;
const called = await (await wallet.sendTransaction({ to: contract, gasLimit: 200_000 })).wait(1, 30_000);
assert.equal(called.logs.length, 1);
const logs = await provider.getLogs({ address: contract, blockHash: called.blockHash });
assert.deepEqual(logs.map((log) => log.transactionHash), [called.hash]);
assert.equal(BigInt(await provider.call({ to: contract, data: "0x06" })), 42n);
await assert.rejects(provider.call({ to: contract, data: "0x02" }), (error) => {
  assert.equal(error.code, "CALL_EXCEPTION");
  assert.equal(error.reason, "no");
  return true;
});
done("a contract: a log, a call, a revert with its reason");

// ethers puts what is asked in one turn into one batch.
const numbers = [0, 1, block.number];
const blocks = await Promise.all(numbers.map((number) => provider.getBlock(number)));
assert.deepEqual(blocks.map((b) => b.number), numbers);
done("a batch");

// A provider of WebSocket believes what it is told of the chain.
const elsewhere = new ethers.JsonRpcProvider(url.replace(/^ws/, "http"), Number(chainId) + 1);
await assert.rejects(elsewhere.send("eth_blockNumber", []).then(() => elsewhere._detectNetwork())
  .then((network) => assert.equal(network.chainId, BigInt(chainId) + 1n)));
elsewhere.destroy();
done("another chain is noticed");
await provider.destroy();
