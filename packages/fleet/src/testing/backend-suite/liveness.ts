/** Liveness: by request, and by event. */

import type { EngineEvent } from "../../backend/backend.ts";
import type { BackendCase, BackendStage, Made } from "./stage.ts";

export const livenessCases: readonly BackendCase[] = [
  {
    name: "a probe says alive, and dead after a death",
    run: async (stage) => {
      const made = await stage.make();
      stage.expect(await stage.backend.probe(made.created.ref, stage.signal)).toBe("alive");
      await stage.kill(made);
      await dead(stage, made);
      stage.expect(await (await stage.peer()).probe(made.created.ref, stage.signal)).toBe("dead");
    },
  },
  {
    name: "a death is pushed to every instance that listens, and to no other fleet",
    run: async (stage) => {
      const [peer, stranger] = [await stage.peer(), await stage.stranger()];
      const heard: EngineEvent[][] = [[], [], []];
      const stops = [stage.backend, peer, stranger.backend].map((backend, index) =>
        backend.watch((event) => heard[index]?.push(event)),
      );
      const [made, neighbour] = [await stage.make(), await stage.make()];
      await stage.kill(made);
      const isTheDeath = (event: EngineEvent) =>
        event.type === "died" && event.ref === made.created.ref && event.sandboxId === made.target.sandboxId;
      for (const events of heard.slice(0, 2))
        await stage.eventually("the death was heard", () => events.some(isTheDeath));
      const deaths = heard.flat().filter(({ type }) => type === "died");
      stage.expect(deaths.filter((event) => !isTheDeath(event))).toEqual([]);
      stage.expect(heard[2]?.filter(({ type }) => type === "died")).toEqual([]);
      stage.expect(await stage.backend.probe(neighbour.created.ref, stage.signal)).toBe("alive");
      for (const stop of stops) stop();
    },
  },
  {
    name: "who stopped listening hears nothing more",
    run: async (stage) => {
      const heard: EngineEvent[] = [];
      const still: EngineEvent[] = [];
      const stop = stage.backend.watch((event) => heard.push(event));
      stage.backend.watch((event) => still.push(event));
      stop();
      stop();
      const made = await stage.make();
      await stage.kill(made);
      await stage.eventually("the other listener heard of it", () => still.some(({ type }) => type === "died"));
      stage.expect(heard).toEqual([]);
    },
  },
  {
    name: "a command that runs when its sandbox dies is lost",
    run: async (stage) => {
      const made = await stage.make();
      const { sandbox } = await stage.attach(made.target);
      const running = sandbox.exec("touch /tmp/started; sleep 60");
      await stage.eventually("it runs", () => exists(sandbox.files.stat("/tmp/started")));
      const lost = stage.rejects(running, "sandbox_lost");
      await stage.kill(made);
      await lost;
    },
  },
  {
    name: "a command that runs when its sandbox is destroyed is lost",
    run: async (stage) => {
      const made = await stage.make();
      const { sandbox } = await stage.attach(made.target);
      const running = sandbox.exec("touch /tmp/started; sleep 60");
      await stage.eventually("it runs", () => exists(sandbox.files.stat("/tmp/started")));
      const lost = stage.rejects(running, "sandbox_lost");
      await stage.destroy(made);
      await lost;
    },
  },
  {
    name: "a sandbox object outlives its sandbox only to say that it is lost",
    run: async (stage) => {
      const made = await stage.make();
      const { sandbox } = await stage.attach(made.target);
      await stage.kill(made);
      await dead(stage, made);
      await stage.rejects(sandbox.exec("echo no"), "sandbox_lost");
      await stage.rejects(sandbox.files.readText("/tmp/no"), "sandbox_lost");
      await stage.rejects(sandbox.files.write("/tmp/no", "no"), "sandbox_lost");
    },
  },
  {
    name: "the workspace survives a death",
    run: async (stage) => {
      const key = stage.newKey();
      const made = await stage.make(key);
      const { sandbox } = await stage.attach(made.target);
      await sandbox.files.write("/mnt/user-data/workspace/note", "kept");
      await stage.kill(made);
      await stage.destroy(made);
      const next = await stage.make(key);
      stage.expect(next.created.workspace).toBe("existing");
      stage
        .expect(await (await stage.attach(next.target)).sandbox.files.readText("/mnt/user-data/workspace/note"))
        .toBe("kept");
    },
  },
];

function dead(stage: BackendStage, made: Made): Promise<void> {
  return stage.eventually(
    "it is dead",
    async () => (await stage.backend.probe(made.created.ref, stage.signal)) === "dead",
  );
}

function exists(stat: Promise<unknown>): Promise<boolean> {
  return stat.then(
    () => true,
    () => false,
  );
}
