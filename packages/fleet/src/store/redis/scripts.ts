/**
 * The Lua scripts of the Redis store. Each call of the store is one of them, so each is atomic.
 *
 * Keys, all with the hash tag `{prefix}`, so that a cluster keeps them on one node:
 *
 *   rows    hash   :<row key> → body          of each row that exists
 *                  #<id> → seq                of each remembered commit
 *                  !epoch, !seq (the last one given), !horizon, !purged, !reader
 *   index   zset   :<row key> → seq           of each row, also of a deleted one
 *                  #<id> → −seq               what can be forgotten, the oldest next to 0
 *                  -<row key> → −seq          the same for the marker of a deleted row
 *   kept-rows, kept-index                     rows of `KEPT_TABLES`; a new epoch drops only the others
 *
 * Invariants
 * - A seq is the server's time in microseconds, or the last seq plus one where that is more. So a seq tells its age, and
 *   a server that lost its last commits does not give their numbers again.
 * - A commit is two writes, an `HSET` and a `ZADD`; each write costs the server more than all checks together. The rows of
 *   kept tables and deletions take further ones.
 * - A script without the flag `allow-oom` does not start on a server that is out of memory, and `greet` has checked all
 *   rights. So no script ends in the middle.
 * - No script has the flag `no-writes`: a replica refuses all of them, and reads come from the master only.
 * - The work of a script is bounded by the rows that it names, and `PURGED_MAX` old entries.
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
/**
 * Old entries are removed by a commit now and then, and so many at most. This keeps up with 10,000 commits a second; one
 * commit in fifty milliseconds takes up to a millisecond longer.
 */
const PURGE_EVERY_MS = 50;
const PURGED_MAX = 500;
/** Lua passes the arguments of a call on its stack, which has room for some thousands. */
const CHUNK = 1_000;

export interface Keys {
  /** As every script expects them. */
  readonly all: readonly string[];
  /** The channel for topics. */
  readonly channel: string;
}

const NAMES = ["rows", "index", "kept-rows", "kept-index"];
const TYPES = ["hash", "zset", "hash", "zset"];

export function keysOf(prefix: string): Keys {
  return { all: NAMES.map((name) => `{${prefix}}:${name}`), channel: `{${prefix}}:topics` };
}

/**
 * Reads the clock, and `fields` of the rows. ARGV[1] becomes the epoch of a store that has none: a new or a flushed one.
 */
function begin(fields = ""): string {
  return `
local function text(number) return string.format('%.0f', number) end
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)
local known = redis.call('HMGET', KEYS[1], '!epoch', '!seq', '!horizon', '!purged'${fields})
local epoch, last, horizon = known[1], tonumber(known[2] or 0), tonumber(known[3] or 0)
local function begin(next_epoch)
  last = math.max(last + 1, micros)
  epoch, horizon = next_epoch, last
  local seq = text(last)
  redis.call('HSET', KEYS[1], '!epoch', epoch, '!seq', seq, '!horizon', seq, '!reader', ${FORMAT})
  redis.call('ZADD', KEYS[2], '-' .. seq, '#epoch ' .. epoch)
end
if not epoch then begin(ARGV[1]) end
`;
}

/** A cursor from before the newest removed marker misses a deletion: it is behind the horizon. */
const PURGE = `
local function purge(limit)
  local before = '-' .. text(micros - ${Math.max(COMMITS_KEPT_MS, MARKERS_KEPT_MS) * 1000})
  local removed = 0
  for family = 1, 3, 2 do
    local rows, index = KEYS[family], KEYS[family + 1]
    local old = redis.call('ZRANGE', index, '(0', before, 'BYSCORE', 'REV', 'LIMIT', 0, limit, 'WITHSCORES')
    local fields, members = {}, {}
    for at = 1, #old, 2 do
      local member, seq = old[at], -old[at + 1]
      members[#members + 1] = member
      if string.sub(member, 1, 1) == '#' then fields[#fields + 1] = member
      else
        local row = ':' .. string.sub(member, 2)
        -- A row that was written again has no marker any more, or a younger one.
        if tonumber(redis.call('ZSCORE', index, row)) == seq and redis.call('HEXISTS', rows, row) == 0 then
          members[#members + 1] = row
          horizon = math.max(horizon, seq)
        end
      end
    end
    if #fields > 0 then redis.call('HDEL', rows, unpack(fields)) end
    if #members > 0 then redis.call('ZREM', index, unpack(members)) end
    removed = removed + #members
  end
  redis.call('HSET', KEYS[1], '!horizon', text(horizon), '!purged', text(micros))
  return removed
end
`;

/**
 * `commit-arguments.ts` makes ARGV: proposal, epoch, seenAt, notAfter, isDurable, channel; the numbers of seen and topics;
 * for the ordinary and for the kept tables the numbers of reads, writes and deletions; the number of ids; then ids, seen,
 * topics; and for both kinds of tables the keys and the seqs of reads, pairs of key and body, and deleted keys. Several ids
 * are commits that were joined: they take effect together or not at all.
 */
const COMMIT = script(
  "commit",
  "",
  `local seen_count, topic_count = tonumber(ARGV[7]), tonumber(ARGV[8])
local CHUNK, IDS_AT, id_count = ${CHUNK}, 16, tonumber(ARGV[15])
local seen_at = IDS_AT + id_count
${begin(", unpack(ARGV, IDS_AT, seen_at + seen_count - 1)")}${PURGE}
if epoch ~= ARGV[2] then return { 'new-epoch', now, epoch } end
if id_count > 1 then
  for index = 5, 4 + id_count do
    if known[index] then return { 'split', now } end
  end
elseif known[5] then
  -- WAIT counts the writes of its own connection, and the first attempt may have used another.
  if ARGV[5] == '1' then redis.call('HSET', KEYS[1], '!retried', now) end
  return { 'committed', now, known[5] }
end
if now - ARGV[3] <= ${COMMITS_KEPT_MS / 2} then
  for index = 5 + id_count, 4 + id_count + seen_count do
    if not known[index] then return { 'rewound', now } end
  end
end
if now > tonumber(ARGV[4]) then return { 'late', now } end

local topics_at = seen_at + seen_count
local reads_at = topics_at + topic_count
local differing
local at = reads_at
for family = 0, 1 do
  local count = tonumber(ARGV[9 + 3 * family])
  for from = 0, count - 1, CHUNK do
    local first, size = at + from, math.min(CHUNK, count - from)
    local seqs = redis.call('ZMSCORE', KEYS[2 + 2 * family], unpack(ARGV, first, first + size - 1))
    for index = 1, size do
      local seq = seqs[index] or '0'
      if tonumber(seq) ~= tonumber(ARGV[first + count + index - 1]) then
        local key = ARGV[first + index - 1]
        differing = differing or { 'conflict', now }
        differing[#differing + 1] = key
        differing[#differing + 1] = seq
        differing[#differing + 1] = redis.call('HGET', KEYS[1 + 2 * family], key)
      end
    end
  end
  at = at + 2 * count + 2 * ARGV[10 + 3 * family] + ARGV[11 + 3 * family]
end
if differing then return differing end

local seq
-- A commit that only checks is not remembered: its retry checks again.
if ARGV[10] + ARGV[11] + ARGV[13] + ARGV[14] > 0 then
  seq = text(math.max(last + 1, micros))
  local fields, scores = { '!seq', seq }, {}
  for at = IDS_AT, seen_at - 1 do
    fields[#fields + 1], fields[#fields + 2] = ARGV[at], seq
    scores[#scores + 1], scores[#scores + 2] = '-' .. seq, ARGV[at]
  end
  at = reads_at
  for family = 0, 1 do
    local rows, index = KEYS[1 + 2 * family], KEYS[2 + 2 * family]
    local writes, deletions = tonumber(ARGV[10 + 3 * family]), tonumber(ARGV[11 + 3 * family])
    local function flush(limit)
      if #fields > limit then redis.call('HSET', rows, unpack(fields)) fields = {} end
      if #scores > limit then redis.call('ZADD', index, unpack(scores)) scores = {} end
    end
    at = at + 2 * ARGV[9 + 3 * family]
    for key_at = at, at + 2 * writes - 1, 2 do
      local count, key = #fields, ARGV[key_at]
      fields[count + 1], fields[count + 2] = key, ARGV[key_at + 1]
      count = #scores
      scores[count + 1], scores[count + 2] = seq, key
      flush(CHUNK)
    end
    at = at + 2 * writes
    for key_at = at, at + deletions - 1 do
      local count, key = #scores, ARGV[key_at]
      scores[count + 1], scores[count + 2] = seq, key
      scores[count + 3], scores[count + 4] = '-' .. seq, '-' .. string.sub(key, 2)
      flush(CHUNK)
    end
    flush(0)
    for from = at, at + deletions - 1, CHUNK do
      redis.call('HDEL', rows, unpack(ARGV, from, math.min(from + CHUNK, at + deletions) - 1))
    end
    at = at + deletions
  end
  if micros - (known[4] or 0) > ${PURGE_EVERY_MS * 1000} then purge(${PURGED_MAX}) end
end
for index = topics_at, reads_at - 1 do redis.call('PUBLISH', ARGV[6], ARGV[index]) end
return { 'committed', now, seq or text(last) }
`,
);

const FAMILIES = `
local LIVE, KEPT = { rows = KEYS[1], index = KEYS[2] }, { rows = KEYS[3], index = KEYS[4] }
`;

/** ARGV: proposal, then row keys. Answers now, epoch, and for each key its seq and body. */
const READ = script(
  "read",
  "allow-oom",
  `${begin()}${FAMILIES}
local KEPT_TABLES = { ${KEPT_TABLES.map((table) => `[${luaText(table)}] = true`).join(", ")} }
local answer = { now, epoch }
for index = 2, #ARGV do
  local key = ARGV[index]
  local family = KEPT_TABLES[string.match(key, '^:([^/]*)/')] and KEPT or LIVE
  answer[#answer + 1] = redis.call('ZSCORE', family.index, key) or '0'
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
  `${begin()}${FAMILIES}
local limit, known_epoch, seq, base, kind, key = unpack(ARGV, 2, 7)
limit, seq, base = tonumber(limit), tonumber(seq), tonumber(base)

if known_epoch == '' then base = last
elseif epoch ~= known_epoch or (kind == 'full' and base or seq) < horizon then return { now, epoch }
elseif base ~= last and #redis.call('ZRANGE', KEYS[2], '-' .. text(base), '-' .. text(base), 'BYSCORE', 'LIMIT', 0, 1) == 0 then
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
    local same = redis.call('ZRANGE', family.index, text(seq), text(seq), 'BYSCORE')
    for _, member in ipairs(same) do
      if before(key, member) then
        found[#found + 1] = member
        found[#found + 1] = text(seq)
      end
    end
  end
  local later = redis.call('ZRANGE', family.index, '(' .. text(seq), '+inf', 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
  for _, value in ipairs(later) do found[#found + 1] = value end
  return found
end

local live, kept = rest(LIVE), rest(KEPT)
local answer = { now, epoch, 0, text(last), '', text(last), 'since' }
local picked = { keys = {}, seqs = {}, families = {} }
local wanted = { [LIVE] = {}, [KEPT] = {} }
local a, b, taken = 1, 1, 0
while taken < limit and (live[a] or kept[b]) do
  local family
  local one, other = tonumber(live[a + 1]), tonumber(kept[b + 1])
  if not other or (one and (one < other or (one == other and before(live[a], kept[b])))) then
    family, key, seq, a = LIVE, live[a], one, a + 2
  else
    family, key, seq, b = KEPT, kept[b], other, b + 2
  end
  taken = taken + 1
  picked.keys[taken], picked.seqs[taken], picked.families[taken] = key, seq, family
  wanted[family][#wanted[family] + 1] = key
end
local bodies, nexts = {}, { [LIVE] = 1, [KEPT] = 1 }
for family, keys in pairs(wanted) do
  bodies[family] = #keys > 0 and redis.call('HMGET', family.rows, unpack(keys)) or {}
end
for index = 1, taken do
  local family = picked.families[index]
  local body = bodies[family][nexts[family]]
  nexts[family] = nexts[family] + 1
  if body or kind == 'since' or picked.seqs[index] > base then
    answer[#answer + 1] = picked.keys[index]
    answer[#answer + 1] = picked.seqs[index]
    answer[#answer + 1] = body
  end
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
  `${begin()}
if epoch == ARGV[2] then
  redis.call('UNLINK', KEYS[1], KEYS[2])
  begin(ARGV[3])
end
return { now, epoch }
`,
);

/** For a server that is out of memory, where no commit runs. ARGV: proposal, limit. Answers how many entries it removed. */
const RELIEVE = script("relieve", "allow-oom", `${begin()}${PURGE}return purge(tonumber(ARGV[2]))`);

/** What the scripts call, with arguments that fit: `K` is one of our keys, `C` the channel. */
const CALLS = [
  "TIME",
  "HMGET K f",
  "HGET K f",
  "HEXISTS K f",
  "HSET K f v",
  "HDEL K f",
  "ZADD K 1 m",
  "ZREM K m",
  "ZRANGE K 0 1 BYSCORE",
  "ZSCORE K m",
  "ZMSCORE K m",
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
${begin()}
return { 'ready', now, tonumber(redis.call('HGET', KEYS[1], '!reader') or 0) }
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
