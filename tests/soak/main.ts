/**
 * Creates, uses and destroys sandboxes for a long time and then looks for leftovers.
 *
 *   npm run soak -- --backend local --cycles 2000
 *   npm run soak -- --cycles 200 --together 50 --jobs 4
 *   npm run soak -- --backend docker --cycles 200 --together 20
 *
 * First `--together` sandboxes at once, each used; then `--cycles` of create, use and destroy, `--jobs` at a time.
 * Every output is checked against a nonce. Fails when a use went wrong, or when there are new processes, mounts,
 * control groups or files afterwards.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import type { Fleet } from "../../packages/fleet/src/fleet.ts";
import { openFleet } from "../../packages/fleet/src/open-fleet.ts";
import { holdTestEngine } from "../../scripts/docker-test-engine.mjs";
import { added, countOf, type HostDifference, isKept, look } from "./host-sight.ts";

const { values } = parseArgs({
  options: {
    backend: { type: "string", default: "local" },
    cycles: { type: "string", default: "2000" },
    together: { type: "string", default: "200" },
    jobs: { type: "string", default: "4" },
  },
});
const [cycles, together, jobs] = [Number(values.cycles), Number(values.together), Number(values.jobs)];
/** The engine may end some things a moment later, off the hot path. */
const SETTLE_MS = 30_000;
const PROGRESS_MS = 15_000;

process.exitCode = await soak();

async function soak(): Promise<number> {
  const home = mkdtempSync(join(tmpdir(), "sandlot-soak-"));
  const backend = values.backend === "docker" ? "docker" : "local";
  const startedAt = performance.now();
  const seconds = () => ((performance.now() - startedAt) / 1000).toFixed(1);
  // A private engine, if none is named.
  const engine = backend === "docker" ? await holdTestEngine() : null;
  if (engine !== null && "reason" in engine) throw new Error(`There is no Docker engine: ${engine.reason}`);
  const before = look(home, backend);
  const fleet = await openFleet({
    home,
    backend,
    ...(engine === null ? {} : { docker: { host: engine.host, image: engine.image, pull: "never" } }),
    limits: { max: Math.max(together, jobs) + 8 },
    acquireTimeoutMs: 300_000,
  });
  const failures: string[] = [];
  const sight = () => added(before, look(home, backend));
  await allAtOnce(fleet, failures, sight);
  console.log(`${together} sandboxes at once, used and destroyed, ${seconds()} s, ${failures.length} failures`);
  await inTurns(fleet, failures, seconds);
  await fleet.close({ destroy: true });
  const left = await settled(sight);
  for (const failure of failures.slice(0, 20)) console.log(`FAILED ${failure}`);
  for (const [kind, names] of Object.entries(left)) {
    for (const name of names.slice(0, 20)) console.log(`LEFT ${kind}: ${name}`);
  }
  rmSync(home, { recursive: true, force: true });
  await engine?.release();
  console.log(
    `${cycles} cycles, ${together} at once, ${seconds()} s: ${failures.length} failures, ${countOf(left)} left behind`,
  );
  return failures.length === 0 && countOf(left) === 0 ? 0 : 1;
}

async function allAtOnce(fleet: Fleet, failures: string[], sight: () => HostDifference): Promise<void> {
  const threads = Array.from({ length: together }, (_, index) => `together-${index}`);
  const leases = await Promise.all(threads.map((thread) => fleet.acquire({ thread })));
  await Promise.all(leases.map(({ sandbox }, index) => use(sandbox, `t${index}`, failures)));
  const count = (await fleet.list()).filter(({ state }) => state === "leased").length;
  if (count !== together) failures.push(`${count} of ${together} were there at once`);
  // If they are not visible now, leftovers would not be either.
  const { processes, files } = sight();
  console.log(`${together} at once: ${processes.length} processes and ${files.length} files seen on the host`);
  if (processes.length < together || files.length < together) failures.push("the host shows less than there is");
  await Promise.all(leases.map((lease) => lease.release()));
  for (const thread of threads) await fleet.destroy({ thread }, { purge: true });
}

async function inTurns(fleet: Fleet, failures: string[], seconds: () => string): Promise<void> {
  let next = 0;
  const progress = setInterval(() => console.log(`${next} of ${cycles} cycles, ${seconds()} s`), PROGRESS_MS);
  const work = async () => {
    for (let cycle = next++; cycle < cycles; cycle = next++) {
      const thread = `cycle-${cycle}`;
      try {
        await using lease = await fleet.acquire({ thread });
        await use(lease.sandbox, thread, failures);
      } catch (error) {
        failures.push(`${thread}: ${error}`);
      }
      await fleet.destroy({ thread }, { purge: true });
    }
  };
  await Promise.all(Array.from({ length: jobs }, work));
  clearInterval(progress);
}

async function use(sandbox: Awaited<ReturnType<Fleet["acquire"]>>["sandbox"], nonce: string, failures: string[]) {
  await sandbox.files.write("/mnt/user-data/workspace/nonce", nonce);
  const { stdout } = await sandbox.exec("cat nonce; (sleep 100 &) ; echo done");
  if (stdout !== `${nonce}done\n`) failures.push(`${nonce}: ${JSON.stringify(stdout)}`);
}

/** What is left after everything had time to end. */
async function settled(read: () => HostDifference): Promise<HostDifference> {
  const deadline = Date.now() + SETTLE_MS;
  for (;;) {
    const all = read();
    const files = all.files.filter((path) => !isKept(path));
    const left = { ...all, files };
    if (countOf(left) === 0 || Date.now() > deadline) return left;
    await sleep(250);
  }
}
