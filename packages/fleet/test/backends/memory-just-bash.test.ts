/**
 * `just-bash` as the shell: the same tree, the same results, and a clear word when it is missing.
 */

import type { BlueprintHash, FleetId, Generation, SandboxId, ThreadId, Token, UserId } from "@sandlot/contract";
import { afterEach, describe, expect, it, vi } from "vitest";
import { createMemoryBackend } from "../../src/backends/memory/backend.ts";
import { MemoryEngine } from "../../src/backends/memory/engine.ts";
import { systemWorld } from "../../src/world/system-world.ts";

const world = systemWorld();
const signal = new AbortController().signal;

afterEach(() => {
  vi.doUnmock("just-bash");
  vi.resetModules();
});

describe("the shell just-bash", () => {
  it("runs bash over the sandbox's own files", async () => {
    const { exec, files } = await open();
    await files.write("/mnt/user-data/workspace/data.csv", "a,1\nb,2\n");
    const command =
      "mkdir -p out/{x,y} && awk -F, '{ s += $2 } END { print s }' data.csv | tee out/sum; [[ -d out/y ]] && echo braces";
    expect(await exec(command)).toMatchObject({ status: "completed", exitCode: 0, stdout: "3\nbraces\n", stderr: "" });
    expect(await files.readText("/mnt/user-data/workspace/out/sum")).toBe("3\n");
  });

  it("has directory, environment, input and exit code", async () => {
    const { exec } = await open();
    const options = { cwd: "/tmp", env: { X: "1 2" }, stdin: "grüße" };
    expect(await exec('pwd; echo "$X"; cat; echo e >&2; exit 7', options)).toMatchObject({
      exitCode: 7,
      stdout: "/tmp\n1 2\ngrüße",
      stderr: "e\n",
    });
    expect(await exec("cat missing")).toMatchObject({ exitCode: 1, stderr: expect.stringContaining("No such file") });
  });

  it("is ended by a timeout, and runs arrays as they are", async () => {
    const { exec } = await open();
    expect(await exec("sleep 30", { timeoutMs: 100 })).toMatchObject({ status: "timed_out", exitCode: null });
    expect(await exec(["echo", "$X", "{a,b}"])).toMatchObject({ stdout: "$X {a,b}\n" });
  });

  it("moves, links and removes", async () => {
    const { exec, files } = await open();
    const { stdout } = await exec("echo x > a; mv a b; cp b c; ln -s c l; cat l; rm b; chmod 600 c; ls");
    expect(stdout).toBe("x\nc\nl\n");
    expect((await files.stat("/mnt/user-data/workspace/c")).mode).toBe(0o600);
    expect((await exec("rm -rf /mnt/user-data; ls /mnt/user-data")).stdout).toBe("outputs\nuploads\nworkspace\n");
  });

  it("names the command of the checkout that installs it when it is missing", async () => {
    vi.resetModules();
    vi.doMock("just-bash", () => {
      throw new Error("Cannot find package 'just-bash'");
    });
    const { loadJustBash } = await import("../../src/backends/memory/just-bash.ts");
    await expect(loadJustBash()).rejects.toMatchObject({
      code: "dependency_missing",
      details: { package: "just-bash", install: expect.stringMatching(/^npm ci --prefix \S/) },
    });
  });
});

async function open() {
  const fleetId = "fleet" as FleetId;
  const backend = createMemoryBackend({ fleetId, engine: new MemoryEngine({ world, shell: "just-bash" }), world });
  const sandboxId = "one" as SandboxId;
  const credentials = { generation: 1 as Generation, token: "token" as Token };
  const blueprintHash = "hash" as BlueprintHash;
  const key = { user: "user" as UserId, thread: "thread" as ThreadId };
  const { ref } = await backend.create(
    {
      ...credentials,
      labels: { fleet: fleetId, sandboxId, generation: credentials.generation, threadKey: null, blueprintHash },
      blueprint: { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } },
      marker: { ...key, ...credentials, sandboxId, blueprint: "default", blueprintHash },
    },
    signal,
  );
  const { sandbox } = await backend.attach({ ...credentials, sandboxId, ref }, signal);
  return sandbox;
}
