-- The store's side of limits that replicas share. What each part computes is written down, and
-- tested against this, in `limit::lease::CapTerms` and the books of limit/tests/support/book.rs: the order of
-- operations is the same, so that both round alike.
--
-- All amounts are thousandths of a credit, all times microseconds. The only clock is the server's.
-- Every number stays below 2^53, up to which Lua's floating numbers count exactly.
--
-- An ask that came later than ARGV[2], or 0: at any time, is void: a server that was frozen finds asks
-- whose answers are not waited for any more, and would empty a limit for them. It answers nothing.
--
-- ARGV[1] says which part:
--   rate  KEYS[1]: when the bucket will be full,    ARGV: rate, depth, want, need, back
--         and when it was asked
--         answers granted, wait
--   cap   KEYS[1], KEYS[2]: used in the day, month  ARGV: day cap, month cap (-1: none),
--                                                         replicas, want, need, back
--         answers granted, left of the day's cap, left of the month's (-1: no such cap)
--   window KEYS[1]: when it began, and what is used  ARGV: credits, length, replicas, began, want, need, back
--         answers granted, left, how long it lasts, when it began (0: none is open)
--   gate  KEYS[1]: a hash, by replica               ARGV: replica, places, want, inside, keep
--         answers places
--   here  KEYS[1]: a sorted set of replicas         ARGV: replica, keep
--         answers how many replicas there are, and the time

local function number(n)
  -- Lua would write large ones with an exponent, and lose digits.
  return string.format('%.0f', n)
end

local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local arg = {}
for i = 3, #ARGV do arg[i - 2] = tonumber(ARGV[i]) end
local now = clock()
local latest = tonumber(ARGV[2])
if latest > 0 and now > latest then return {} end

local part = {}

function part.rate()
  local rate, depth, want, need, back = arg[1], arg[2], arg[3], arg[4], arg[5]
  local function time_of(milli) return milli * 1000000 / rate end
  local fill = math.floor(time_of(depth))
  local full_at, asked_at = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (%d+)$')
  full_at, asked_at = tonumber(full_at or 0), tonumber(asked_at or 0)
  -- When the clock was set back, what was missing still is.
  if now < asked_at then full_at = now + math.max(full_at - asked_at, 0) end
  -- A bucket that was larger: empty, and not worse.
  full_at = math.min(full_at, now + fill)
  full_at = math.max(full_at - math.floor(time_of(back)), now)
  local function held(full_at)
    local missing = math.min(full_at - now, fill)
    return math.floor((fill - missing) * rate / 1000000)
  end
  -- Rounded as all is, or a need of all there is would never be met.
  need = math.min(need, held(now))
  local granted = 0
  if want > 0 and held(full_at) >= need then
    granted = math.min(want, held(full_at))
    full_at = full_at + math.ceil(time_of(granted))
  end
  local wait = 0
  if granted < want then
    wait = math.ceil(time_of(math.max(need - held(full_at), 0)))
  end
  -- A bucket that is full need not be remembered: idle keys vanish by themselves.
  if full_at > now then
    local kept = number(full_at) .. ' ' .. number(now)
    redis.call('SET', KEYS[1], kept, 'PX', number(math.ceil((full_at - now) / 1000)))
  else
    redis.call('DEL', KEYS[1])
  end
  return { number(granted), number(wait) }
end

-- How long a page is kept after it was written last: longer than it lasts.
local keep_day, keep_month = 2 * 86400, 33 * 86400

function part.cap()
  local day_cap, month_cap, replicas = arg[1], arg[2], arg[3]
  local want, need, back = arg[4], arg[5], arg[6]
  local function used(key, cap)
    if cap < 0 then return 0 end
    return math.max((tonumber(redis.call('GET', key) or 0) or 0) - back, 0)
  end
  local day, month = used(KEYS[1], day_cap), used(KEYS[2], month_cap)
  local function left(cap, used) return math.max(cap - used, 0) end
  local least = math.huge
  if day_cap >= 0 then least = math.min(least, left(day_cap, day)) end
  if month_cap >= 0 then least = math.min(least, left(month_cap, month)) end
  local most = math.max(math.floor(least / (20 * math.max(replicas, 1))), need)
  local granted = math.min(want, most)
  if granted > least or granted < need then granted = 0 end
  local function told(key, cap, used, keep)
    if cap < 0 then return '-1' end
    redis.call('SET', key, number(used + granted), 'EX', number(keep))
    return number(left(cap, used + granted))
  end
  return {
    number(granted),
    told(KEYS[1], day_cap, day, keep_day),
    told(KEYS[2], month_cap, month, keep_month),
  }
end

function part.window()
  local credits, length, replicas, of = arg[1], arg[2], arg[3], arg[4]
  local want, need, back = arg[5], arg[6], arg[7]
  local began, used = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (%d+)$')
  began, used = tonumber(began or 0), tonumber(used or 0)
  -- When the clock was set back, what was used still is.
  began = math.min(began, now)
  if now >= began + length then
    if want == 0 then return { '0', number(credits), '0', '0' } end
    began, used = now, 0
  end
  if of == began then used = math.max(used - back, 0) end
  local left = math.max(credits - used, 0)
  -- All that is left, where that is less than needed: debts are paid as far as may be.
  local most = math.max(math.floor(left / (20 * math.max(replicas, 1))), math.min(need, left))
  local granted = math.min(want, most)
  local ends_in = began + length - now
  local state = number(began) .. ' ' .. number(used + granted)
  redis.call('SET', KEYS[1], state, 'PX', number(math.ceil(ends_in / 1000)))
  return { number(granted), number(left - granted), number(ends_in), number(began) }
end

-- An equal part of what the smaller ones leave.
local function equal_part(places, smaller, rest)
  table.sort(smaller)
  local left, sharers = places, #smaller + rest
  for _, want in ipairs(smaller) do
    if want > math.floor(left / sharers) then break end
    left = left - want
    sharers = sharers - 1
  end
  return math.floor(left / sharers)
end

function part.gate()
  local replica, places, want, inside, keep = ARGV[3], arg[2], arg[3], arg[4], arg[5]
  local rows = redis.call('HGETALL', KEYS[1])
  local before, taken, smaller, larger = 0, 0, {}, 0
  for i = 1, #rows, 2 do
    local has, wants, ends = string.match(rows[i + 1], '^(%d+) (%d+) (%d+)$')
    has, wants, ends = tonumber(has or 0), tonumber(wants or 0), tonumber(ends or 0)
    -- What claims to end later than any that is written now is of a clock that was set back.
    if ends <= now or ends > now + keep then
      redis.call('HDEL', KEYS[1], rows[i])
    elseif rows[i] == replica then
      before = has
    else
      taken = taken + has
      if wants <= want then smaller[#smaller + 1] = wants else larger = larger + 1 end
    end
  end
  local part = equal_part(places, smaller, larger + 1)
  local granted = math.min(want, part, math.max(places - taken, 0))
  local kept = math.max(granted, math.min(inside, before))
  local row = number(kept) .. ' ' .. number(want) .. ' ' .. number(now + keep)
  redis.call('HSET', KEYS[1], replica, row)
  redis.call('PEXPIRE', KEYS[1], number(math.ceil(keep / 1000)))
  return { number(granted) }
end

function part.here()
  local replica, keep = ARGV[3], arg[2]
  redis.call('ZADD', KEYS[1], number(now), replica)
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', number(now - keep))
  -- Those that a clock set back has left in the future would stay for ever.
  redis.call('ZREMRANGEBYSCORE', KEYS[1], number(now + keep), '+inf')
  redis.call('PEXPIRE', KEYS[1], number(math.ceil(keep / 1000)))
  return { number(redis.call('ZCARD', KEYS[1])), number(now) }
end

return part[ARGV[1]]()
