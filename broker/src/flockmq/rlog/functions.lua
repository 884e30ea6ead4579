#!lua name=flockmq_rlog_1
-- What Redis itself checks of a shard's log. Every function takes the keys of one shard, in this order:
--   1 log        the stream
--   2 life       "generation:run_id": the unbroken life of Redis that this log is written in
--   3 sequences  hash: registered incarnation -> "number id" of its last transaction
--   4 purged     sorted set: purged incarnation -> when, in seconds; the oldest are forgotten
--   5 fence      the highest fence of a leader that was seen here, "generation-number"
-- All but seal and seed name the life that their connection was opened in. If it is not the stored one, Redis
-- restarted or was replaced: the answer is the error LIFE, and a core must seal or seed the next generation first.
-- What only a leader does names its fence too. A lower one than the highest that was seen is answered with the error
-- FENCE: another core leads by now.
-- The keys but the log itself can be rebuilt from any core's tables.

local function life_of(keys)
  return redis.call('GET', keys[2]) or ''
end

local function wrong_life(keys, life)
  if life_of(keys) ~= life then
    return redis.error_reply('LIFE ' .. life_of(keys))
  end
end

local function before(id, other)
  local generation, sequence = string.match(id, '^(%d+)-(%d+)$')
  local other_generation, other_sequence = string.match(other, '^(%d+)-(%d+)$')
  generation, other_generation = tonumber(generation), tonumber(other_generation)
  return generation < other_generation
    or generation == other_generation and tonumber(sequence) < tonumber(other_sequence)
end

local function not_leading(keys, life, fence)
  local refused = wrong_life(keys, life)
  if refused then
    return refused
  end
  local highest = redis.call('GET', keys[5])
  if highest and before(fence, highest) then
    return redis.error_reply('FENCE ' .. highest)
  end
  if fence ~= highest then
    redis.call('SET', keys[5], fence)
  end
end

local function add(keys, life, field, value)
  return redis.call('XADD', keys[1], string.match(life, '^%d+') .. '-*', field, value)
end

-- As encode_batch in entry.py: the header of a msgpack array of 32-bit length, then the transactions.
local function add_batch(keys, life, transactions)
  return add(keys, life, 'b', '\221' .. struct.pack('>I4', #transactions) .. table.concat(transactions))
end

local function mark_of(keys, incarnation)
  local mark = redis.call('HGET', keys[3], incarnation)
  if not mark then
    return nil
  end
  local number, id = string.match(mark, '^(%d+) (.*)$')
  return { number = tonumber(number), id = id }
end

-- life, then groups of: incarnation, number of its first transaction, how many, the transactions.
-- Answers each group with the Stream ID it is applied by, "GAP expected" or "UNREGISTERED". What was taken before is not
-- taken again, and answered with the ID of that incarnation's last entry; what is new makes one entry.
local function append(keys, args)
  local refused = wrong_life(keys, args[1])
  if refused then
    return refused
  end
  local marks, accepted, answers, answered_by = {}, {}, {}, {}
  local at = 2
  while at <= #args do
    local incarnation, first, count = args[at], tonumber(args[at + 1]), tonumber(args[at + 2])
    local start = at + 3
    at = start + count
    local mark = marks[incarnation] or mark_of(keys, incarnation)
    if not mark then
      answers[#answers + 1] = 'UNREGISTERED'
    elseif first > mark.number + 1 then
      answers[#answers + 1] = 'GAP ' .. string.format('%d', mark.number + 1)
    else
      for i = start + (mark.number + 1 - first), at - 1 do
        accepted[#accepted + 1] = args[i]
        mark.number = mark.number + 1
        mark.id = nil
      end
      marks[incarnation] = mark
      answers[#answers + 1] = ''
      answered_by[#answers] = mark
    end
  end
  local id = #accepted > 0 and add_batch(keys, args[1], accepted)
  for incarnation, mark in pairs(marks) do
    if not mark.id then
      mark.id = id
      redis.call('HSET', keys[3], incarnation, string.format('%d', mark.number) .. ' ' .. id)
    end
  end
  for i, mark in pairs(answered_by) do
    answers[i] = mark.id
  end
  return answers
end

-- life, incarnation, the registering transaction. Answers the Stream ID, or "PURGED".
local function register(keys, args)
  local refused = wrong_life(keys, args[1])
  if refused then
    return refused
  end
  if redis.call('ZSCORE', keys[4], args[2]) then
    return 'PURGED'
  end
  local mark = mark_of(keys, args[2])
  if mark then
    return mark.id
  end
  local id = add_batch(keys, args[1], { args[3] })
  redis.call('HSET', keys[3], args[2], '0 ' .. id)
  return id
end

-- life, fence, incarnation, the purging transaction, how many purged incarnations to remember. Answers the Stream ID, or
-- "UNREGISTERED": nothing to purge.
local function purge(keys, args)
  local refused = not_leading(keys, args[1], args[2])
  if refused then
    return refused
  end
  local known = redis.call('HDEL', keys[3], args[3]) == 1
  redis.call('ZADD', keys[4], redis.call('TIME')[1], args[3])
  redis.call('ZREMRANGEBYRANK', keys[4], 0, -tonumber(args[5]) - 1)
  if not known then
    return 'UNREGISTERED'
  end
  return add_batch(keys, args[1], { args[4] })
end

-- life, fence. Answers the Stream ID.
local function checkpoint(keys, args)
  return not_leading(keys, args[1], args[2]) or add(keys, args[1], 'c', '')
end

-- life, fence, the first ID to keep. Answers it.
local function trim(keys, args)
  local refused = not_leading(keys, args[1], args[2])
  if refused then
    return refused
  end
  redis.call('XTRIM', keys[1], 'MINID', args[3])
  return args[3]
end

local function last_id(keys)
  local last = redis.call('XREVRANGE', keys[1], '+', '-', 'COUNT', 1)[1]
  return last and last[1] or '0-0'
end

-- The next generation on the log that Redis holds: the life to replace, the new life, the highest ID the cores know.
-- Answers the ID of the seal, or the error BEHIND if the log ends before it.
local function seal(keys, args)
  local refused = wrong_life(keys, args[1])
  if refused then
    return refused
  end
  local last = last_id(keys)
  if before(last, args[3]) then
    return redis.error_reply('BEHIND ' .. last)
  end
  redis.call('SET', keys[2], args[2])
  return add(keys, args[2], 's', last)
end

-- The next generation on a new log: the life to replace, the new life, the ID of the tables it builds on, then their
-- incarnations and numbers. Answers the ID of the seal.
local function seed(keys, args)
  local refused = wrong_life(keys, args[1])
  if refused then
    return refused
  end
  redis.call('UNLINK', keys[1], keys[3])
  redis.call('SET', keys[2], args[2])
  local id = add(keys, args[2], 's', args[3])
  for at = 4, #args, 2 do
    redis.call('HSET', keys[3], args[at], args[at + 1] .. ' ' .. id)
  end
  return id
end

-- A Redis that is full refuses the first of these only. The others are small, or make room, or give back what was there;
-- `append_full` is for shards whose rows are few.
redis.register_function('flockmq_append_1', append)
local function also_when_full(verb, callback)
  redis.register_function({ function_name = 'flockmq_' .. verb .. '_1', callback = callback, flags = { 'allow-oom' } })
end
also_when_full('append_full', append)
also_when_full('register', register)
also_when_full('purge', purge)
also_when_full('checkpoint', checkpoint)
also_when_full('trim', trim)
also_when_full('seal', seal)
also_when_full('seed', seed)
