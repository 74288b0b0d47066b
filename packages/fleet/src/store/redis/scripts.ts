/**
 * The Lua scripts of the Redis store. Each call of the store is one of them, so each is atomic.
 *
 * Keys, all with the hash tag `{prefix}`, so that a cluster keeps them on one node:
 *
 *   meta      hash   epoch, seq (the last one given), horizon, reader
 *   commits   zset   id of a commit → its seq
 *   rows      hash   row key → body, of the rows that exist
 *   seqs      zset   row key → seq of its last write, of deleted rows too
 *   markers   zset   row key → the same seq, of deleted rows only
 *   kept-…           the same three for `KEPT_TABLES`, so that a new epoch drops the others at once
 *
 * Invariants
 * - A seq is the server's time in microseconds, or the last seq plus one where that is more. So a seq tells its age, and
 *   a server that lost its last commits does not give their numbers again.
 * - A script writes nothing before its first command that needs memory. A script without the flag `allow-oom` does not
 *   start on a server that is out of memory. So no script is applied in part.
 * - No script has the flag `no-writes`: a replica refuses all of them, and reads come from the master only.
 * - The work of a script is bounded by the rows it names, and `PURGED_MAX` old entries of each kind.
 * - Scores are compared as numbers: servers print them in different ways.
 */

import { createHash } from "node:crypto";
import { COMMITS_KEPT_MS, KEPT_TABLES, MARKERS_KEPT_MS } from "../rows/row-server.ts";

export interface Script {
  readonly name: string;
  readonly text: string;
  /** The server knows the script by it. */
  readonly hash: string;
}

/** Bump it when an older version of Sandlot could not read what this one writes. */
export const FORMAT = 1;
/** How many old entries of a kind one commit removes. A commit adds one id, so more than one per commit keeps up. */
const PURGED_MAX = 8;
/** Lua passes the members of a call on its stack, which is bounded. */
const PURGED_IN_A_CALL_MAX = 1_000;

export interface Keys {
  /** In the order of `NAMES`, as every script expects them. */
  readonly all: readonly string[];
  /** The channel for topics. */
  readonly channel: string;
}

const NAMES = ["meta", "commits", "rows", "seqs", "markers", "kept-rows", "kept-seqs", "kept-markers"];
const TYPES = ["hash", "zset", "hash", "zset", "zset", "hash", "zset", "zset"];

export function keysOf(prefix: string): Keys {
  return { all: NAMES.map((name) => `{${prefix}}:${name}`), channel: `{${prefix}}:topics` };
}

/** Every script begins with it. `proposal` becomes the epoch of a store that has none: a new or a flushed one. */
const BEGIN = `
local META, COMMITS = KEYS[1], KEYS[2]
local LIVE = { rows = KEYS[3], seqs = KEYS[4], markers = KEYS[5] }
local KEPT = { rows = KEYS[6], seqs = KEYS[7], markers = KEYS[8] }
local KEPT_TABLES = { ${KEPT_TABLES.map((table) => `[${luaText(table)}] = true`).join(", ")} }

local function shelf(key)
  return KEPT_TABLES[string.match(key, '^([^/]*)/')] and KEPT or LIVE
end
local function text(number)
  return string.format('%.0f', number)
end

local clock = redis.call('TIME')
local micros = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now = math.floor(micros / 1000)
local meta = redis.call('HMGET', META, 'epoch', 'seq', 'horizon')
local epoch, last, horizon = meta[1], tonumber(meta[2] or 0), tonumber(meta[3] or 0)
local function next_seq()
  last = math.max(last + 1, micros)
  return text(last)
end
local function begin(next_epoch)
  local seq = next_seq()
  redis.call('HSET', META, 'epoch', next_epoch, 'seq', seq, 'horizon', seq, 'reader', ${FORMAT})
  redis.call('ZADD', COMMITS, seq, 'epoch ' .. next_epoch)
  epoch, horizon = next_epoch, last
end
if not epoch then begin(ARGV[1]) end
`;

/** Removes ids and markers that are old enough. A cursor from before the newest removed marker misses a deletion. */
const PURGE = `
local function purge(limit)
  local old = redis.call('ZRANGE', COMMITS, '-inf', text(micros - ${COMMITS_KEPT_MS * 1000}), 'BYSCORE', 'LIMIT', 0, limit)
  if #old > 0 then redis.call('ZREM', COMMITS, unpack(old)) end
  local removed = #old
  for _, family in ipairs({ LIVE, KEPT }) do
    old = redis.call('ZRANGE', family.markers, '-inf', text(micros - ${MARKERS_KEPT_MS * 1000}), 'BYSCORE', 'LIMIT', 0, limit)
    if #old > 0 then
      horizon = math.max(horizon, tonumber(redis.call('ZSCORE', family.markers, old[#old])))
      redis.call('HSET', META, 'horizon', text(horizon))
      redis.call('ZREM', family.seqs, unpack(old))
      redis.call('ZREM', family.markers, unpack(old))
      removed = removed + #old
    end
  end
  return removed
end
`;

/**
 * ARGV: proposal, id, epoch, seenAt, notAfter, isDurable, channel, and the numbers of seen, reads, writes, deletions and
 * topics; then these: ids; pairs of key and seq; pairs of key and body; keys; topics.
 */
const COMMIT = script(
  "commit",
  "",
  `${BEGIN}${PURGE}
local id, known_epoch, seen_at, not_after, is_durable, channel = unpack(ARGV, 2, 7)
local seen_count, read_count, write_count, deletion_count, topic_count = unpack(ARGV, 8, 12)
local at = 13

if epoch ~= known_epoch then return { 'new-epoch', now, epoch } end

local done = redis.call('ZSCORE', COMMITS, id)
if done then
  -- WAIT counts the writes of its own connection, and the first attempt may have used another.
  if is_durable == '1' then redis.call('HINCRBY', META, 'retries', 1) end
  return { 'committed', now, done }
end

if now - tonumber(seen_at) <= ${COMMITS_KEPT_MS / 2} then
  for index = at, at + seen_count - 1 do
    if not redis.call('ZSCORE', COMMITS, ARGV[index]) then return { 'rewound', now } end
  end
end
at = at + seen_count

if now > tonumber(not_after) then return { 'late', now } end

local differing
for index = at, at + 2 * read_count - 1, 2 do
  local key = ARGV[index]
  local family = shelf(key)
  local seq = redis.call('ZSCORE', family.seqs, key) or '0'
  if tonumber(seq) ~= tonumber(ARGV[index + 1]) then
    differing = differing or { 'conflict', now }
    differing[#differing + 1] = key
    differing[#differing + 1] = seq
    differing[#differing + 1] = redis.call('HGET', family.rows, key)
  end
end
if differing then return differing end
at = at + 2 * read_count

local function publish(from)
  for index = from, from + topic_count - 1 do redis.call('PUBLISH', channel, ARGV[index]) end
end
-- A commit that only checks is not remembered: its retry checks again.
if write_count + deletion_count == 0 then
  publish(at)
  return { 'committed', now, text(last) }
end

local seq = next_seq()
redis.call('ZADD', COMMITS, seq, id)
redis.call('HSET', META, 'seq', seq)
for index = at, at + 2 * write_count - 1, 2 do
  local key = ARGV[index]
  local family = shelf(key)
  redis.call('HSET', family.rows, key, ARGV[index + 1])
  redis.call('ZADD', family.seqs, seq, key)
  redis.call('ZREM', family.markers, key)
end
at = at + 2 * write_count
for index = at, at + deletion_count - 1 do
  local key = ARGV[index]
  local family = shelf(key)
  redis.call('HDEL', family.rows, key)
  redis.call('ZADD', family.seqs, seq, key)
  redis.call('ZADD', family.markers, seq, key)
end
at = at + deletion_count
publish(at)
purge(math.min(${PURGED_MAX} + deletion_count, ${PURGED_IN_A_CALL_MAX}))
return { 'committed', now, seq }
`,
);

/** ARGV: proposal, then row keys. Answers now, epoch, and for each key its seq and body. */
const READ = script(
  "read",
  "allow-oom",
  `${BEGIN}
local answer = { now, epoch }
for index = 2, #ARGV do
  local key = ARGV[index]
  local family = shelf(key)
  answer[#answer + 1] = redis.call('ZSCORE', family.seqs, key) or '0'
  answer[#answer + 1] = redis.call('HGET', family.rows, key)
end
return answer
`,
);

/**
 * ARGV: proposal, limit, and the cursor: epoch ('' for a first page), seq, base, 'full' or 'since', key.
 *
 * A page continues after the row `key` with the number `seq`. Rows of one commit share a number, so a page may end
 * between them. `base` is the last number that was given when the page was made, or the first page of a full scan. A full
 * scan leaves out what was deleted before its `base`.
 *
 * A cursor is too old if a marker after it was purged. It is also too old if the server does not know the commit with
 * the number `base`: the server has lost it, and may give lower numbers to later commits.
 */
const SCAN = script(
  "scan",
  "allow-oom",
  `${BEGIN}
local limit, known_epoch, seq, base, kind, key = unpack(ARGV, 2, 7)
limit, seq, base = tonumber(limit), tonumber(seq), tonumber(base)

if known_epoch == '' then base = last
elseif epoch ~= known_epoch or (kind == 'full' and base or seq) < horizon then return { now, epoch }
elseif base ~= last and #redis.call('ZRANGE', COMMITS, text(base), text(base), 'BYSCORE', 'LIMIT', 0, 1) == 0 then
  return { now, epoch }
end

-- As the server orders members with one score. Lua's own comparison depends on the locale.
local function before(one, other)
  for index = 1, math.min(#one, #other) do
    local left, right = string.byte(one, index), string.byte(other, index)
    if left ~= right then return left < right end
  end
  return #one < #other
end
local function rest(family)
  local found = {}
  if key ~= '' then
    local same = redis.call('ZRANGE', family.seqs, text(seq), text(seq), 'BYSCORE')
    for _, member in ipairs(same) do
      if before(key, member) then
        found[#found + 1] = member
        found[#found + 1] = text(seq)
      end
    end
  end
  local later = redis.call('ZRANGE', family.seqs, '(' .. text(seq), '+inf', 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
  for _, value in ipairs(later) do found[#found + 1] = value end
  return found
end

local live, kept = rest(LIVE), rest(KEPT)
local answer = { now, epoch, 0, text(last), '', text(last), 'since' }
local a, b, taken = 1, 1, 0
while taken < limit and (live[a] or kept[b]) do
  local family
  local one, other = tonumber(live[a + 1]), tonumber(kept[b + 1])
  if not other or (one and (one < other or (one == other and before(live[a], kept[b])))) then
    family, key, seq, a = LIVE, live[a], one, a + 2
  else
    family, key, seq, b = KEPT, kept[b], other, b + 2
  end
  local body = redis.call('HGET', family.rows, key)
  if body or kind == 'since' or seq > base then
    answer[#answer + 1] = key
    answer[#answer + 1] = text(seq)
    answer[#answer + 1] = body
  end
  taken = taken + 1
end
if taken == limit then
  answer[3], answer[4], answer[5] = 1, text(seq), key
  if kind == 'full' then answer[6], answer[7] = text(base), kind end
end
return answer
`,
);

/** ARGV: proposal, the known epoch, the next one. Answers the present one. */
const BEGIN_EPOCH = script(
  "begin-epoch",
  "allow-oom",
  `${BEGIN}
if epoch == ARGV[2] then
  begin(ARGV[3])
  redis.call('UNLINK', LIVE.rows, LIVE.seqs, LIVE.markers)
end
return { now, epoch }
`,
);

/** For a server that is out of memory, where no commit runs. ARGV: proposal, limit. Answers how many entries it removed. */
const RELIEVE = script("relieve", "allow-oom", `${BEGIN}${PURGE}return purge(tonumber(ARGV[2]))`);

/** What the scripts call, with arguments that fit: `K` is one of our keys. */
const CALLS = [
  "TIME",
  "HMGET K f",
  "HGET K f",
  "HSET K f v",
  "HDEL K f",
  "HINCRBY K f 1",
  "ZADD K 1 m",
  "ZREM K m",
  "ZRANGE K 0 1 BYSCORE",
  "ZSCORE K m",
  "UNLINK K",
  "PUBLISH C m",
];

/**
 * Run on every new connection, before anything is written. A right that is missing, or a key of another program, would
 * end a later script in the middle, with half of its writes. ARGV: proposal, channel. Answers one of
 *   rights, what this user may not do;  type, the key that holds something else;  ready, now, the format to know.
 */
const GREET = script(
  "greet",
  "allow-oom",
  `local CALLS = { ${CALLS.map((call) => `{ ${call.split(" ").map(luaText).join(", ")} }`).join(", ")} }
local TYPES = { ${TYPES.map(luaText).join(", ")} }
for _, call in ipairs(CALLS) do
  for _, key in ipairs(KEYS) do
    local words = {}
    for index, word in ipairs(call) do words[index] = word == 'K' and key or word == 'C' and ARGV[2] or word end
    if not redis.acl_check_cmd(unpack(words)) then return { 'rights', call[1] .. ' ' .. (words[2] or '') } end
  end
end
for index, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' and kind ~= TYPES[index] then return { 'type', key } end
end
${BEGIN}
return { 'ready', now, tonumber(redis.call('HGET', META, 'reader') or 0) }
`,
);

export const SCRIPTS = {
  commit: COMMIT,
  read: READ,
  scan: SCAN,
  beginEpoch: BEGIN_EPOCH,
  relieve: RELIEVE,
  greet: GREET,
} as const;

function script(name: string, flags: string, body: string): Script {
  const text = `#!lua${flags === "" ? "" : ` flags=${flags}`}\n${body}`;
  return { name, text, hash: createHash("sha1").update(text).digest("hex") };
}

function luaText(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}
