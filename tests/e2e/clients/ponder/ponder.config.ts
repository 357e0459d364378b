// What `LOGGER` logs, from the first block to block END, where all of it is there before ponder starts; without
// END it goes on with new blocks, of which it hears at WS_URL.
import { createConfig } from "ponder";

const abi = [
  {
    type: "event",
    name: "Transfer",
    inputs: [
      { name: "from", type: "address", indexed: true },
      { name: "to", type: "address", indexed: true },
      { name: "value", type: "uint256" },
    ],
  },
] as const;

export default createConfig({
  chains: {
    main: { id: Number(process.env.CHAIN_ID), rpc: process.env.URL, ws: process.env.WS_URL },
  },
  contracts: {
    Logger: {
      abi,
      chain: "main",
      address: process.env.LOGGER as `0x${string}`,
      startBlock: 0,
      endBlock: process.env.END ? Number(process.env.END) : undefined,
    },
  },
});
