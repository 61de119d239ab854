#include "brokers/redis/scripts.h"

#include "brokers/redis/config.h"

namespace outbox::redis {
namespace {

std::string key_of(std::string_view producer, std::string_view what) {
    return std::string(kOwnKeys) + "{" + std::string(producer) + "}:" + std::string(what);
}

}  // namespace

// A script is not rolled back: what a batch needs behind its first entry is tried before, as
// entries that nobody hears of come again and again. Nothing stays of it.
const std::string_view kBeginScript = R"lua(
local needed = {{'HMGET', KEYS[1], 'session'}, {'HEXISTS', KEYS[1], 'session'}, {'HDEL', KEYS[1], ''}}
if ARGV[1] ~= '0' then
    needed[#needed + 1] = {'LTRIM', KEYS[2], 0, -1}
    needed[#needed + 1] = {'RPUSH', KEYS[2], ''}
    needed[#needed + 1] = {'LTRIM', KEYS[2], 0, -2}
end
for _, command in ipairs(needed) do
    local tried = redis.pcall(unpack(command))
    if type(tried) == 'table' and tried.err then
        return redis.error_reply(tried.err .. ' (' .. command[1] .. ')')
    end
end
local before = redis.call('HMGET', KEYS[1], 'session', 'batch')
local session = redis.pcall('HINCRBY', KEYS[1], 'session', 1)
if type(session) == 'table' then return session end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'session', session, 'batch', 0)
if ARGV[2] ~= '0' then redis.pcall('EXPIRE', KEYS[1], ARGV[2]) end
if ARGV[1] == '0' then
    redis.call('DEL', KEYS[2])
    return {session, {}, before[1] or '', before[2] or ''}
end
redis.call('LTRIM', KEYS[2], -ARGV[1], -1)
return {session, redis.call('LRANGE', KEYS[2], 0, -1), before[1] or '', before[2] or ''}
)lua";

const std::string_view kBatchScript = R"lua(
local state = redis.pcall('HMGET', KEYS[1], 'session', 'batch', 'closed')
if state.err then return state end
if not state[1] then return redis.error_reply('NOSCRIPT the session is not known any more') end
if state[1] ~= ARGV[1] then
    return redis.error_reply('FENCED session ' .. state[1] .. ' has begun after ' .. ARGV[1])
end
if tonumber(state[2]) + 1 ~= tonumber(ARGV[2]) then
    return redis.error_reply('NOSCRIPT batch ' .. ARGV[2] .. ' does not follow ' .. state[2])
end
local noted = redis.pcall('HSET', KEYS[1], 'batch', ARGV[2])
if type(noted) == 'table' then return noted end
if ARGV[3] ~= '0' then
    for _, command in ipairs({{'LTRIM', KEYS[2], 0, -1}, {'RPUSH', KEYS[2], ''},
                              {'LTRIM', KEYS[2], 0, -2}}) do
        local tried = redis.pcall(unpack(command))
        if type(tried) == 'table' and tried.err then
            return redis.error_reply(tried.err .. ' (' .. command[1] .. ')')
        end
    end
end

local closed = tonumber(state[3] or 0)
local at = 7
for _ = 1, tonumber(ARGV[5]) do
    local opened = redis.call('HDEL', KEYS[1], 'closed:' .. ARGV[at])
    if opened == 1 then closed = redis.call('HINCRBY', KEYS[1], 'closed', -1) end
    at = at + 1
end

local ids, failed, index = {}, {}, 0
while at <= #ARGV do
    local stream, last = ARGV[at], at + 1 + tonumber(ARGV[at + 1])
    local problem = nil
    if closed > 0 and redis.call('HEXISTS', KEYS[1], 'closed:' .. stream) == 1 then
        problem = ''
    else
        local added
        if ARGV[4] == '0' then
            added = redis.pcall('XADD', stream, '*', unpack(ARGV, at + 2, last))
        else
            added = redis.pcall('XADD', stream, 'MAXLEN', '~', ARGV[4], '*',
                                unpack(ARGV, at + 2, last))
        end
        if type(added) == 'table' then
            problem = added.err
            redis.call('HSET', KEYS[1], 'closed:' .. stream, 1)
            closed = redis.call('HINCRBY', KEYS[1], 'closed', 1)
        else
            ids[#ids + 1] = ARGV[at + 3]
        end
    end
    if problem then
        failed[#failed + 1] = index
        failed[#failed + 1] = problem
    end
    index = index + 1
    at = last + 1
end
if ARGV[3] ~= '0' and #ids > 0 then
    redis.call('RPUSH', KEYS[2], unpack(ids))
    redis.call('LTRIM', KEYS[2], -ARGV[3], -1)
end
if ARGV[6] ~= '0' then
    redis.pcall('EXPIRE', KEYS[1], ARGV[6])
    redis.pcall('EXPIRE', KEYS[2], ARGV[6])
end
return failed
)lua";

const std::string_view kProbeScript = R"lua(
for _, command in ipairs({{'SETRANGE', KEYS[1], 0, ''}, {'DEL', KEYS[1]},
                          {'HINCRBY', KEYS[1], 'n', 1}, {'HSET', KEYS[1], 'n', 0},
                          {'HMGET', KEYS[1], 'n'}, {'HEXISTS', KEYS[1], 'n'},
                          {'HDEL', KEYS[1], 'n'}, {'LTRIM', KEYS[1], 0, -1},
                          {'LRANGE', KEYS[1], 0, -1}, {'RPUSH', KEYS[1], ''},
                          {'DEL', KEYS[1]}}) do
    local tried = redis.pcall(unpack(command))
    if type(tried) == 'table' and tried.err then
        redis.pcall('DEL', KEYS[1])
        return redis.error_reply(tried.err .. ' (' .. command[1] .. ')')
    end
end
return 1
)lua";

std::string session_key(std::string_view producer) {
    return key_of(producer, "session");
}

std::string ids_key(std::string_view producer) {
    return key_of(producer, "ids");
}

std::string probe_key(std::string_view producer) {
    return key_of(producer, "probe");
}

}  // namespace outbox::redis
