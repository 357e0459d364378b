// viem gives a key in each way there is: URL WS_URL KEY. Prints a line for each.
import { createPublicClient, http, webSocket } from "viem";
import { WebSocket as Ws } from "ws";

const [url, wsUrl, key] = process.argv.slice(2);
// viem has no option for what a WebSocket sends as it opens: its users give it a WebSocket of their own.
let opening = {};
globalThis.WebSocket = class extends Ws {
  constructor(at) {
    super(at, opening.protocols ?? [], { headers: opening.headers });
    this.on("error", ({ message }) => { opening.error = message; });
  }
};

// Over HTTP it says the code of the answer, of a WebSocket nothing but that it could not be opened.
function refusal(error) {
  const isRefused = error.walk((cause) => cause.code === -32001) || /401$/.test(opening.error);
  return isRefused ? "refused" : error;
}

async function show(what, transport) {
  const client = createPublicClient({ transport });
  console.log(`${what}: ${await client.getChainId().catch(refusal)}`);
  if (client.transport.type === "webSocket") {
    await client.transport.getRpcClient().then((rpc) => rpc.close(), () => {});
  }
}

const withPassword = (of, secret) => of.replace("//", `//:${secret}@`);
const options = { retryCount: 0 };
const overHttp = (headers) => http(url, { ...options, fetchOptions: { headers } });
const overWs = async (what, at, of) => {
  opening = of;
  await show(what, webSocket(at, { ...options, reconnect: false }));
};
await show("http path", http(`${url}/main/${key}`, options));
await show("http header", overHttp({ "x-api-key": key }));
await show("http bearer", overHttp({ authorization: `Bearer ${key}` }));
await show("http basic", overHttp({ authorization: `Basic ${btoa(`:${key}`)}` }));
await show("http query", http(`${url}/?key=${key}`, options));
await show("http none", http(url, options));
await overWs("ws path", `${wsUrl}/main/${key}`, {});
await overWs("ws header", wsUrl, { headers: { "x-api-key": key } });
await overWs("ws bearer", wsUrl, { headers: { authorization: `Bearer ${key}` } });
await overWs("ws basic", withPassword(wsUrl, key), {});
await overWs("ws subprotocol", wsUrl, { protocols: [`wellhead.key.${key}`, "wellhead"] });
await overWs("ws query", `${wsUrl}/?key=${key}`, {});
await overWs("ws none", wsUrl, {});
