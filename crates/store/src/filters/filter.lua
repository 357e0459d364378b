-- One filter: a hash of its stamp, its value, the replica that polled it last, and how many polls in a row that one made.
--   KEYS: the filter
--   ARGV: look, write or remove; milliseconds that it is kept without a poll; the replica; then
--     look: up to two stamps that the replica has
--     write: polls in a row, the new stamp, the value, up to two stamps of which one must be there, if any is
--     remove: 1 where the replica has a copy
-- Answers
--   look: nothing where there is none; `removed`; or the stamp, the polls in a row, and the value of another stamp
--   write: 1 if it is written, 0 if another replica was first, -1 if it was removed
--   remove: 1 if this call ended it
local filter, act, keep, replica = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local now = redis.call('HMGET', filter, 'stamp', 'by', 'row')
local stamp = now[1]
local function is_among(from)
  for place = from, #ARGV do
    if ARGV[place] == stamp then return true end
  end
  return false
end
if act == 'look' then
  if not stamp then return {} end
  if stamp == 'removed' then return {stamp} end
  local row = now[2] == replica and math.min(tonumber(now[3] or 0) + 1, 1000) or 1
  redis.call('HSET', filter, 'by', replica, 'row', row)
  redis.call('PEXPIRE', filter, keep)
  if is_among(4) then return {stamp, tostring(row)} end
  return {stamp, tostring(row), redis.call('HGET', filter, 'value')}
elseif act == 'write' then
  local new = ARGV[5]
  if stamp == 'removed' then return -1 end
  if stamp and stamp ~= new and not is_among(7) then return 0 end
  local row = stamp and now[2] == replica and now[3] or ARGV[4]
  redis.call('HSET', filter, 'stamp', new, 'value', ARGV[6], 'by', replica, 'row', row)
  redis.call('PEXPIRE', filter, keep)
  return 1
end
if stamp == 'removed' or (not stamp and ARGV[4] ~= '1') then return 0 end
redis.call('DEL', filter)
redis.call('HSET', filter, 'stamp', 'removed')
redis.call('PEXPIRE', filter, keep)
return 1
