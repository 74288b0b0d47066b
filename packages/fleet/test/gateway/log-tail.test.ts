/** The log in memory: bounded, and without secrets. */

import pino from "pino";
import { expect, test } from "vitest";
import { LogTail, masked } from "../../src/gateway/log-tail.ts";

test("keeps the last lines, numbers go on, and long ones are cut", () => {
  const tail = new LogTail();
  const logger = pino({ level: "info" }, pino.multistream([{ stream: tail, level: "trace" }]));
  logger.debug("not at this level");
  for (let at = 0; at < 1_500; at += 1) logger.info({ at }, "a line");
  logger.warn({ text: "x".repeat(100_000) }, "long");
  const lines = tail.read(1_000);
  expect(lines).toHaveLength(1_000);
  expect(lines[0]).toMatchObject({ number: 501, level: "info", text: 'a line {"at":501}' });
  expect(lines.at(-1)?.number).toBe(1_500);
  expect(lines.at(-1)?.text.length).toBeLessThanOrEqual(4_000);
  expect(tail.read(2).map(({ number }) => number)).toEqual([1_499, 1_500]);
});

const KEY = `slk_${"0".repeat(12)}_${"a1".repeat(24)}`;
test.each([
  [`refused ${KEY}`, KEY],
  [`credential slf_${"ab".repeat(32)}`, "abababab"],
  ["GET /?sandlot-link=eyJhIjoxfQ.c2lnbmVk&x=1", "eyJhIjoxfQ"],
  ["cookie sandlot-session-ab12cd34=eyJhIjoxfQ.c2lnbmVk; own=1", "eyJhIjoxfQ"],
  ["http://h/#link=eyJhIjoxfQ12.c2lnbmVk1234", "eyJhIjoxfQ12"],
  ["Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"],
  ["postgres://user:hunter22@db.example/x", "hunter22"],
  ['{"password":"hunter22","a":1}', "hunter22"],
  ["secret = hunter22", "hunter22"],
])("hides what is secret: %s", (text, secret) => {
  expect(masked(text)).not.toContain(secret);
});

test("leaves other text as it is, and is quick on hostile text", () => {
  const text = "the store at postgres://db.example:5432/x does not answer: connect ECONNREFUSED 10.0.0.1:5432";
  expect(masked(text)).toBe(text);
  for (const piece of ["a:", "http://", "link=a.", "bearer ", 'password":"', "sl"]) {
    const tail = new LogTail();
    for (let at = 0; at < 200; at += 1) tail.write(piece.repeat(2_000));
    expect(tail.read(1)).toHaveLength(1);
  }
});
