/**
 * The suite `peers`: a command in a sandbox of Sandlot beside other ways to run one here. All sides in one run, round
 * by round; each ratio is against Node's own spawn on the host. There are no limits: this is for comparison.
 *
 *   a new sandbox per command      bwrap, sandbox-runtime, `docker run`, a cold acquire
 *   an existing sandbox            `docker exec`, an exec in a held sandbox
 */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { holdTestEngine } from "../../scripts/docker-test-engine.mjs";
import { spawnTrue } from "../baselines/host-process.ts";
import { interleave, type Subject } from "../measuring/interleave.ts";
import { runProgram } from "../measuring/program.ts";
import { compare, type Result } from "../measuring/result.ts";
import { type LocalFleet, openLocalFleet } from "../stage/local-fleet.ts";
import type { Suite, SuiteOptions } from "./suite.ts";

const BUBBLEWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--"];

export const suite: Suite = {
  about: [
    "/bin/true, once per round on every side: on the host, in bare bwrap, in @anthropic-ai/sandbox-runtime, in Docker, and in Sandlot",
    "(local backend, used as a library). A side that this machine cannot run is left out, and said.",
  ].join("\n"),
  run: peers,
};

async function* peers({ quick }: SuiteOptions): AsyncGenerator<Result> {
  await using stack = new AsyncDisposableStack();
  const local = stack.use(await openLocalFleet());
  const lease = stack.use(await local.fleet.acquire({ thread: "held" }));
  const held: Subject = {
    name: "Sandlot: exec in a held sandbox",
    run: async () => expectSuccess((await lease.sandbox.exec(["/bin/true"])).exitCode),
  };
  const subjects = [
    { name: "spawn on the host", run: () => spawnTrue() },
    held,
    { name: "bare bwrap", run: () => runProgram([...BUBBLEWRAP, "/bin/true"], process.env) },
    ...(await sandboxRuntime(stack)),
    ...(await dockerSides(stack)),
    coldSandlot(local),
  ];
  const plan = { rounds: quick ? 5 : 25, batch: 1, timingsPerRound: 1, warmUp: 2 };
  const [host, ...others] = await interleave(subjects, plan);
  if (host === undefined) throw new Error("A side is missing.");
  for (const side of others) {
    const name = side.name.toLowerCase().replaceAll(/[^a-z]+/g, "-");
    yield compare(
      { name: `peers-${name}`, limit: null, about: "against a spawn on the host, in the same rounds" },
      side,
      host,
    );
  }
}

function coldSandlot({ fleet }: LocalFleet): Subject {
  let serial = 0;
  return {
    name: "Sandlot: a new sandbox and an exec",
    run: async () => {
      await using lease = await fleet.acquire({ thread: `cold-${++serial}` });
      expectSuccess((await lease.sandbox.exec(["/bin/true"])).exitCode);
    },
    settle: async () => void (await fleet.destroy({ thread: `cold-${serial}` }, { purge: true })),
  };
}

async function sandboxRuntime(stack: AsyncDisposableStack): Promise<readonly Subject[]> {
  const { SandboxManager } = await import("@anthropic-ai/sandbox-runtime");
  const { errors } = SandboxManager.checkDependencies();
  if (errors.length > 0) return leftOut("@anthropic-ai/sandbox-runtime", errors.join("; "));
  const folder = mkdtempSync(join(tmpdir(), "sandlot-bench-srt-"));
  stack.defer(() => rmSync(folder, { recursive: true, force: true }));
  await SandboxManager.initialize({
    network: { allowedDomains: [], deniedDomains: [] },
    filesystem: { denyRead: [], allowWrite: [folder], denyWrite: [] },
  });
  stack.defer(() => SandboxManager.reset());
  return [
    {
      name: "sandbox-runtime",
      run: async () => runProgram(["bash", "-c", await SandboxManager.wrapWithSandbox("/bin/true")], process.env),
    },
  ];
}

async function dockerSides(stack: AsyncDisposableStack): Promise<readonly Subject[]> {
  const engine = await holdTestEngine();
  if ("reason" in engine) return leftOut("docker", engine.reason);
  stack.defer(() => engine.release());
  const docker = (...args: readonly string[]) => ["docker", "--host", engine.host, ...args];
  const once = (...args: readonly string[]) => docker("run", "--rm", "--network", "none", ...args);
  const [program = "", ...args] = once("-d", engine.image, "sleep", "3600");
  const container = execFileSync(program, args, { encoding: "utf8" }).trim();
  stack.defer(() => runProgram(docker("rm", "--force", container), process.env));
  return [
    { name: "docker exec", run: () => runProgram(docker("exec", container, "/bin/true"), process.env) },
    { name: "docker run", run: () => runProgram(once(engine.image, "/bin/true"), process.env) },
  ];
}

function leftOut(name: string, reason: string): readonly Subject[] {
  console.log(`left out: ${name}: ${reason}\n`);
  return [];
}

function expectSuccess(exitCode: number | null): void {
  if (exitCode !== 0) throw new Error(`true ended with ${exitCode}`);
}
