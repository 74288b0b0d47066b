/**
 * An engine with faults: a socket in front of the real one that passes every request on, except those that a test
 * responds to.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface Fault {
  readonly method: string;
  /** Without the version prefix. */
  readonly path: RegExp;
  readonly status: number;
  readonly message: string;
  /** Whether the real engine still carries it out. */
  readonly takesEffect?: boolean;
  /** Runs before the request is passed on, which then gets its usual response. */
  readonly meanwhile?: () => void;
}

export interface FaultyEngine {
  readonly host: string;
  readonly hits: () => number;
  close(): void;
}

export async function startFaultyEngine(host: string, fault: Fault): Promise<FaultyEngine> {
  const directory = mkdtempSync(join(tmpdir(), "sl-faulty-"));
  const [socketPath, behind] = [join(directory, "e.sock"), host.replace("unix://", "")];
  let hits = 0;
  const server = createServer((incoming, outgoing) => {
    const { method = "GET", url = "/", headers } = incoming;
    const isMeant = method === fault.method && fault.path.test(url.replace(/^\/v[\d.]+/, ""));
    if (isMeant) hits += 1;
    if (isMeant) fault.meanwhile?.();
    const isFaulty = isMeant && fault.meanwhile === undefined;
    const refuse = () => {
      outgoing.writeHead(fault.status, { "content-type": "application/json" });
      outgoing.end(JSON.stringify({ message: fault.message }));
    };
    if (isFaulty && fault.takesEffect !== true) {
      incoming.resume();
      return refuse();
    }
    const passed = request({ socketPath: behind, method, path: url, headers }, (answer) => {
      if (isFaulty) return void answer.resume().once("end", refuse);
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    });
    passed.once("error", () => outgoing.destroy());
    outgoing.once("close", () => passed.destroy());
    incoming.pipe(passed);
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return {
    host: `unix://${socketPath}`,
    hits: () => hits,
    close: () => {
      server.closeAllConnections();
      server.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
