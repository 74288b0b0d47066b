/**
 * The stand-in as a plain process on the loopback, and attachments to it. Both end with the test.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Generation, SandboxId } from "@sandlot/contract";
import { onTestFinished } from "vitest";
import { AioAttachment, AioWire } from "../../../src/compat/aio/index.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import type { Liveness } from "../../../src/world/world.ts";

export const STAND_IN = fileURLToPath(new URL("./stand-in/server.mjs", import.meta.url));
export const world = systemWorld();
export const TARGET = { sandboxId: "sandbox-1" as SandboxId, generation: 7 as Generation };
export const NEVER = new AbortController().signal;

export interface StandIn {
  readonly url: string;
  /** A directory for the test's files. */
  readonly directory: string;
  kill(): Promise<void>;
}

export async function startStandIn(environment: Readonly<Record<string, string>> = {}): Promise<StandIn> {
  const directory = mkdtempSync(join(tmpdir(), "sl-aio-"));
  const child = spawn(process.execPath, [STAND_IN], {
    env: { PATH: process.env.PATH, HOME: directory, ...environment },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  const kill = async () => {
    child.kill("SIGKILL");
    await exited;
  };
  onTestFinished(async () => {
    await kill();
    endCommandsOf(directory);
    rmSync(directory, { recursive: true, force: true });
  });
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  return { url: `http://127.0.0.1:${line.toString().trim()}`, directory, kill };
}

/** Commands have their own sessions and outlive a killed stand-in. Their home identifies them. */
function endCommandsOf(directory: string): void {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const variables = readFileSync(`/proc/${pid}/environ`, "latin1").split("\0");
      if (variables.includes(`HOME=${directory}`)) process.kill(Number(pid), "SIGKILL");
    } catch {
      // It has ended, or belongs to another account.
    }
  }
}

export interface Held {
  readonly attachment: AioAttachment;
  readonly sandbox: AioAttachment["sandbox"];
  /** The backend's response. */
  readonly known: { liveness: Liveness; current: Error | null };
}

export function attach(url: string, apiKey: string | null = null): Held {
  const known: Held["known"] = { liveness: "alive", current: null };
  const attachment = new AioAttachment(new AioWire({ address: { url }, apiKey }), world, TARGET, {
    checkCurrent: async () => {
      if (known.current !== null) throw known.current;
    },
    liveness: async () => known.liveness,
  });
  onTestFinished(() => attachment.close());
  return { attachment, sandbox: attachment.sandbox, known };
}
