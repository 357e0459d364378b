-- The load of `make bench`. The first argument is the body. Where two more are given, each call is
-- another one: the second is the place of 16 hex digits in the body, counted from 0, the third is
-- the first 6 of these digits, which no other run has. 2 digits for the thread and 8 for the call follow.

wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"

local threads = 0

function setup(thread)
  thread:set("thread_index", threads)
  threads = threads + 1
end

function init(args)
  wrk.body = args[1]
  if not args[2] then
    return
  end
  local whole = wrk.format()
  local at = #whole - #args[1] + tonumber(args[2])
  local before = whole:sub(1, at) .. args[3] .. string.format("%02x", thread_index)
  local after = whole:sub(at + 17)
  local calls = 0
  request = function()
    calls = calls + 1
    return before .. string.format("%08x", calls) .. after
  end
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
