/**
 * Parts of a sandbox that a backend may lack: every use fails with `capability_missing`.
 */

import { type SandboxPorts, type SandboxSessions, type SandboxTerminals, SandlotError } from "@sandlot/contract";
import type { Capability } from "./backend.ts";
import { failedStream, SANDBOX_SHAPE, unsupported } from "./sandbox-shape.ts";

function missing(backend: string, capability: Capability, neededBy: string): () => SandlotError {
  return () => new SandlotError("capability_missing", { backend, capability, neededBy });
}

export function noSessions(backend: string): SandboxSessions {
  return unsupported<SandboxSessions>(SANDBOX_SHAPE.sessions, missing(backend, "sessions", "a session"), {
    list: async () => [],
    close: async () => undefined,
  });
}

export function noTerminals(backend: string): SandboxTerminals {
  return unsupported<SandboxTerminals>(SANDBOX_SHAPE.terminals, missing(backend, "terminal", "a terminal"), {
    list: async () => [],
    close: async () => undefined,
  });
}

export function noPorts(backend: string): SandboxPorts {
  const refusal = missing(backend, "preview", "waiting for a port");
  return unsupported<SandboxPorts>(SANDBOX_SHAPE.ports, refusal, { list: async () => [] });
}

/** A stream that fails with `capability_missing` when it is read. */
export function noStream(backend: string, capability: Capability, neededBy: string): AsyncIterable<never> {
  return failedStream(missing(backend, capability, neededBy));
}
