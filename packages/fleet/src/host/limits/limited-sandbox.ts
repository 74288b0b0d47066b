/**
 * A sandbox under limits: API writes check the disk budget first, a command that ran into a limit says so, and usage is
 * counted from outside. Nothing else changes.
 */

import {
  isSandlotError,
  type ResourceUsage,
  type Sandbox,
  type SandboxExecs,
  type SandboxFiles,
  type SandboxSessions,
  SandlotError,
  WORKSPACE_ROOT,
  type WriteOptions,
} from "@sandlot/contract";
import { outputSoFar } from "../../backend/output-so-far.ts";
import { overridden, SANDBOX_SHAPE } from "../../backend/sandbox-shape.ts";
import { type Grow, metered } from "../../backend/write-budget.ts";
import { systemTimer } from "../../world/system-world.ts";
import type { DiskBudget } from "./disk/budget.ts";
import type { DiskKeeper } from "./disk/keeper.ts";
import { LimitReports, type ReportListener } from "./limit-reports.ts";
import type { LimitGroup } from "./limits.ts";

export function limitedSandbox(
  inner: Sandbox,
  group: LimitGroup,
  guard: DiskKeeper | null,
  listener?: ReportListener,
): Sandbox {
  if (guard === null && !group.isCounted) return inner;
  guard?.use(inner);
  const reports = new LimitReports(group, guard, listener);
  const { execs, sessions } = inner;
  const follow: typeof execs.follow = (execId, options) => reports.follow(execs, execId, options);
  return overridden<Sandbox>(SANDBOX_SHAPE, inner, {
    exec: (command, options) => reports.withReport(() => inner.exec(command, options)),
    spawn: async (command, options) => {
      const before = reports.mark();
      const spawned = await inner.spawn(command, options);
      reports.began(spawned.execId, before);
      return spawned;
    },
    execs: overridden<SandboxExecs>(SANDBOX_SHAPE.execs, execs, {
      follow,
      output: (execId, options) =>
        outputSoFar({ list: () => execs.list(), follow }, { timer: systemTimer }, execId, options),
    }),
    sessions: overridden<SandboxSessions>(SANDBOX_SHAPE.sessions, sessions, {
      exec: (sessionId, command, options) => reports.withReport(() => sessions.exec(sessionId, command, options)),
    }),
    files: guard === null ? inner.files : keptFiles(inner.files, guard, listener),
    usage: async () => ({ ...counted(await inner.usage(), group.usage()), ...guard?.usage() }),
  });
}

/** The daemon is asked too: it says whether the sandbox exists, and it may know what is not counted outside. */
function counted(inside: ResourceUsage, outside: ResourceUsage): ResourceUsage {
  return {
    memoryBytes: outside.memoryBytes ?? inside.memoryBytes,
    memoryMaxBytes: outside.memoryMaxBytes ?? inside.memoryMaxBytes,
    processCount: outside.processCount ?? inside.processCount,
    processMax: outside.processMax ?? inside.processMax,
    cpuMs: outside.cpuMs ?? inside.cpuMs,
  };
}

/** A write that fits into the buffers in between always gets its response. */
const SMALL_BYTES = 64 * 1024;

function keptFiles(inner: SandboxFiles, keeper: DiskKeeper, listener?: ReportListener): SandboxFiles {
  if (keeper.budget !== null) return limitedFiles(inner, keeper.budget);
  return refusableFiles(inner, keeper, () => listener?.onFileLimit?.(keeper.saysOfFile ?? ""));
}

/**
 * Writes that the kernel may refuse. A write that visibly does not fit is not sent: a daemon that gives up in the
 * middle of a long upload cannot say why.
 */
function refusableFiles(inner: SandboxFiles, keeper: DiskKeeper, onRefused: () => void): SandboxFiles {
  const tried = async <T>(path: string, bytes: number, write: (grow: Grow) => Promise<T>): Promise<T> => {
    const room = isInWorkspace(path) ? keeper.room() : Number.POSITIVE_INFINITY;
    let sent = bytes;
    const check = () => {
      if (sent > Math.max(room, SMALL_BYTES)) throw new SandlotError("disk_limit_exceeded", { path });
    };
    try {
      check();
      return await write(async (more) => {
        sent += more;
        check();
      });
    } catch (error) {
      if (isSandlotError(error, "disk_limit_exceeded") && isInWorkspace(path)) onRefused();
      throw error;
    }
  };
  return overridden<SandboxFiles>(SANDBOX_SHAPE.files, inner, {
    write: (path, content, options) =>
      tried(path, Buffer.byteLength(content), () => inner.write(path, content, options)),
    append: (path, content) => tried(path, Buffer.byteLength(content), () => inner.append(path, content)),
    mkdir: (path) => tried(path, 0, () => inner.mkdir(path)),
    upload: (path, content, options) => tried(path, 0, (grow) => inner.upload(path, metered(content, grow), options)),
  });
}

function isInWorkspace(path: string): boolean {
  return path.startsWith(`${WORKSPACE_ROOT}/`) || path.startsWith("/mnt/acp-workspace/");
}

function limitedFiles(inner: SandboxFiles, budget: DiskBudget): SandboxFiles {
  const within = <T>(path: string, bytes: number, files: number, write: (grow: Grow) => Promise<T>): Promise<T> =>
    isInWorkspace(path) ? budget.admit(path, bytes, files, write) : write(async () => {});
  return overridden<SandboxFiles>(SANDBOX_SHAPE.files, inner, {
    write: (path, content, options) =>
      within(path, Buffer.byteLength(content), 1, () => inner.write(path, content, options)),
    append: (path, content) => within(path, Buffer.byteLength(content), 0, () => inner.append(path, content)),
    mkdir: (path) => within(path, 0, 1, () => inner.mkdir(path)),
    // An upload that outgrows the budget ends with the error, and its temporary file is removed.
    upload: (path: string, content: AsyncIterable<Uint8Array>, options?: WriteOptions) =>
      within(path, 0, 1, (grow) => inner.upload(path, metered(content, grow), options)),
  });
}
