/** sandboxd from its start to its ready line, against a bare `node:http` server. No sandbox around either. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SANDBOXD_FILE } from "../../../packages/sandboxd/src/index.ts";
import { type BareServer, startBareServer } from "../../baselines/bare-server.ts";
import { interleave, type Subject } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import type { SuiteOptions } from "../suite.ts";

const LIMIT = 1.5;

export async function* daemonReady({ quick }: SuiteOptions): AsyncGenerator<Result> {
  const plan = { rounds: quick ? 10 : 40, batch: 1, timingsPerRound: 1, warmUp: 2 };
  const [daemon, bare] = await interleave([sandboxd(), bareServer()], plan);
  if (daemon === undefined || bare === undefined) throw new Error("A side is missing.");
  const about = "from spawn to the line that says it listens, the same Node, no sandbox around either";
  yield compare({ name: "sandboxd-ready", limit: LIMIT, about }, daemon, bare);
}

function sandboxd(): Subject {
  let child: ChildProcess | null = null;
  let directory = "";
  return {
    name: "sandboxd",
    prepare: async () => {
      directory = mkdtempSync(join(tmpdir(), "bare-"));
    },
    run: async () => {
      const started = spawn(process.execPath, [SANDBOXD_FILE], {
        env: {},
        stdio: ["pipe", "inherit", "inherit", "pipe"],
      });
      child = started;
      const config = { sandboxId: "bench", generation: 1, token: "bench", listen: { path: join(directory, "s") } };
      started.stdin?.end(JSON.stringify({ ...config, ready: { fd: 3 } }));
      const ready = started.stdio[3];
      if (ready === null || ready === undefined) throw new Error("There is no descriptor to hear it from.");
      await once(ready, "data");
    },
    settle: async () => {
      const ended = child === null ? null : once(child, "close");
      child?.kill("SIGKILL");
      await ended;
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

function bareServer(): Subject {
  let server: BareServer | null = null;
  return {
    name: "node:http",
    run: async () => {
      server = startBareServer();
      await server.ready;
    },
    settle: async () => server?.end(),
  };
}
