/** Thread ids as applications have them: 32 random characters, each a string of its own. */

import { randomBytes } from "node:crypto";

export function threadName(): string {
  return randomBytes(16).toString("hex");
}

export function threadNames(count: number): readonly string[] {
  return Array.from({ length: count }, threadName);
}
