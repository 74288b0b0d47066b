/**
 * The reader of long JSON against `JSON.parse`, from a seed: the same verdict and the same value for texts that are
 * right, spoilt, cut short at every byte, or no UTF-8, with pieces so small that every cut happens. And the cost of
 * each byte, whatever it is part of.
 */

import { isDeepStrictEqual } from "node:util";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { readJson, readJsonInPieces } from "../../src/untrusted/json.ts";

const SEED = Number(process.env.SANDLOT_FUZZ_SEED ?? 20_261_116);
const MANY = 10_000_000;
const DEPTH_MAX = 32;
const NUMBER_MAX = 64;

/** Mulberry32. */
function chance(seed: number) {
  let state = seed | 0;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
  const below = (count: number) => next() % count;
  return { below, one: <T>(list: readonly T[]): T => list[below(list.length)] as T };
}
type Chance = ReturnType<typeof chance>;

const STRING_PARTS: readonly Buffer[] = [
  ...["a", "é", "€", "😀", "\\n", '\\"', "\\\\", "\\/", "\\u0000", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\ude00"],
  ...["__proto__", "constructor", "\u2028", " ", "\ufeff", "xxxxxxxxxxxxxxxx", "toString", "0", "\\uD83D"],
].map((text) => Buffer.from(text));
/** No UTF-8: alone, too long, cut off, over the end of Unicode, surrogates. `JSON.parse` sees Node's decoding. */
const WRONG_BYTES: readonly Buffer[] = [
  "80",
  "bf80",
  "c3",
  "e282",
  "f09f98",
  "f09f988080",
  "c0af",
  "e0809f",
  "f5",
  "ff",
  "eda0bd",
].map((hex) => Buffer.from(hex, "hex"));
const NUMBERS = [
  "0",
  "-0",
  "1",
  "-12.5",
  "1e5",
  "1E-7",
  "1e999",
  "-1e999",
  "9007199254740993",
  "1e-999",
  "0.1",
  "1e+2",
];
const SPACES = ["", "", "", " ", "\n", "\t\r ", " ".repeat(20)];
const SPOILERS = [..."[]{},:\"\\ 0-+e.Etfnu\u0001/'", "\u00a0"];

function text(random: Chance, depth = 0): Buffer {
  const space = () => Buffer.from(random.one(SPACES));
  const kind = depth > 5 ? 2 + random.below(3) : random.below(6);
  const parts: Buffer[] = [space()];
  const count = random.below(5);
  if (kind === 0 || kind === 5) {
    parts.push(Buffer.from("["));
    for (let at = 0; at < count; at++) parts.push(Buffer.from(at === 0 ? "" : ","), text(random, depth + 1));
    parts.push(space(), Buffer.from("]"));
  } else if (kind === 1) {
    parts.push(Buffer.from("{"));
    for (let at = 0; at < count; at++)
      parts.push(
        Buffer.from(at === 0 ? "" : ","),
        space(),
        string(random),
        space(),
        Buffer.from(":"),
        text(random, depth + 1),
      );
    parts.push(space(), Buffer.from("}"));
  } else if (kind === 2) parts.push(string(random));
  else if (kind === 3)
    parts.push(Buffer.from(random.below(20) === 0 ? "7".repeat(40 + random.below(60)) : random.one(NUMBERS)));
  else parts.push(Buffer.from(random.one(["true", "false", "null"])));
  parts.push(space());
  return Buffer.concat(parts);
}

function string(random: Chance): Buffer {
  const parts = Array.from({ length: random.below(12) }, () =>
    random.below(15) === 0 ? random.one(WRONG_BYTES) : random.one(STRING_PARTS),
  );
  return Buffer.concat([Buffer.from('"'), ...parts, Buffer.from('"')]);
}

function spoil(body: Buffer, random: Chance): Buffer {
  const at = random.below(body.length + 1);
  const put = random.below(3) === 0 ? random.one(WRONG_BYTES) : Buffer.from(random.one(SPOILERS));
  const kept = body.subarray(at + (random.below(2) === 0 ? 0 : 1));
  return Buffer.concat([body.subarray(0, at), random.below(4) === 0 ? Buffer.alloc(0) : put, kept]);
}

function native(body: Buffer, json: typeof JSON = JSON): { readonly value: unknown } | null {
  try {
    return { value: json.parse(body.toString("utf8")) };
  } catch {
    return null;
  }
}

function depthOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}

/** The fault in the reader's result; `null` when it matches `JSON.parse`, within the limits. */
async function problem(body: Buffer, pieceBytes: number): Promise<string | null> {
  const read = await readJsonInPieces(body, MANY, pieceBytes);
  const found = difference(body, read, native(body));
  if (found === null) return null;
  // V8 13.6 takes a name of one escaped character for a backslash where an earlier object had that name in its place. A
  // new context has seen no objects.
  const context: typeof globalThis = runInNewContext("globalThis");
  return difference(body, read, structuredClone(native(body, context.JSON)));
}

function difference(body: Buffer, read: unknown, wanted: ReturnType<typeof native>): string | null {
  const isOver = wanted !== null && depthOf(wanted.value) > DEPTH_MAX;
  if (wanted === null || isOver) return read === undefined ? null : "it reads what JSON.parse refuses, or is too deep";
  if (read === undefined && new RegExp(`[-+.\\deE]{${NUMBER_MAX + 1}}`).test(body.toString("latin1"))) return null;
  if (!isDeepStrictEqual(read, wanted.value))
    return `it reads ${JSON.stringify(read)}, not ${JSON.stringify(wanted.value)}`;
  return JSON.stringify(read) === JSON.stringify(wanted.value) ? null : "names come in another order";
}

async function expectSame(body: Buffer, pieceBytes: number): Promise<void> {
  const found = await problem(body, pieceBytes);
  if (found !== null) throw new Error(`seed ${SEED}, pieces of ${pieceBytes}: ${found}\n${body.toString("hex")}`);
}

describe("JSON in pieces means what JSON.parse means", () => {
  it("for 6,000 texts and as many spoilt ones", async () => {
    const random = chance(SEED);
    let [right, refused] = [0, 0];
    for (let round = 0; round < 6_000; round++) {
      const body = text(random);
      const spoilt = spoil(body, random);
      for (const one of [body, spoilt]) {
        if (native(one) === null) refused++;
        else right++;
        await expectSame(one, 8 + random.below(40));
      }
    }
    // A generator that makes only one kind tests nothing.
    expect(Math.min(right, refused)).toBeGreaterThan(2_000);
  }, 120_000);

  it("for texts cut short at every byte, and from every byte on", async () => {
    const random = chance(SEED + 1);
    for (let round = 0; round < 60; round++) {
      const body = text(random);
      for (let at = 0; at <= Math.min(body.length, 400); at++) {
        await expectSame(body.subarray(0, at), 8 + (at % 23));
        await expectSame(body.subarray(at), 8 + (at % 23));
      }
    }
  }, 120_000);

  it("for every length of a piece over every kind of character", async () => {
    const all = Buffer.concat([
      Buffer.from('{"'),
      ...STRING_PARTS,
      Buffer.from('":["'),
      ...STRING_PARTS,
      Buffer.from('"]}'),
    ]);
    const wrong = Buffer.concat([
      Buffer.from('["'),
      ...WRONG_BYTES,
      Buffer.from("a"),
      ...WRONG_BYTES,
      Buffer.from('"]'),
    ]);
    for (let pieceBytes = 8; pieceBytes < 200; pieceBytes++) {
      await expectSame(all, pieceBytes);
      await expectSame(wrong, pieceBytes);
    }
  });

  it("for names that mean something to objects, and for names that come twice", async () => {
    const texts = [
      '{"__proto__":{"x":1},"a":2}',
      '{"a":1,"b":2,"a":3}',
      '{"__proto__":1,"__proto__":[2]}',
      '{"constructor":{},"":1}',
    ];
    for (const one of [...texts, '{"2":0,"1":0,"-1":0,"01":0}', '{"a":{"__proto__":null}}']) {
      await expectSame(Buffer.from(one), 8);
      expect(isDeepStrictEqual(await readJson(Buffer.from(one), MANY), JSON.parse(one))).toBe(true);
    }
    const read = (await readJsonInPieces(Buffer.from('{"__proto__":{"polluted":1}}'), MANY)) as Record<string, unknown>;
    expect([Object.getPrototypeOf(read), read.polluted, ({} as Record<string, unknown>).polluted]).toEqual([
      Object.prototype,
      undefined,
      undefined,
    ]);
  });

  it("up to the depth that is allowed, and no deeper", async () => {
    for (const [open, close] of [
      ["[", "]"],
      ['{"a":', "}"],
    ] as const)
      for (const depth of [DEPTH_MAX - 1, DEPTH_MAX, DEPTH_MAX + 1, 10_000]) {
        const body = Buffer.from(`${open.repeat(depth)}1${close.repeat(depth)}`);
        const read = [await readJsonInPieces(body, MANY), await readJson(body, MANY)];
        expect(read.map((value) => value !== undefined)).toEqual([depth <= DEPTH_MAX, depth <= DEPTH_MAX]);
      }
  });

  it("up to the number of values that is allowed, whatever they are", async () => {
    for (const [unit, values] of [
      ["1", 1],
      ['""', 1],
      ["[]", 1],
      ['{"a":null}', 2],
    ] as const) {
      const body = Buffer.from(`[${Array.from({ length: 100 }, () => unit).join(",")}]`);
      expect(await readJsonInPieces(body, 1 + 100 * values)).toHaveLength(100);
      expect(await readJsonInPieces(body, 100 * values)).toBeUndefined();
    }
  });
});

describe("a byte of JSON costs", () => {
  const SIZE = 4 * 1024 * 1024;
  const filled = (unit: string, first = "[", last = "0]") =>
    Buffer.from(first + unit.repeat(Math.floor(SIZE / unit.length)) + last);
  const bodies: Readonly<Record<string, Buffer>> = {
    "empty lists": filled("[],"),
    "empty texts": filled('"",'),
    digits: filled("1,"),
    "small objects": filled('{"pid":1,"name":"x"},'),
    "many names": Buffer.from(`{${Array.from({ length: SIZE / 12 }, (_, at) => `"n${at}":1`).join(",")}}`),
    "names that are numbers": Buffer.from(
      `{${Array.from({ length: SIZE / 14 }, (_, at) => `"${4e9 - at * 7919}":1`).join(",")}}`,
    ),
    spaces: filled(" "),
    "one text": filled("text ", '"', '"'),
    "escapes in one text": filled("\\u0041", '"', '"'),
    "quotes in one text": filled('\\"', '"', '"'),
    "letters of four bytes": filled("😀", '"', '"'),
    "an open text": filled("a", '"', ""),
    "an open text of escapes": filled('\\"', '"', "\\"),
  };

  /** In the time of this thread's processor: other processes do not count. */
  async function nsPerByte(body: Buffer, read: () => unknown): Promise<number> {
    const before = process.threadCpuUsage();
    await read();
    const { user, system } = process.threadCpuUsage(before);
    return ((user + system) * 1_000) / body.length;
  }

  it.each(Object.keys(bodies))("no more for %s", async (name) => {
    const body = bodies[name] as Buffer;
    const pieces = await nsPerByte(body, () => readJsonInPieces(body, MANY));
    const builtIn = await nsPerByte(body, () => native(body));
    console.log(`${name}: ${pieces.toFixed(1)} ns a byte in pieces, ${builtIn.toFixed(1)} with JSON.parse`);
    // Half a second of processor for the longest list (2 MiB), in turns.
    expect(pieces).toBeLessThan(250);
  });
});
