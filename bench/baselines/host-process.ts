/** Node's own way to start a process on the host: the minimum for every command in a sandbox on it. */

import { spawn } from "node:child_process";
import { once } from "node:events";

/** A new process with its output collected, as in an exec. */
export async function spawnTrue(): Promise<void> {
  const child = spawn("/bin/true", [], { stdio: ["ignore", "pipe", "pipe"] });
  child.stdout.resume();
  child.stderr.resume();
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`/bin/true ended with ${code}`);
}
