/** JSON of a sandbox: read as `JSON.parse` does, in pieces, and never for long at a time. */

import fc from "fast-check";
import { expect, it } from "vitest";
import { z } from "zod";
import { checked, readJson, readShortJson } from "../../src/untrusted/json.ts";

const MANY = 10_000_000;

/** Longer than one read, whatever it is. */
function long(text: string): Buffer {
  return Buffer.from(`${" ".repeat(70_000)}${text}`);
}

function native(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

it("in pieces reads what JSON.parse reads", async () => {
  await fc.assert(
    fc.asyncProperty(fc.json({ maxDepth: 5 }), async (text) => {
      expect(await readJson(long(text), MANY)).toEqual(native(text));
    }),
    { numRuns: 300 },
  );
});

it("in pieces refuses what JSON.parse refuses: texts with one character changed, left out or put in", async () => {
  const changed = fc.tuple(fc.json({ maxDepth: 3 }), fc.nat(), fc.constantFrom(...'[]{},:"\\ 0-e.tn\u0001'), fc.nat(2));
  await fc.assert(
    fc.asyncProperty(changed, async ([text, number, character, way]) => {
      const at = number % (text.length + 1);
      const spoilt = text.slice(0, at) + (way === 0 ? "" : character) + text.slice(way === 1 ? at : at + 1);
      expect(await readJson(long(spoilt), MANY)).toEqual(native(spoilt));
    }),
    { numRuns: 2_000 },
  );
});

it("in pieces reads long texts across every cut: escapes, surrogate pairs, letters of several bytes", async () => {
  for (const unit of ["\u0000", "é", "😀", "\\", '"', "a", "\ud83d", "x\n", "aaaaaaaé"])
    for (const shift of [0, 1, 2, 3, 5]) {
      const text = "x".repeat(shift) + unit.repeat(300_000 / unit.length);
      const whole = { stdout: text, stderr: text.slice(0, 9), list: [text.slice(0, 200_000)] };
      expect(await readJson(Buffer.from(JSON.stringify(whole)), 16)).toEqual(whole);
      const escaped = `["${"\\ud83d\\ude00".repeat(40_000)}"]`;
      expect(await readJson(Buffer.from(escaped), 16)).toEqual(JSON.parse(escaped));
    }
});

it("that is too deep, too rich or none is nothing, short or long", async () => {
  for (const wrap of [(text: string) => Buffer.from(text), long]) {
    expect(await readJson(wrap("[".repeat(40) + "]".repeat(40)), MANY)).toBeUndefined();
    expect(await readJson(wrap("[".repeat(20) + "]".repeat(20)), MANY)).toBeDefined();
    expect(await readJson(wrap(JSON.stringify(Array.from({ length: 50 }, () => 1))), 40)).toBeUndefined();
    expect(await readJson(wrap('{"a":"'), MANY)).toBeUndefined();
    expect(await readJson(wrap('{"a":"\\'), MANY)).toBeUndefined();
    expect(await readJson(wrap(""), MANY)).toBeUndefined();
  }
  expect(readShortJson(long("1"))).toBeUndefined();
});

it("of any size takes no turn of the event loop for long", async () => {
  const schema = z.array(z.object({ pid: z.int(), command: z.string(), state: z.string(), cpuMs: z.number() }));
  const bodies = {
    "150 MiB of empty lists": Buffer.from(`[${"[],".repeat(50_000_000)}[]]`),
    "a text of 60 MiB": Buffer.from(`{"stdout":"${"\\u0000".repeat(10_000_000)}"}`),
    "60 MiB of quotes": Buffer.from(`"${'\\"'.repeat(30_000_000)}"`),
    "60 MiB of spaces": Buffer.from(`{"a"${" ".repeat(60_000_000)}:1}`),
    "70,000 wrong entries": Buffer.from(`[${"{},".repeat(70_000)}{}]`),
    deep: Buffer.from("[".repeat(5_000_000)),
  };
  for (const [name, body] of Object.entries(bodies)) {
    let worstMs = 0;
    let before = process.threadCpuUsage();
    let isDone = false;
    const watch = (): void => {
      const { user, system } = process.threadCpuUsage(before);
      worstMs = Math.max(worstMs, (user + system) / 1_000);
      before = process.threadCpuUsage();
      if (!isDone) setImmediate(watch);
    };
    setImmediate(watch);
    await checked(schema, await readJson(body, 80_000));
    isDone = true;
    await new Promise((resolve) => setImmediate(resolve));
    expect({ name, isShort: worstMs < 50, worstMs }).toMatchObject({ name, isShort: true });
  }
});
