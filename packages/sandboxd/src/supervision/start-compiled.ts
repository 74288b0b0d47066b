/**
 * Starts the daemon from `sandboxd.compiled`: its text with V8's compiled code from the build, so that a sandbox
 * compiles nothing until a rare request. Another V8, or one with other flags, refuses the compiled code and compiles
 * the text, as if there were no such file.
 *
 * The file: the text's length in bytes as 32 bits (little endian), the text, the compiled code. Both are in one file
 * because V8 compares only the length of a text with that of the compiled one: code must never meet another text.
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
