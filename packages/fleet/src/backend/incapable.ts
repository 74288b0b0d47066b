/**
 * The parts of a sandbox that a backend may lack, each use of which says so.
 */

import {
  type SandboxPorts,
  type SandboxSessions,
  type SandboxTerminals,
  SandlotError,
  type Terminal,
} from "@sandlot/contract";
import type { Capability } from "./backend.ts";

function missing(backend: string, capability: Capability, neededBy: string): SandlotError {
  return new SandlotError("capability_missing", { backend, capability, neededBy });
}

export function noSessions(backend: string): SandboxSessions {
  const refuse = (): Promise<never> => Promise.reject(missing(backend, "sessions", "a session"));
  return { open: refuse, exec: refuse, output: refuse, list: async () => [], close: async () => undefined };
}

export function noTerminals(backend: string): SandboxTerminals {
  const refuse = (): Promise<Terminal> => Promise.reject(missing(backend, "terminal", "a terminal"));
  return { open: refuse, attach: refuse, list: async () => [], close: async () => undefined };
}

export function noPorts(backend: string): SandboxPorts {
  return { list: async () => [], waitFor: () => Promise.reject(missing(backend, "preview", "waiting for a port")) };
}

/** A stream that says, when it is read, that there is nothing like it here. */
export function noStream(backend: string, capability: Capability, neededBy: string): AsyncIterable<never> {
  const next = (): Promise<never> => Promise.reject(missing(backend, capability, neededBy));
  return { [Symbol.asyncIterator]: () => ({ next }) };
}
