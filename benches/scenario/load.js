// The load of `make scenario`, for k6: who calls what is in PLAN, a JSON text from
// the bench. Each virtual user makes the three calls of the public comparison one
// after the other and then thinks for a second; with `single` an iteration is one
// call. A call that is not answered with its own right answer has failed; why goes
// to the console, a line of JSON each, bounded for every user.

import http from 'k6/http';
import exec from 'k6/execution';
import { sleep } from 'k6';
import { Counter, Trend } from 'k6/metrics';

const plan = JSON.parse(__ENV.PLAN);
const TOLD_MAX = 20;

export const options = {
  scenarios: plan.scenarios,
  summaryTrendStats: ['med', 'p(95)', 'p(99)', 'p(99.9)', 'max', 'count'],
  // What a proxy says while it refuses is counted, not retried and not followed.
  maxRedirects: 0,
};

function counts(name) {
  return {
    took: new Trend(`${name}_took`),
    failedTook: new Trend(`${name}_failed_took`),
    ok: new Counter(`${name}_ok`),
    okInTime: new Counter(`${name}_ok_in_time`),
    slow: new Counter(`${name}_slow`),
    failed: new Counter(`${name}_failed`),
  };
}
const proxied = counts('proxy');
const direct = counts('direct');

let next = 0;
let told = 0;

function call(url, seen, method, params, isRight) {
  // Unique over all users, and small enough to be exact.
  const id = exec.vu.idInTest * 10000000 + next;
  next += 1;
  const wanted = params(id);
  const body = JSON.stringify({ jsonrpc: '2.0', id, method, params: wanted });
  const response = http.post(url, body, { headers: { 'content-type': 'application/json' } });
  // With the wait for a connection: a client waits for that as well.
  const took = response.timings.blocked + response.timings.duration;
  let reply = null;
  if (response.status === 200) {
    try {
      reply = JSON.parse(response.body);
    } catch (_) {
      // Not JSON: a failure, told below.
    }
  }
  if (reply && reply.id === id && isRight(reply.result, wanted)) {
    seen.ok.add(1);
    seen.took.add(took);
    if (took > plan.slow_ms) seen.slow.add(1);
    if (exec.instance.currentTestRunDuration <= plan.millis) seen.okInTime.add(1);
    return;
  }
  seen.failed.add(1);
  seen.failedTook.add(took);
  if (told < TOLD_MAX) {
    told += 1;
    const text = response.body ? response.body.slice(0, 600) : response.error;
    console.log(JSON.stringify({ at: exec.instance.currentTestRunDuration, took, method, status: response.status, text }));
  }
}

const isQuantity = (result) => typeof result === 'string' && result.startsWith('0x');
// Its tail is what the upstreams answer as the balance.
const address = (id) => `0xf39fd6e51aad88f6f4ce6ab8${id.toString(16).padStart(16, '0')}`;
const CALLS = [
  ['eth_blockNumber', () => [], isQuantity],
  [
    'eth_getBalance',
    (id) => [address(id), 'latest'],
    (result, [asked]) => isQuantity(result) && asked.endsWith(result.slice(2).padStart(16, '0')),
  ],
  [
    'eth_getBlockByNumber',
    () => ['latest', false],
    (result) => result !== null && typeof result === 'object' && isQuantity(result.number),
  ],
];

function iterate(url, seen) {
  if (plan.single) {
    call(url, seen, ...CALLS[next % CALLS.length]);
    return;
  }
  for (const one of CALLS) call(url, seen, ...one);
  sleep(1);
}

export function throughProxy() {
  iterate(plan.proxy, proxied);
}

export function straight() {
  iterate(plan.direct, direct);
}

export function handleSummary(data) {
  return { [plan.out]: JSON.stringify(data.metrics) };
}
