/**
 * References of local objects: the init's process where there is one, and the object's name, which is never used twice.
 *
 *   <bootId>/<pid>/<startTime>/<sandboxId>-<generation>       "-" stands for an unknown part
 *
 * An object that was found before it had a process stays addressable by its name alone.
 */

import { type EngineRef, type SandboxId, SandlotError } from "@sandlot/contract";
import type { ObjectName } from "../../../host/layout.ts";
import type { ProcessId } from "../../../host/process-table.ts";

export interface ParsedRef {
  readonly name: ObjectName;
  readonly bootId: string | null;
  readonly process: ProcessId | null;
}

const NONE = "-";
const NAME_PATTERN = /^[A-Za-z0-9_-]+$/;
/** References of engines: an id of theirs, and the same name of an object. */
const ENGINE_PATTERN = /^[^/]+\/([A-Za-z0-9_-]+)-\d+$/;
const RETRY_AFTER_MS = 5_000;

export function formatRef(
  name: ObjectName,
  at: { readonly bootId: string; readonly process: ProcessId } | null,
): EngineRef {
  const parts = at === null ? [NONE, NONE, NONE] : [at.bootId, at.process.pid, at.process.startTime];
  return [...parts, name].join("/") as EngineRef;
}

/** `null` when it is not a reference of this backend. */
export function parseRef(ref: EngineRef): ParsedRef | null {
  const [bootId, pid, startTime, name, ...rest] = ref.split("/");
  if (bootId === undefined || pid === undefined || startTime === undefined || name === undefined) return null;
  if (rest.length > 0 || !NAME_PATTERN.test(name)) return null;
  if (pid === NONE) return { name, bootId: null, process: null };
  if (!/^[1-9]\d*$/.test(pid) || !/^\d+$/.test(startTime)) return null;
  return { name, bootId, process: { pid: Number(pid), startTime } };
}

/** The error for a reference of another backend: the fleet may have been configured for an engine before. */
export function notOurs(ref: EngineRef): SandlotError {
  const sandboxId = ENGINE_PATTERN.exec(ref)?.[1];
  if (sandboxId === undefined) return new SandlotError("sandbox_not_found", { id: ref });
  const problem =
    "an engine has made it, and this fleet is configured for local now; set `backend` to docker again, to use it or to end " +
    "it with `sandlot rm`, which keeps the thread's workspace";
  const details = { sandboxId: sandboxId as SandboxId, problem, retryAfterMs: RETRY_AFTER_MS };
  return new SandlotError("sandbox_unreachable", details);
}
