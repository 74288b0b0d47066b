/**
 * A gateway's process that is killed between any two system calls leaves a workspace on a shared volume in one place, and
 * repeating the operation repairs everything: every scenario, before every call. First simulated (all of them), then with
 * real processes and SIGKILL.
 */

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { crashBefore, Died } from "../../../host/workspaces/crash-point.ts";
import { type Matter, SCENARIOS, type Scenario } from "./scenarios.ts";
import { VolumeGround } from "./volume-ground.ts";

const CHILD = fileURLToPath(new URL("./crash-child.ts", import.meta.url));
/** More calls than any scenario makes: one that never ends would otherwise go unnoticed. */
const CALLS_MAX = 500;
/** Real kills take a second each: a few by default, all of them on request. */
const EVERY_CALL = process.env.SANDLOT_TEST_EVERY_KILL === "1";

describe.each(Object.entries(SCENARIOS))("%s", (name, scenario) => {
  let total = 0;

  it("can be interrupted before every call", async () => {
    for (let isOver = false; !isOver; ) {
      total++;
      expect(total).toBeLessThan(CALLS_MAX);
      isOver = await interrupt(scenario, total, async (ground, matter) => {
        const point = await crashBefore(total, "play-dead");
        try {
          await scenario.act(ground.workspaces, matter);
          return point.calls() < total;
        } catch (error) {
          if (isDeath(error)) return false;
          throw error;
        } finally {
          point.remove();
        }
      });
    }
    expect(total).toBeGreaterThan(5);
  });

  it("can be killed", { timeout: 300_000 }, async () => {
    const calls = EVERY_CALL
      ? Array.from({ length: total }, (_, at) => at + 1)
      : [0.4, 0.85].map((share) => Math.ceil(total * share));
    for (const call of calls) await interrupt(scenario, call, ({ root }, matter) => runChild(root, name, matter, call));
  });
});

/** Tidying up reports its death as a problem. */
function isDeath(error: unknown): boolean {
  return error instanceof Died || (error instanceof Error && error.message.includes("Died: before call"));
}

/** Prepares, interrupts, checks, repairs and checks again. Returns whether it finished before the interruption. */
async function interrupt(
  scenario: Scenario,
  call: number,
  act: (ground: VolumeGround, matter: Matter) => Promise<boolean>,
): Promise<boolean> {
  const ground = await VolumeGround.open();
  try {
    const matter = await scenario.prepare(ground, ground.newKey());
    const isOver = await act(ground, matter);
    if (!isOver) await checkInterrupted(ground, scenario, matter, call);
    await scenario.act(ground.peer(), matter);
    await checkMended(ground, scenario, matter, call);
    return isOver;
  } finally {
    ground.dispose();
  }
}

/** The view of others before any repair. */
async function checkInterrupted(ground: VolumeGround, { notes, sight }: Scenario, { spot }: Matter, call: number) {
  const seen = await ground.peer().look(spot);
  const twice = seen.home && seen.slot && sight.stale !== true;
  expect(twice, `in two places after call ${call}`).toBe(false);
  expect(ground.notes(), `after call ${call}`).toEqual(expect.arrayContaining([...notes]));
}

async function checkMended(ground: VolumeGround, scenario: Scenario, { key, spot }: Matter, call: number) {
  const { notes, notesAfter = notes, note, sight, quarantined = 0, slots } = scenario;
  const about = `mended after call ${call}`;
  await ground.workspaces.sweep(async () => true);
  expect(await ground.workspaces.look(spot), about).toMatchObject(sight);
  expect(await ground.note(key), about).toBe(note);
  expect(ground.notes(), about).toEqual([...notesAfter]);
  expect(ground.names("trash"), about).toEqual([]);
  expect([...ground.names("slots"), ...ground.names("released")].length, about).toBe(slots);
  expect(ground.names("quarantine").length, about).toBe(quarantined);
}

function runChild(root: string, name: string, matter: Matter, call: number): Promise<boolean> {
  const { NODE_EXTRA_CA_CERTS: _, ...env } = process.env;
  const args = ["--conditions=sandlot-source", CHILD, root, name, JSON.stringify(matter), String(call)];
  return new Promise((resolve, reject) => {
    execFile(process.execPath, args, { env }, (error, stdout, stderr) => {
      if (error === null) return resolve(Number(stdout) < call);
      if (error.signal === "SIGKILL") return resolve(false);
      reject(new Error(`the child failed: ${stderr}`));
    });
  });
}
