/**
 * Making, finding and destroying.
 */

import type { Capability } from "../../backend/backend.ts";
import type { Blueprint } from "../../backend/blueprint.ts";
import type { BackendCase } from "./stage.ts";

export const lifecycleCases: readonly BackendCase[] = [
  {
    name: "names its engine alike in every process",
    run: async (stage) => {
      const { engineId } = stage.backend;
      stage.expect(engineId.length > 0).toBe(true);
      stage.expect((await stage.peer()).engineId).toBe(engineId);
    },
  },
  {
    name: "what is made is listed at once, with its labels and its place",
    run: async (stage) => {
      const thread = await stage.make();
      const blank = await stage.make(null);
      const objects = await stage.backend.list({ consistent: true }, stage.signal);
      for (const { spec, created } of [thread, blank]) {
        const object = objects.find(({ ref }) => ref === created.ref);
        stage
          .expect(object)
          .toEqual({ ref: created.ref, labels: spec.labels, liveness: "alive", place: created.place });
      }
      stage.expect(objects.length).toBe(2);
    },
  },
  {
    name: "a peer finds what was made",
    run: async (stage) => {
      const made = await stage.make();
      stage.expect(await stage.refs(await stage.peer())).toEqual([made.created.ref]);
    },
  },
  {
    name: "a list can be narrowed to one sandbox",
    run: async (stage) => {
      const [first] = [await stage.make(), await stage.make()];
      const { sandboxId } = first.target;
      const objects = await stage.backend.list({ consistent: true, sandboxId }, stage.signal);
      stage.expect(objects.map(({ ref }) => ref)).toEqual([first.created.ref]);
    },
  },
  {
    name: "another fleet on the same engine sees and lists nothing of it",
    run: async (stage) => {
      const made = await stage.make();
      const { backend, fleetId } = await stage.stranger();
      stage.expect(await stage.refs(backend)).toEqual([]);
      stage.expect(await backend.markers.list(made.target.sandboxId)).toEqual([]);
      const other = await stage.make(stage.newKey(), { fleetId }, backend);
      stage.expect(await stage.refs()).toEqual([made.created.ref]);
      await stage.destroy(other, backend);
      stage.expect(await stage.backend.probe(made.created.ref, stage.signal)).toBe("alive");
    },
  },
  {
    name: "every object has a reference of its own, also two of one thread",
    run: async (stage) => {
      const key = stage.newKey();
      const [first, second] = [await stage.make(key), await stage.make(key)];
      stage.expect(first.created.ref === second.created.ref).toBe(false);
      await stage.destroy(first);
      stage.expect(await stage.refs()).toEqual([second.created.ref]);
      stage.expect(await stage.backend.probe(second.created.ref, stage.signal)).toBe("alive");
    },
  },
  {
    name: "many are made at the same time",
    run: async (stage) => {
      const made = await Promise.all(Array.from({ length: 5 }, () => stage.make()));
      stage.expect((await stage.refs()).sort()).toEqual(made.map(({ created }) => created.ref as string).sort());
    },
  },
  {
    name: "destroy leaves nothing of it and everything of its neighbours",
    run: async (stage) => {
      const [gone, kept] = [await stage.make(), await stage.make()];
      await stage.destroy(gone);
      stage.expect(await stage.refs()).toEqual([kept.created.ref]);
      stage.expect(await stage.backend.probe(gone.created.ref, stage.signal)).toBe("dead");
      stage.expect(await stage.backend.probe(kept.created.ref, stage.signal)).toBe("alive");
      stage.expect(await stage.backend.markers.list(gone.target.sandboxId)).toEqual([]);
      stage.expect((await stage.backend.markers.list(kept.target.sandboxId)).length).toBe(1);
    },
  },
  {
    name: "destroying what is gone is success, also twice at the same time",
    run: async (stage) => {
      const made = await stage.make();
      await Promise.all([stage.destroy(made), stage.destroy(made, await stage.peer())]);
      await stage.destroy(made);
      stage.expect(await stage.refs()).toEqual([]);
    },
  },
  {
    name: "a sandbox that died can be destroyed",
    run: async (stage) => {
      const made = await stage.make();
      await stage.kill(made);
      await stage.eventually(
        "it is dead",
        async () => (await stage.backend.probe(made.created.ref, stage.signal)) === "dead",
      );
      const shown = (await stage.backend.list({ consistent: true }, stage.signal)).map(({ liveness }) => liveness);
      // An engine may show remains, but only as dead.
      stage.expect(shown.filter((liveness) => liveness !== "dead")).toEqual([]);
      await stage.destroy(made);
      stage.expect(await stage.refs()).toEqual([]);
      stage.expect(await stage.backend.markers.list(made.target.sandboxId)).toEqual([]);
    },
  },
  {
    name: "a signal that has fired asks nothing of the engine",
    run: async (stage) => {
      const made = await stage.make();
      const reason = new Error("given up");
      const signal = AbortSignal.abort(reason);
      const { backend } = stage;
      await stage.rejectsWith(backend.create(stage.spec(stage.newKey()), signal), reason);
      await stage.rejectsWith(backend.attach(made.target, signal), reason);
      await stage.rejectsWith(backend.probe(made.created.ref, signal), reason);
      await stage.rejectsWith(backend.list({ consistent: true }, signal), reason);
      await stage.rejectsWith(backend.activity(made.created.ref, signal), reason);
      await stage.rejectsWith(backend.rebind(made.target, made.spec, signal), reason);
      await stage.rejectsWith(backend.destroy(made.created.ref, signal), reason);
      stage.expect(await stage.refs()).toEqual([made.created.ref]);
    },
  },
  {
    name: "a create that is abandoned ends soon, and what it made can be found",
    run: async (stage) => {
      const spec = stage.spec(stage.newKey());
      const controller = new AbortController();
      const reason = new Error("given up");
      const creating = stage.backend.create(spec, controller.signal).then(
        () => "made",
        (error: unknown) => error,
      );
      controller.abort(reason);
      const outcome = await creating;
      stage.expect(outcome === "made" || outcome === reason).toBe(true);
      const { sandboxId } = spec.labels;
      for (const { ref, labels } of await stage.backend.list({ consistent: true, sandboxId }, stage.signal)) {
        stage.expect(labels).toEqual(spec.labels);
        await stage.backend.destroy(ref, stage.signal);
      }
    },
  },
  {
    name: "closing a backend leaves its sandboxes alive",
    run: async (stage) => {
      const backend = await stage.peer();
      const made = await stage.make(stage.newKey(), {}, backend);
      const { sandbox } = await stage.attach(made.target, backend);
      await sandbox.files.write("/tmp/kept", "still here");
      await backend.close();
      stage.expect(await stage.backend.probe(made.created.ref, stage.signal)).toBe("alive");
      const again = await stage.attach(made.target);
      stage.expect(await again.sandbox.files.readText("/tmp/kept")).toBe("still here");
    },
  },
  {
    name: "a blueprint's environment is there",
    run: async (stage) => {
      const blueprint = {
        ...stage.blueprint,
        environment: { ...stage.blueprint.environment, SUITE_COLOUR: "deep blue" },
      };
      const made = await stage.make(stage.newKey(), { blueprint });
      const { sandbox } = await stage.attach(made.target);
      stage.expect((await sandbox.exec('echo "$SUITE_COLOUR"')).stdout).toBe("deep blue\n");
    },
  },
  {
    name: "a blueprint that asks for what is not declared is refused",
    run: async (stage) => {
      const asks: Partial<Record<Capability, Partial<Blueprint>>> = {
        image: { image: "example.org/none:1" },
        runtime: { runtime: "none-such" },
        limits: { limits: { memoryBytes: 64 * 1024 * 1024 } },
        mounts: { mounts: [{ hostPath: "/tmp", sandboxPath: "/mnt/extra", readOnly: true }] },
      };
      for (const [capability, asked] of Object.entries(asks)) {
        if (stage.backend.capabilities.has(capability as Capability)) continue;
        const blueprint = { ...stage.blueprint, ...asked };
        await stage.rejects(stage.make(stage.newKey(), { blueprint }), "capability_missing");
      }
      stage.expect(await stage.refs()).toEqual([]);
    },
  },
];
