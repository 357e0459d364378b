// A wallet's day with ethers: URL KEY CHAIN_ID. Nothing that was sent may vanish.
import assert from "node:assert/strict";
import { JsonRpcProvider, Wallet } from "ethers";

const ROUNDS = 200;
const [url, key, chainId] = process.argv.slice(2);
const options = { staticNetwork: true, cacheTimeout: -1, pollingInterval: 10 };
const provider = new JsonRpcProvider(url, Number(chainId), options);
const wallet = new Wallet(key, provider);

const to = "0x00000000000000000000000000000000000000dd";
let nonce = await wallet.getNonce("pending");
let balance = await provider.getBalance(to);
for (let round = 0; round < ROUNDS; round++, nonce++) {
  assert.equal(await wallet.getNonce("pending"), nonce, `round ${round}: the pending nonce`);
  const sent = await wallet.sendTransaction({ to, value: 1n, gasLimit: 21_000n });
  assert.equal(sent.nonce, nonce, `round ${round}: the nonce that ethers took`);
  assert.equal((await provider.getTransaction(sent.hash))?.nonce, nonce, `round ${round}: it vanished`);
  const receipt = await sent.wait(1, 30_000);
  assert.equal(receipt.status, 1);
  const head = await provider.getBlockNumber();
  assert.ok(head >= receipt.blockNumber, `round ${round}: head ${head} below the receipt`);
  assert.equal(await provider.getBalance(to), ++balance, `round ${round}: the balance`);
  assert.equal((await provider.getTransactionReceipt(sent.hash))?.blockHash, receipt.blockHash);
  assert.equal(await wallet.getNonce("latest"), nonce + 1, `round ${round}: mined`);
}
provider.destroy();
console.log(`ethers: ${ROUNDS} transactions, none vanished`);
