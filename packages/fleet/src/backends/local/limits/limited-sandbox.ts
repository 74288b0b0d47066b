/**
 * A sandbox as it is used under limits: API writes ask the disk budget first, and a command that a limit has ended says
 * so, on the last line of its stderr. Nothing else about the sandbox changes.
 */

import {
  type ExecOptions,
  type ExecResult,
  type Sandbox,
  type SandboxFiles,
  WORKSPACE_ROOT,
  type WriteOptions,
} from "@sandlot/contract";
import type { DiskBudget, Grow } from "./disk/budget.ts";
import type { DiskGuard } from "./disk/guard.ts";
import { type LimitGroup, limitHit } from "./limits.ts";

export function limitedSandbox(inner: Sandbox, group: LimitGroup, guard: DiskGuard | null): Sandbox {
  const { memoryMaxBytes, processMax } = group.usage();
  if (guard === null && memoryMaxBytes === null && processMax === null) return inner;
  guard?.use(inner);
  const files = guard === null ? inner.files : limitedFiles(inner.files, guard.budget);
  const exec: Sandbox["exec"] = (command, options) => execUnderLimits(inner, group, guard, command, options);
  return new Proxy(inner, {
    get(target, key) {
      if (key === "exec") return exec;
      if (key === "files") return files;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

async function execUnderLimits(
  inner: Sandbox,
  group: LimitGroup,
  guard: DiskGuard | null,
  command: string | readonly string[],
  options?: ExecOptions,
): Promise<ExecResult> {
  const [events, stopCount] = [group.events(), guard?.stopCount];
  const result = await inner.exec(command, options);
  if (result.status === "completed" && result.exitCode === 0) return result;
  const line =
    guard !== null && guard.stopCount !== stopCount ? guard.says : explain(limitHit(events, group.events()), group);
  if (line === null) return result;
  const isWhole = result.stderr === "" || result.stderr.endsWith("\n");
  return { ...result, stderr: `${result.stderr}${isWhole ? "" : "\n"}sandlot: ${line}\n` };
}

function explain(hit: "memory" | "pids" | null, group: LimitGroup): string | null {
  const { memoryMaxBytes, processMax } = group.usage();
  if (hit === "memory")
    return `out of memory: the sandbox may use ${memoryMaxBytes ?? "no more"} bytes, and a process of it was killed`;
  if (hit === "pids")
    return `too many processes: the sandbox may have ${processMax ?? "no more"}, and one could not be started`;
  return null;
}

function limitedFiles(inner: SandboxFiles, budget: DiskBudget): SandboxFiles {
  const within = <T>(path: string, bytes: number, files: number, write: (grow: Grow) => Promise<T>): Promise<T> =>
    path.startsWith(`${WORKSPACE_ROOT}/`) || path.startsWith("/mnt/acp-workspace/")
      ? budget.admit(path, bytes, files, write)
      : write(async () => {});
  const overrides: Pick<SandboxFiles, "write" | "append" | "upload" | "mkdir"> = {
    write: (path, content, options) =>
      within(path, Buffer.byteLength(content), 1, () => inner.write(path, content, options)),
    append: (path, content) => within(path, Buffer.byteLength(content), 0, () => inner.append(path, content)),
    mkdir: (path) => within(path, 0, 1, () => inner.mkdir(path)),
    upload: (path: string, content: AsyncIterable<Uint8Array>, options?: WriteOptions) =>
      within(path, 0, 1, (grow) => inner.upload(path, counted(content, grow), options)),
  };
  return new Proxy(inner, {
    get(target, key) {
      const value: unknown = Reflect.get(key in overrides ? overrides : target, key);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/** An upload that outgrows the budget on its way ends with the error, and its temporary file with it. */
async function* counted(content: AsyncIterable<Uint8Array>, grow: Grow): AsyncGenerator<Uint8Array> {
  for await (const chunk of content) {
    await grow(chunk.byteLength);
    yield chunk;
  }
}
