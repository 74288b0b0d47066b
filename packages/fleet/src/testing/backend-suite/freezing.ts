/**
 * A sandbox that stands still while its files are read.
 */

import { SandlotError } from "@sandlot/contract";
import type { Backend, Thaw } from "../../backend/backend.ts";
import type { BackendCase, BackendStage } from "./stage.ts";

/** Writes all the time, also through children that come and go. */
const WRITERS = "(while :; do echo x >> a; done) & (while :; do /bin/echo x >> b; done) & wait";

interface FreezingCase {
  readonly name: string;
  run(stage: BackendStage, freeze: (backend?: Backend, signal?: AbortSignal) => Promise<Thaw>): Promise<void>;
}

const CASES: readonly FreezingCase[] = [
  {
    name: "changes no file until it is thawed, and goes on then",
    run: async (stage, freeze) => {
      const written = await writing(stage);
      await stage.eventually("it writes", () => isChanging(written));
      const thaw = await freeze();
      const before = await written();
      for (let look = 0; look < 3; look++) stage.expect(await written()).toBe(before);
      stage.expect(await thaw()).toBe(true);
      stage.expect(await thaw()).toBe(true);
      await stage.eventually("it goes on", async () => (await written()) !== before);
    },
  },
  {
    name: "goes on when its caller leaves before it stands still",
    run: async (stage, freeze) => {
      const written = await writing(stage);
      const controller = new AbortController();
      const freezing = freeze(stage.backend, controller.signal);
      controller.abort(new SandlotError("fleet_closed", { operation: "the test" }));
      await stage.rejects(freezing, "fleet_closed");
      await stage.eventually("it goes on", () => isChanging(written));
    },
  },
  {
    name: "answers again after it was thawed",
    run: async (stage, freeze) => {
      await writing(stage);
      const { sandbox } = await stage.attach((await made(stage)).target);
      const thaw = await freeze();
      const asked = sandbox.exec("echo back");
      await stage.pause(300);
      await thaw();
      stage.expect((await asked).stdout).toBe("back\n");
    },
  },
  {
    name: "can be ended, by a caller that waits until it is thawed",
    run: async (stage, freeze) => {
      await writing(stage);
      const thaw = await freeze();
      const ending = stage.destroy(await made(stage));
      await stage.pause(200);
      await thaw();
      await ending;
      stage.expect(await stage.backend.probe((await made(stage)).created.ref, stage.signal)).toBe("dead");
    },
  },
  {
    name: "stands still when it is dead",
    run: async (stage, freeze) => {
      await writing(stage);
      await stage.destroy(await made(stage));
      stage.expect(await (await freeze())()).toBe(true);
    },
  },
];

export const freezingCases: readonly BackendCase[] = [
  {
    name: "is offered where the backend declares it",
    run: async ({ backend, expect }) =>
      expect(backend.freeze !== undefined || !backend.capabilities.has("pause")).toBe(true),
  },
  ...CASES.map(({ name, run }) => ({
    name,
    run: async (stage: BackendStage) => {
      const { backend } = stage;
      if (!backend.capabilities.has("pause") || backend.checkpoints === undefined) return;
      const freeze = async (by = backend, signal = stage.signal): Promise<Thaw> => {
        const thaw = await by.freeze?.((await made(stage)).created.ref, signal);
        if (thaw === undefined) throw new Error("the backend freezes nothing");
        return thaw;
      };
      await run(stage, freeze);
    },
  })),
];

async function isChanging(written: () => Promise<string>): Promise<boolean> {
  const before = await written();
  return (await written()) !== before;
}

type Made = Awaited<ReturnType<BackendStage["make"]>>;
const sandboxes = new WeakMap<BackendStage, Promise<Made>>();

/** The case's one sandbox. */
function made(stage: BackendStage): Promise<Made> {
  const known = sandboxes.get(stage) ?? stage.make();
  sandboxes.set(stage, known);
  return known;
}

/** Starts the writers. Returns a function that names what they have written so far, read without the sandbox. */
async function writing(stage: BackendStage): Promise<() => Promise<string>> {
  const { target, spec } = await made(stage);
  const { sandbox } = await stage.attach(target);
  await sandbox.spawn(WRITERS);
  const { user, thread } = spec.marker ?? {};
  const { checkpoints } = stage.backend;
  if (user === undefined || thread === undefined || checkpoints === undefined) throw new Error("it has no thread");
  const about = { cause: "requested", generation: null, environment: null, writers: "frozen" } as const;
  return async () => {
    const taken = await checkpoints.take({ user, thread }, { ...about, signal: stage.signal });
    return taken.kind === "nothing" ? "" : taken.checkpoint.id;
  };
}
