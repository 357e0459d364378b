// A wallet's day with viem: URL KEY CHAIN_ID. Nothing that was sent may vanish.
import assert from "node:assert/strict";
import { createPublicClient, createWalletClient, defineChain, http } from "viem";
import { privateKeyToAccount } from "viem/accounts";

const ROUNDS = 200;
const [url, key, chainId] = process.argv.slice(2);
const account = privateKeyToAccount(key);
const chain = defineChain({
  id: Number(chainId),
  name: "test",
  nativeCurrency: { name: "Ether", symbol: "ETH", decimals: 18 },
  rpcUrls: { default: { http: [url] } },
});
const newReader = () =>
  createPublicClient({ chain, transport: http(url), pollingInterval: 10, cacheTime: 0 });
const reader = newReader();
// A client of viem that is asked for the block number while such a call is under way sends no
// other, whatever `cacheTime` is: it returns the answer to the first. `waitForTransactionReceipt`
// may leave one, sent before the receipt came, so its client cannot say what the newest block is
// after that. This one is asked for nothing else.
const newest = newReader();
const wallet = createWalletClient({ account, chain, transport: http(url) });

const { address } = account;
const to = "0x00000000000000000000000000000000000000cc";
let nonce = await reader.getTransactionCount({ address, blockTag: "pending" });
let balance = await reader.getBalance({ address: to });
for (let round = 0; round < ROUNDS; round++, nonce++) {
  const pending = await reader.getTransactionCount({ address, blockTag: "pending" });
  assert.equal(pending, nonce, `round ${round}: the pending nonce`);
  const hash = await wallet.sendTransaction({ to, value: 1n, gas: 21_000n });
  const sent = await reader.getTransaction({ hash });
  assert.equal(sent.nonce, nonce, `round ${round}: the nonce that viem took`);
  const receipt = await reader.waitForTransactionReceipt({ hash, timeout: 120_000 });
  assert.equal(receipt.status, "success");
  const head = await newest.getBlockNumber();
  assert.ok(head >= receipt.blockNumber, `round ${round}: head ${head} below the receipt`);
  assert.equal(await reader.getBalance({ address: to }), ++balance, `round ${round}: the balance`);
  assert.equal((await reader.getTransactionReceipt({ hash })).blockHash, receipt.blockHash);
  assert.equal(await reader.getTransactionCount({ address }), nonce + 1, `round ${round}: mined`);
}
console.log(`viem: ${ROUNDS} transactions, none vanished`);
