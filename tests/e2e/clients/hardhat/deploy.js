// Deploys CONTRACT and calls it, as a deploy script does. Prints what is equal in every run: no hash, no
// address of a new contract, no price.
const assert = require("node:assert/strict");
const { network } = require("hardhat");

const TRIES = 600;
const ask = (method, ...params) => network.provider.request({ method, params });

async function receipt(hash) {
  for (let tried = 0; tried < TRIES; tried++) {
    const found = await ask("eth_getTransactionReceipt", hash);
    if (found !== null) return found;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`no receipt for ${hash}`);
}

async function main() {
  const [from] = await ask("eth_accounts");
  const before = BigInt(await ask("eth_getTransactionCount", from, "latest"));
  console.log("chain", await ask("eth_chainId"), "net", await ask("net_version"), "from", from);

  const made = await receipt(await ask("eth_sendTransaction", { from, data: process.env.CONTRACT }));
  const to = made.contractAddress;
  console.log("deployed", made.status, made.gasUsed, await ask("eth_getCode", to, "latest"));

  const data = "0x" + "00".repeat(31) + "bb" + "00".repeat(31) + "07";
  const gas = await ask("eth_estimateGas", { from, to, data });
  const called = await receipt(await ask("eth_sendTransaction", { from, to, data }));
  const logs = JSON.stringify(called.logs.map(({ topics, data }) => [topics, data]));
  console.log("called", called.status, gas, called.gasUsed, logs);

  const [log] = await ask("eth_getLogs", { address: to, blockHash: called.blockHash });
  assert.equal(log.transactionHash, called.transactionHash);
  console.log("count", await ask("eth_call", { from, to, data }, "latest"), await ask("eth_getStorageAt", to, "0x0", "latest"));
  const after = BigInt(await ask("eth_getTransactionCount", from, "latest"));
  console.log("sent", String(after - before));

  // What no node has is refused, by the node or before it.
  const refused = await ask("hardhat_metadata").then(() => "answered", () => "refused");
  console.log("hardhat_metadata", refused);
}

main().catch((why) => {
  console.error(why);
  process.exitCode = 1;
});
