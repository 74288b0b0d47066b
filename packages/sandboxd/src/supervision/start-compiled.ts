/**
 * Starts the daemon from `sandboxd.compiled`: its text with what V8 made of it when it was built, so that a sandbox compiles
 * nothing until somebody asks for something rare. Another V8, or one with other flags, refuses the compiled part and
 * compiles the text, as if there were no such file.
 *
 * The file: the text's length in bytes as 32 bits (little endian), the text, the compiled part. Both are in one file because
 * V8 compares nothing but the length of a text with what was compiled: a text must never meet what was made of another.
 */

import { readFileSync } from "node:fs";
import { Script } from "node:vm";

const whole = readFileSync(`${__dirname}/sandboxd.compiled`);
const end = 4 + whole.readUInt32LE(0);
const script = new Script(whole.toString("latin1", 4, end), {
  filename: `${__dirname}/sandboxd.cjs`,
  cachedData: whole.subarray(end),
});
script.runInThisContext()(module.exports, require, module, `${__dirname}/sandboxd.cjs`, __dirname);
