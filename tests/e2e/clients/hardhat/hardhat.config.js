// One endpoint: URL, KEY, CHAIN_ID of the environment. Nothing is compiled, so no compiler is fetched.
const { URL, KEY, CHAIN_ID } = process.env;

module.exports = {
  solidity: "0.8.28",
  networks: { under: { url: URL, chainId: Number(CHAIN_ID), accounts: [KEY] } },
};
