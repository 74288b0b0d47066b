/** Wrong responses, drawn from a seed. */

import type { Chance } from "../../fuzz/generate.ts";
import type { Honest } from "./honest.ts";
import {
  type Asked,
  chunk,
  END,
  ENDS,
  flood,
  honestBytes,
  RESET,
  STALL,
  type Step,
  type Trick,
  text,
  write,
} from "./steps.ts";
import { SPECIAL } from "./stream-tricks.ts";

export function spoilt(chance: Chance, honest: Honest, asked: Asked): readonly Step[] {
  const general = [badHead, badLength, badBody, slow, strangers, errors, garbage, informational] as const;
  const special = SPECIAL[honest.kind];
  if (special !== undefined && chance.chance(0.6)) return special(chance, honest, asked);
  return chance.pick(general)(chance, honest, asked);
}

const badHead: Trick = (chance, { body }) => {
  const line = chance.pick([
    "HTTP/1.1 000 OK",
    "HTTP/1.1 999 OK",
    "HTTP/1.1 600 x",
    "HTTP/1.1 200 O\x01K",
    "HTTP/1.1 20 OK",
    "HTTP/1.1 2000 OK",
    "HTTP/1.1 -1 OK",
    "HTTP/1.1  200 OK",
    "HTTP/9.9 200 OK",
    "HTTP/1.0 200 OK",
    "http/1.1 200 ok",
    "ICY 200 OK",
    "\r\n\r\nHTTP/1.1 200 OK",
    "HTTP/1.1 200",
    `HTTP/1.1 200 ${"x".repeat(chance.pick([10, 20_000, 200_000]))}`,
    `HTTP/1.1 200 OK\r\n${"x: y\r\n".repeat(chance.pick([10, 1_999, 2_001, 50_000]))}z: 1`,
    `HTTP/1.1 200 OK\r\nx: ${"y".repeat(chance.pick([100, 16_000, 17_000, 300_000]))}`,
    "HTTP/1.1 200 OK\r\n x: folded",
    "HTTP/1.1 200 OK\r\nx\x00y: 1",
    "HTTP/1.1 200 OK\r\nx: a\x01b",
    "HTTP/1.1 200 OK\r\n: nameless",
    "HTTP/1.1 200 OK\r\nset-cookie: sandlot-link=forged; Domain=x\r\nset-cookie: a=b",
    "HTTP/1.1 304 Not Modified",
    "HTTP/1.1 204 No Content",
    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x",
    "HTTP/1.1 302 Found\r\nlocation: http://evil.example/",
  ]);
  if (chance.chance(0.1)) return [write("HTTP/1.1 200 OK\r\n"), flood("x: y\r\n")];
  return [write(`${line}\r\ncontent-length: ${body.length}\r\n\r\n`), write(body), chance.pick(ENDS)];
};

const badLength: Trick = (chance, { body }) => {
  const head = (lines: string) => write(`HTTP/1.1 200 OK\r\n${lines}\r\n\r\n`);
  return chance.pick<() => readonly Step[]>([
    () => [
      head(`content-length: ${chance.pick(["1e9", "-1", "0x10", "99999999999999999999", "1, 2", "+5", "", "1 2"])}`),
      write(body),
      STALL,
    ],
    () => [head(`content-length: ${chance.pick([1e6, 1e8, 1e9, 2 ** 40, 2 ** 53])}`), flood("[],")],
    () => [head(`content-length: ${body.length}\r\ncontent-length: ${body.length + 1}`), write(body), STALL],
    () => [head(`content-length: ${Math.max(0, body.length - chance.below(9))}`), write(body), write(body), STALL],
    () => [head(`content-length: ${body.length + 1 + chance.below(99)}`), write(body), chance.pick(ENDS)],
    () => [head("transfer-encoding: chunked"), flood("5\r\nhello\r\n")],
    () => [
      head("transfer-encoding: chunked"),
      write(`${chance.pick(["zz", "-1", "ffffffffffffffff", "1;".repeat(9_000), ""])}\r\n`),
      write(body),
      STALL,
    ],
    () => [head("transfer-encoding: chunked"), flood(`1;${"e".repeat(1_000)}\r\nx\r\n`)],
    () => [
      head("transfer-encoding: gzip, chunked\r\ncontent-encoding: gzip"),
      write(chunk(body)),
      write("0\r\n\r\n"),
      END,
    ],
    () => [head(`transfer-encoding: chunked\r\ncontent-length: ${body.length}`), write(body), STALL],
    () => [head("connection: close"), flood("x".repeat(1_000))],
  ])();
};

/** Complete responses whose body is wrong, or too large. */
const badBody: Trick = (chance, { body, kind }) => {
  const spoiltJson = () => (kind === "json" ? mutated(chance, body.toString("utf8")) : "{}");
  const sizes = [10, 1_000, 20_000, 32_700, 32_769, 65_530, 65_600, 100_000, 300_000, 2_000_000];
  const size = chance.chance(0.01) ? 15_000_000 : chance.pick(sizes);
  const fill = (unit: string, open = "", close = "") => open + unit.repeat(Math.ceil(size / unit.length)) + close;
  const content = chance.pick<() => Buffer>([
    () => Buffer.from(spoiltJson()),
    () => Buffer.from(spoiltJson()),
    () => Buffer.from(spoiltJson()),
    () => text(fill("[],", "[", "[]]")),
    () => text(fill("{},", "[", "{}]")),
    () => text(fill("[")),
    () => text(fill('{"a":')),
    () => text(fill(" ", "", "{}")),
    () => text(fill("1,", "[", "1]")),
    () => text(fill("x", '"', '"')),
    () => text(fill("\\u0000", '"', '"')),
    () => text(fill('\\"', '{"stdout":"', '"}')),
    () => text(fill("\\", '"', "")),
    () => text(fill("9", "", "")),
    () => text(fill('"k":1,', "{", '"k":1}')),
    () => text(fill('{"pid":1},', "[", "{}]")),
    () => text(fill('{"path":0},', '{"entries":[', '{}],"truncated":false}')),
    () => Buffer.concat([text('{"run":"'), Buffer.alloc(Math.min(size, 9_000), 0xff), text('"}')]),
    () => Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), body]),
    () => Buffer.alloc(Math.min(size, 100_000), 0),
    () => text('{"__proto__":{"x":1},"constructor":{"prototype":{"y":1}}}'),
    () => Buffer.alloc(0),
  ])();
  return [write(`HTTP/1.1 200 OK\r\ncontent-length: ${content.length}\r\n\r\n`), write(content)];
};

const WRONG: readonly unknown[] = [
  null,
  -1,
  1.5,
  1e308,
  -0,
  "",
  "x".repeat(300),
  [],
  {},
  true,
  [[[[]]]],
  { a: { b: 1 } },
  2 ** 53,
  "\u0000\ud800",
];

/** One value replaced, left out or doubled. */
function mutated(chance: Chance, json: string): string {
  const root = { value: JSON.parse(json) as unknown };
  const places: { readonly in: Record<string, unknown>; readonly name: string }[] = [];
  const walk = (holder: Record<string, unknown>, name: string): void => {
    places.push({ in: holder, name });
    const value = holder[name];
    if (typeof value === "object" && value !== null)
      for (const inner of Object.keys(value)) walk(value as Record<string, unknown>, inner);
  };
  walk(root as Record<string, unknown>, "value");
  for (let count = 1 + chance.below(3); count > 0; count--) {
    const place = chance.pick(places);
    if (chance.chance(0.2)) delete place.in[place.name];
    else place.in[place.name] = chance.pick(WRONG);
  }
  return JSON.stringify(root.value) ?? "";
}

const slow: Trick = (chance, honest, asked) => {
  const bytes = honestBytes(honest, asked);
  const at = chance.below(bytes.length + 1);
  return [write(bytes.subarray(0, at)), { do: "drip", bytes: bytes.subarray(at, at + chance.below(40)) }, STALL];
};

/** Responses to calls that were never made. */
const strangers: Trick = (chance, honest, asked) => {
  const bytes = honestBytes(honest, asked);
  return chance.pick<() => readonly Step[]>([
    () => [write(Buffer.concat([bytes, bytes])), STALL],
    () => [write(bytes), write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"), STALL],
    () => [write(bytes), { do: "drip", bytes: text("HTTP/1.1 200 OK\r\n") }, RESET],
    () => [write(bytes), flood(bytes)],
  ])();
};

const CODES = [
  "file_not_found",
  "stale_generation",
  "sandbox_lost",
  "unauthorized",
  "internal",
  "exec_limit",
  "sandbox_unreachable",
  "capacity_exhausted",
  "config_invalid",
  "blueprint_unknown",
  "sandbox_in_use",
  "engine_unavailable",
  "nonsense",
  "file_changed",
  "range_not_satisfiable",
];

const errors: Trick = (chance) => {
  const details = chance.pick<unknown>([
    {},
    { path: "/x" },
    { path: 5 },
    { retryAfterMs: "x" },
    { retryAfterMs: 1e300 },
    { problem: { a: 1 }, sandboxId: "" },
    { known: "x", holders: 1 },
    { path: "x".repeat(60_000) },
    null,
    [],
  ]);
  const error = { code: chance.pick(CODES), message: "m", retryable: chance.chance(0.5), details };
  const nested = `${"[".repeat(9_000)}${"]".repeat(9_000)}`;
  const body = chance.chance(0.2)
    ? `{"error":{"code":"internal","message":"","retryable":false,"details":{"x":${nested}}}}`
    : JSON.stringify(
        chance.pick([{ error }, { error: { ...error, more: 1 } }, { detail: [{ loc: ["body"], msg: "m" }] }, {}]),
      );
  const status = chance.pick([400, 401, 403, 404, 409, 410, 422, 500, 502, 503, 504, 599]);
  if (chance.chance(0.1))
    return [write(`HTTP/1.1 ${status} x\r\ntransfer-encoding: chunked\r\n\r\n`), flood(chunk(text("x".repeat(5_000))))];
  return [write(`HTTP/1.1 ${status} x\r\ncontent-length: ${body.length}\r\n\r\n${body}`), chance.pick(ENDS)];
};

const garbage: Trick = (chance) => {
  const bytes = Buffer.from(Array.from({ length: 1 + chance.below(400) }, () => chance.below(256)));
  return [write(bytes), chance.pick([...ENDS, flood(bytes)])];
};

const informational: Trick = (chance, honest, asked) => {
  const early = text(
    chance.pick([
      "HTTP/1.1 100 Continue\r\n\r\n",
      "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n",
      "HTTP/1.1 199 x\r\n\r\n",
    ]),
  );
  if (chance.chance(0.5)) return [flood(early)];
  return [...Array.from({ length: chance.below(40) }, () => write(early)), write(honestBytes(honest, asked)), STALL];
};
