/**
 * A rebind that waits for a file: on a shared volume a workspace may arrive in this sandbox later than its fleet moved
 * it. The file's content is a nonce of that move, so an older file does not count.
 */

import { readFile, stat } from "node:fs/promises";
import { REBIND_EXPECT_MS, type RebindExpectation, SandlotError } from "@sandlot/contract";
import { monotonicMs, sleep } from "../clock.ts";
import { invalid } from "./body.ts";

const LOOK_EVERY_MS = 5;
const NONCE_MAX_LENGTH = 256;

export function readExpectation(fields: Readonly<Record<string, unknown>>): RebindExpectation | null {
  const { expect } = fields;
  if (expect === undefined) return null;
  const { path, nonce } = typeof expect === "object" && expect !== null ? (expect as Record<string, unknown>) : {};
  if (typeof path !== "string" || !path.startsWith("/") || typeof nonce !== "string" || nonce === "")
    throw invalid("expect", "an absolute path and a nonce are needed");
  if (nonce.length > NONCE_MAX_LENGTH) throw invalid("expect", `a nonce has at most ${NONCE_MAX_LENGTH} characters`);
  return { path, nonce };
}

/** Rejects with `wait_timeout` when the file does not appear with its nonce. */
export async function waitForFile({ path, nonce }: RebindExpectation): Promise<void> {
  const until = monotonicMs() + REBIND_EXPECT_MS;
  while (!(await holds(path, nonce))) {
    if (monotonicMs() >= until)
      throw new SandlotError("wait_timeout", { waitedFor: `the workspace at ${path}`, timeoutMs: REBIND_EXPECT_MS });
    await sleep(LOOK_EVERY_MS);
  }
}

/** Every error means: not yet. A file system that hands over a directory may give any of them for a moment. */
async function holds(path: string, nonce: string): Promise<boolean> {
  try {
    const { size } = await stat(path);
    return size === Buffer.byteLength(nonce) && (await readFile(path, "utf8")) === nonce;
  } catch {
    return false;
  }
}
