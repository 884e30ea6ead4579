#!lua name=flockmq_home_2
-- What Redis itself checks of a slot's durable sessions. A slot's keys share one hash tag, flockmq:{sN}:
--   :fence   "generation-sequence incarnation number": who may write, and the number of its last batch
--   :ids     set: the client ids that have a session
--   :c:ID    hash: one session
--   :marks   hash: source of messages -> the last number that was taken from it
-- A batch names what :fence must be before it and what it is afterwards. So a deposed owner does no harm; a batch that
-- comes again is known, and not applied over what came later; and a Redis that lost a batch is found out. :fence is
-- set last: a function may fail amid a batch, when its hash slot is being moved to another master and it deleted a key
-- that it then puts, and a repeat writes it as a whole.

-- Lua's stack takes some 8000 values at once; even, because a field and its value stay together.
local CHUNK = 4000

local function parse(fence)
  local generation, sequence, incarnation = string.match(fence, '^(%d+)%-(%d+) (%S+)')
  return tonumber(generation), tonumber(sequence), incarnation
end

local function above(fence, other)
  local generation, sequence, incarnation = parse(fence)
  local other_generation, other_sequence, other_incarnation = parse(other)
  if generation ~= other_generation then
    return generation > other_generation
  end
  if sequence ~= other_sequence then
    return sequence > other_sequence
  end
  return incarnation > other_incarnation
end

-- As Redis answers where a key has another type: an owner then leaves the slot alone, and says why.
local function not_a_fence(fence)
  if fence and not parse(fence) then
    return redis.error_reply('WRONGTYPE it holds something else than a fence')
  end
end

local function call_many(command, key, args, first, last)
  for at = first, last, CHUNK do
    redis.call(command, key, unpack(args, at, math.min(at + CHUNK - 1, last)))
  end
end

local function client_id(fence_key, session_key)
  return string.sub(session_key, #fence_key - #'fence' + #'c:' + 1)
end

-- Keys: fence, ids, then hashes. Arguments: the fence before, the fence after, then for each hash: K (it goes on), B (a
-- session begins), E (it ends) or R (it ends and begins anew); how many arguments are fields and values to put; how many
-- are fields to delete; and both. Answers 1; FENCED: a higher owner took the slot; LOST: Redis lost what it answered.
local function write(keys, args)
  local fence, before, after = redis.call('GET', keys[1]), args[1], args[2]
  if fence ~= before and fence ~= after then
    local wrong = not_a_fence(fence)
    if wrong then
      return wrong
    end
    if fence and above(fence, after) then
      return redis.error_reply('FENCED ' .. fence)
    end
    return redis.error_reply('LOST ' .. (fence or 'all'))
  end
  if fence == after then
    redis.call('SET', keys[1], after) -- WAIT counts from the last write of its connection
    return 1
  end
  local at = 3
  for i = 3, #keys do
    local key, verb, puts, deletes = keys[i], args[at], tonumber(args[at + 1]), tonumber(args[at + 2])
    local put_at = at + 3
    local delete_at = put_at + puts
    at = delete_at + deletes
    if verb == 'E' or verb == 'R' then
      redis.call('UNLINK', key)
    end
    if verb == 'E' then
      redis.call('SREM', keys[2], client_id(keys[1], key))
    elseif verb ~= 'K' then
      redis.call('SADD', keys[2], client_id(keys[1], key))
    end
    if puts > 0 then
      call_many('HSET', key, args, put_at, delete_at - 1)
    end
    if deletes > 0 then
      call_many('HDEL', key, args, delete_at, at - 1)
    end
  end
  redis.call('SET', keys[1], after)
  return 1
end

-- Key: fence. Arguments: the owner's fence, the number it counts on from. From here on nothing of a lower owner is
-- accepted. Answers 1; FENCED: a higher owner took the slot.
local function take(keys, args)
  local fence = redis.call('GET', keys[1])
  local wrong = not_a_fence(fence)
  if wrong then
    return wrong
  end
  if fence and above(fence, args[1]) then
    return redis.error_reply('FENCED ' .. fence)
  end
  redis.call('SET', keys[1], args[1] .. ' ' .. args[2])
  return 1
end

-- A Redis that is full refuses the first of these only. `full` is for what was taken in before: it is bounded, and its
-- deletes make room.
local full = { 'allow-oom' }
redis.register_function('flockmq_home_write_2', write)
redis.register_function({ function_name = 'flockmq_home_write_full_2', callback = write, flags = full })
redis.register_function({ function_name = 'flockmq_home_take_2', callback = take, flags = full })
