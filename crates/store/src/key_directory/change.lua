-- Replaces an entry of the directory if it is as it was read, counts the change and publishes it, all at once.
--   KEYS: the hash, the number of the last change
--   ARGV: channel, id, value, what was read (`=` and the value, or nothing where there was no entry), the last
--     microsecond by the clock of this server, entries at most, the least number of the last change
-- Answers the number of the change, or what kept it from being made: `late`, `lost`, `changed` or `full`.
local channel, id, value, read = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local time = redis.call('TIME')
-- A server that hung must not make a change that its caller has given up.
if time[1] * 1000000 + time[2] > tonumber(ARGV[5]) then return 'late' end
if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[7]) then return 'lost' end
local found = redis.call('HGET', KEYS[1], id)
if (found and '=' .. found or '') ~= read then return 'changed' end
if not found and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[6]) then return 'full' end
redis.call('HSET', KEYS[1], id, value)
local version = redis.call('INCR', KEYS[2])
redis.call('PUBLISH', channel, version .. ' ' .. id)
return version
