// ethers gives a key in each way there is: URL WS_URL KEY. Prints a line for each.
import { FetchRequest, JsonRpcProvider, WebSocketProvider } from "ethers";
import { WebSocket } from "ws";

const [url, wsUrl, key] = process.argv.slice(2);
const chainId = 1337;

async function show(what, provider) {
  const chain = await provider.send("eth_chainId", []).then(Number, (error) => {
    return error.info?.responseStatus.startsWith("401") ? "refused" : error;
  });
  console.log(`${what}: ${chain}`);
  provider.destroy();
}

const network = { staticNetwork: true };
function overHttp(what, at, change = () => {}) {
  const request = new FetchRequest(at);
  change(request);
  return show(what, new JsonRpcProvider(request, chainId, network));
}
function overWs(what, at, protocols = [], headers = {}) {
  const socket = new WebSocket(at, protocols, { headers });
  const provider = new WebSocketProvider(socket, chainId, network);
  // A provider leaves it to its user to hear of a WebSocket that is refused.
  const isRefused = new Promise((resolve) => {
    socket.on("unexpected-response", (_, { statusCode }) => resolve(statusCode === 401 && "refused"));
  });
  return Promise.race([show(what, provider), isRefused.then((told) => console.log(`${what}: ${told}`))]);
}
const withPassword = (of) => of.replace("//", `//:${key}@`);

await overHttp("http path", `${url}/main/${key}`);
await overHttp("http header", url, (request) => request.setHeader("x-api-key", key));
await overHttp("http bearer", url, (request) => request.setHeader("authorization", `Bearer ${key}`));
await overHttp("http basic", url, (request) => {
  request.allowInsecureAuthentication = true;
  request.setCredentials("", key);
});
await overHttp("http query", `${url}/?key=${key}`);
await overHttp("http none", url);
await overWs("ws path", `${wsUrl}/main/${key}`);
await overWs("ws header", wsUrl, [], { "x-api-key": key });
await overWs("ws bearer", wsUrl, [], { authorization: `Bearer ${key}` });
await overWs("ws basic", withPassword(wsUrl));
await overWs("ws subprotocol", wsUrl, [`wellhead.key.${key}`, "wellhead"]);
await overWs("ws query", `${wsUrl}/?key=${key}`);
await overWs("ws none", wsUrl);
// The provider whose WebSocket was refused would wait for it.
process.exit();
