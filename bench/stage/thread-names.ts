/** Thread ids as in applications: 32 random characters, each a separate string. */

import { randomBytes } from "node:crypto";

export function threadName(): string {
  return randomBytes(16).toString("hex");
}

export function threadNames(count: number): readonly string[] {
  return Array.from({ length: count }, threadName);
}
