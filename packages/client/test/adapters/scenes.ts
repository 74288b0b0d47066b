/**
 * Provides the stage of a suite's tests. In memory each test opens its own. Sandboxes of an engine take time to create,
 * so there all tests of a file share one fleet, and one test leaves its sandbox, emptied, to the next.
 *
 * Either way a test sees a thread without files, only its own events, and fails when it leaves a lease behind.
 */

import { afterAll, beforeAll } from "vitest";
import { openToolStage, type StageKind, type ToolStage } from "../tools/tool-stage.ts";

export interface Scene extends AsyncDisposable {
  readonly stage: ToolStage;
  /** Its files are gone; so are those of the same name with a suffix. */
  readonly thread: string;
}

export interface Scenes {
  readonly name: string;
  open(): Promise<Scene>;
}

export function ownScenes(name: string, kind: StageKind): Scenes {
  let threads = 0;
  return {
    name,
    async open() {
      const stage = await openToolStage(kind);
      threads += 1;
      return {
        stage,
        thread: `suite-${threads}`,
        async [Symbol.asyncDispose]() {
          await stage.expectNoLease().finally(() => stage[Symbol.asyncDispose]());
        },
      };
    },
  };
}

/** For one test file: registers the hooks that open and close the shared stage. */
export function sharedScenes(name: string, kindOf: () => StageKind): Scenes {
  let shared: ToolStage | undefined;
  beforeAll(async () => {
    shared = await openToolStage(kindOf());
  }, OPENING_MS);
  afterAll(() => shared?.[Symbol.asyncDispose](), OPENING_MS);
  return {
    name,
    async open() {
      if (shared === undefined) throw new Error("the stage did not open");
      const { stage, wasKilled } = window(shared);
      return {
        stage,
        thread: "suite",
        async [Symbol.asyncDispose]() {
          await stage.expectNoLease();
          await clear(stage, wasKilled());
        },
      };
    },
  };
}

const OPENING_MS = 120_000;

/** The shared stage, with the events of one test. */
function window(shared: ToolStage) {
  const begun = shared.events.length;
  let killed = false;
  const stage: ToolStage = {
    ...{ home: shared.home, fleet: shared.fleet, source: shared.source, leaseCount: shared.leaseCount },
    sourceOf: (user) => shared.sourceOf(user),
    get events() {
      return shared.events.slice(begun);
    },
    expectNoLease: () => shared.expectNoLease(),
    async kill(...thread) {
      killed = true;
      await shared.kill(...thread);
    },
    [Symbol.asyncDispose]: async () => {},
  };
  return { stage, wasKilled: () => killed };
}

const DIRECTORIES = ["workspace", "uploads", "outputs"].map((name) => `/mnt/user-data/${name}`).join(" ");
const EMPTYING = `find ${DIRECTORIES} -mindepth 1 -delete; rm -rf /tmp/*; find ${DIRECTORIES} -mindepth 1 | wc -l | grep -qx 0`;

/** Resets the sandboxes that the test used. A sandbox that replaced a killed one remembers that, and is removed. */
async function clear({ fleet, events }: ToolStage, wasKilled: boolean): Promise<void> {
  const used = new Set(events.flatMap((event) => (event.type === "lease-acquired" ? [event.thread] : [])));
  for (const thread of used) {
    if (thread === null) continue;
    if (wasKilled) await fleet.destroy({ thread }, { force: true, purge: true });
    else {
      await using lease = await fleet.acquire({ thread, purpose: "emptying" });
      const { exitCode, stderr } = await lease.sandbox.exec(EMPTYING);
      if (exitCode !== 0) throw new Error(`the files of ${thread} could not be removed: ${stderr}`);
    }
  }
}
