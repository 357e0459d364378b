-- The load of `make bench`: one body, the first argument, again and again.

wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"

function init(args)
  wrk.body = args[1]
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"errors":%d,"bytes":%.0f,"duration_micros":%d,'
    .. '"p50_micros":%d,"p99_micros":%d,"p999_micros":%d}\n',
    summary.requests,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    summary.bytes, summary.duration,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
