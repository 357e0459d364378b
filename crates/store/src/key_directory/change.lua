-- Changes the directory, counts the change and publishes it, all at once.
--   KEYS: the hash, the number of the last change
--   ARGV: channel, put or delete, id, value, entries at most
-- Answers 1 when it was done, 0 when there was nothing to delete or no room.
local channel, act, id, value, entries_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
if act == 'put' then
  local is_new = redis.call('HEXISTS', KEYS[1], id) == 0
  if is_new and redis.call('HLEN', KEYS[1]) >= entries_max then return 0 end
  redis.call('HSET', KEYS[1], id, value)
elseif redis.call('HDEL', KEYS[1], id) == 0 then
  return 0
end
local version = redis.call('INCR', KEYS[2])
redis.call('PUBLISH', channel, version .. ' ' .. id)
return 1
