/** An engine, fleets on it, and the Engine API used directly as their baseline. */

import { mkdtempSync, rmSync } from "node:fs";
import { Agent } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import Docker from "dockerode";
import type { FleetConfig } from "../../../packages/fleet/src/config/fleet-config.ts";
import type { Fleet } from "../../../packages/fleet/src/fleet.ts";
import { openFleet } from "../../../packages/fleet/src/open-fleet.ts";
import { holdTestEngine } from "../../../scripts/docker-test-engine.mjs";

export interface Stage extends AsyncDisposable {
  readonly docker: Docker;
  readonly image: string;
  /** The fleet's configuration of it. */
  readonly engine: { readonly host: string; readonly image: string };
  /** The container of a sandbox. Others may use the engine, too. */
  containerOf(sandboxId: string): Promise<Docker.Container>;
  /** A fleet in its own temporary directory. */
  fleet(config?: FleetConfig): Promise<{ readonly fleet: Fleet; readonly home: string } & AsyncDisposable>;
}

/** Of both sides. */
export const LIMITS = { memoryBytes: 512 * 1024 * 1024, pidsMax: 256, cpuCount: 2 };

export async function openStage(): Promise<Stage> {
  const engine = await holdTestEngine();
  if ("reason" in engine) throw new Error(`There is no Docker engine: ${engine.reason}`);
  // The library formats the agent for its log with every request, even without a log: that is not the engine's time.
  const agent = Object.defineProperty(new Agent({ keepAlive: true }), inspect.custom, { value: () => "Agent" });
  const options = { socketPath: engine.host.replace("unix://", ""), agent };
  const docker = new Docker(options);
  const fleet: Stage["fleet"] = async (config = {}) => {
    const home = mkdtempSync(join(tmpdir(), "sandlot-bench-"));
    const opened = await openFleet({
      backend: "docker",
      home,
      docker: { host: engine.host, image: engine.image },
      blueprints: { default: { limits: LIMITS } },
      ...config,
    });
    return {
      fleet: opened,
      home,
      async [Symbol.asyncDispose]() {
        for (const { thread, user } of await opened.list())
          if (thread !== null)
            await opened.destroy(user === null ? { thread } : { thread, user }, { force: true, purge: true });
        await opened.close({ destroy: true });
        rmSync(home, { recursive: true, force: true });
      },
    };
  };
  return {
    docker,
    image: engine.image,
    engine: { host: engine.host, image: engine.image },
    fleet,
    containerOf: async (sandboxId) => {
      const [listed] = await docker.listContainers({ filters: { label: [`sandlot.sandbox=${sandboxId}`] } });
      if (listed === undefined) throw new Error("The sandbox has no container.");
      return docker.getContainer(listed.Id);
    },
    async [Symbol.asyncDispose]() {
      agent.destroy();
      await engine.release();
    },
  };
}

/** Through the Engine API: create, attach, and read its output to the end. */
export async function engineExec(container: Docker.Container, command: readonly string[]): Promise<void> {
  const exec = await container.exec({ Cmd: [...command], AttachStdout: true, AttachStderr: true });
  const stream = await exec.start({});
  await new Promise<void>((resolve, reject) => {
    stream.on("end", resolve);
    stream.on("error", reject);
    stream.resume();
  });
}
