-- The load of `make bench`: one small eth_call, again and again.

wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{'
  .. '"to":"0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48",'
  .. '"data":"0x70a08231000000000000000000000000f39fd6e51aad88f6f4ce6ab8827279cfffb92266"'
  .. '},"latest"]}'

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"errors":%d,"duration_micros":%d,"p50_micros":%d,"p99_micros":%d}\n',
    summary.requests,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    summary.duration, latency:percentile(50), latency:percentile(99)))
end
