/** Attaching, and its refusals: only the present generation and token reach a sandbox. */

import type { Generation } from "@sandlot/contract";
import type { BackendCase, BackendStage, Made } from "./stage.ts";

export const attachingCases: readonly BackendCase[] = [
  {
    name: "an attachment gives the sandbox with its id and generation",
    run: async (stage) => {
      const made = await stage.make();
      const { sandbox } = await stage.attach(made.target);
      stage.expect([sandbox.id, sandbox.generation]).toEqual([made.target.sandboxId, made.target.generation]);
      stage.expect((await sandbox.exec("echo ready")).stdout).toBe("ready\n");
    },
  },
  {
    name: "another token, an older and a later generation are stale",
    run: async (stage) => {
      const { target } = await stage.make();
      const generation = (step: number) => (target.generation + step) as Generation;
      await stage.rejects(stage.attach({ ...target, token: stage.newToken() }), "stale_generation");
      await stage.rejects(stage.attach({ ...target, generation: generation(-1) }), "stale_generation");
      await stage.rejects(stage.attach({ ...target, generation: generation(1) }), "stale_generation");
      await stage.attach(target);
    },
  },
  {
    name: "a token is of use for its own sandbox only, and attaching keeps it",
    run: async (stage) => {
      const [robbed, other] = [await stage.make(), await stage.make()];
      const { token, generation } = robbed.target;
      await stage.attach(robbed.target);
      await stage.rejects(stage.attach({ ...other.target, token }), "stale_generation");
      await stage.rejects(stage.attach({ ...other.target, token, generation }), "stale_generation");
      await stage.attach(robbed.target);
    },
  },
  {
    name: "two instances attach to one sandbox and see the same",
    run: async (stage) => {
      const { target } = await stage.make();
      const mine = await stage.attach(target);
      const theirs = await stage.attach(target, await stage.peer());
      await mine.sandbox.files.write("/tmp/note", "shared");
      stage.expect(await theirs.sandbox.files.readText("/tmp/note")).toBe("shared");
      await mine.close();
      stage.expect((await theirs.sandbox.exec("cat /tmp/note")).stdout).toBe("shared");
    },
  },
  {
    name: "closing an attachment ends the connection, not the sandbox",
    run: async (stage) => {
      const { target } = await stage.make();
      const first = await stage.attach(target);
      await first.sandbox.files.write("/tmp/note", "kept");
      await first.close();
      await first.closed;
      await first.close();
      const again = await stage.attach(target);
      stage.expect(await again.sandbox.files.readText("/tmp/note")).toBe("kept");
    },
  },
  {
    name: "an attachment closes when its sandbox dies or is destroyed",
    run: async (stage) => {
      const [killed, destroyed] = [await stage.make(), await stage.make()];
      const attachments = [await stage.attach(killed.target), await stage.attach(destroyed.target)];
      await stage.kill(killed);
      await stage.destroy(destroyed);
      await Promise.all(attachments.map(({ closed }) => closed));
    },
  },
  {
    name: "what is dead or gone is lost",
    run: async (stage) => {
      const [killed, destroyed] = [await stage.make(), await stage.make()];
      await stage.kill(killed);
      await stage.eventually(
        "it is dead",
        async () => (await stage.backend.probe(killed.created.ref, stage.signal)) === "dead",
      );
      await stage.rejects(stage.attach(killed.target), "sandbox_lost");
      await stage.destroy(destroyed);
      await stage.rejects(stage.attach(destroyed.target), "sandbox_lost");
    },
  },
  {
    name: "rebind gives a blank its new generation and token, and the old ones are stale",
    run: async (stage) => {
      const blank = await stage.make(null);
      const target = await rebound(stage, blank);
      const { sandbox } = await stage.attach(target);
      stage.expect(sandbox.generation).toBe(target.generation);
      await stage.rejects(stage.attach(blank.target), "stale_generation");
      await stage.rejects(stage.attach({ ...target, token: blank.target.token }), "stale_generation");
      await stage.rejects(stage.attach({ ...target, generation: blank.target.generation }), "stale_generation");
    },
  },
  {
    name: "rebind told twice, or by two at once, answers as it did the first time",
    run: async (stage) => {
      const blank = await stage.make(null);
      const target = await rebound(stage, blank);
      const peer = await stage.peer();
      await Promise.all([stage.backend, peer].map((backend) => backend.rebind(target, blank.spec, stage.signal)));
      await stage.attach(target);
    },
  },
  {
    name: "rebind from credentials that are not the present ones is stale and changes nothing",
    run: async (stage) => {
      const blank = await stage.make(null);
      const wrong = { generation: blank.spec.generation, token: stage.newToken() };
      const next = { ...blank.target, generation: stage.nextGeneration(), token: stage.newToken() };
      await stage.rejects(stage.backend.rebind(next, wrong, stage.signal), "stale_generation");
      await stage.attach(blank.target);
      const target = await rebound(stage, blank);
      await stage.rejects(stage.backend.rebind(next, blank.spec, stage.signal), "stale_generation");
      await stage.attach(target);
    },
  },
  {
    name: "rebind of what is dead or gone is lost",
    run: async (stage) => {
      const [killed, destroyed] = [await stage.make(null), await stage.make(null)];
      await stage.kill(killed);
      await stage.destroy(destroyed);
      await stage.eventually(
        "it is dead",
        async () => (await stage.backend.probe(killed.created.ref, stage.signal)) === "dead",
      );
      await stage.rejects(rebound(stage, killed), "sandbox_lost");
      await stage.rejects(rebound(stage, destroyed), "sandbox_lost");
    },
  },
  {
    name: "a sandbox object of an older generation reaches nothing any more",
    run: async (stage) => {
      const blank = await stage.make(null);
      const { sandbox } = await stage.attach(blank.target);
      await rebound(stage, blank);
      await stage.rejects(sandbox.exec("echo no", { cwd: "/tmp" }), "stale_generation");
      await stage.rejects(sandbox.files.write("/tmp/no", "no"), "stale_generation");
      await stage.rejects(sandbox.files.list("/tmp"), "stale_generation");
    },
  },
];

async function rebound(stage: BackendStage, blank: Made): Promise<Made["target"]> {
  const target = { ...blank.target, generation: stage.nextGeneration(), token: stage.newToken() };
  await stage.backend.rebind(target, blank.spec, stage.signal);
  return target;
}
