/** `sandlot keys` without a gateway, on a store that several hosts share. */

import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ApiKeys } from "../../../src/gateway/keys/api-keys.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { runHere } from "../../cli/run-here.ts";
import { RedisProcess, reasonToSkip } from "./redis-process.ts";

const reason = reasonToSkip();

if (reason !== null) it("sandlot keys on Redis", (context) => context.skip(reason));
else
  describe("sandlot keys on a shared store", () => {
    let redis: RedisProcess;
    let root = "";
    beforeAll(async () => {
      redis = await RedisProcess.start({ config: { appendfsync: "everysec" } });
      root = await mkdtemp(join(tmpdir(), "sandlot-keys-"));
      const config = { backend: "memory", store: { type: "redis", url: `redis://127.0.0.1:${redis.port}` } };
      await writeFile(join(root, "sandlot.json"), JSON.stringify(config));
    });
    afterAll(async () => {
      await redis.dispose();
      await rm(root, { recursive: true, force: true });
    });

    const keys = async (home: string, ...args: string[]) => {
      const config = ["-c", join(root, "sandlot.json"), "--json"];
      const { code, stdout, stderr } = await runHere(["keys", ...args, ...config], { SANDLOT_HOME: join(root, home) });
      expect(stderr).toBe("");
      return { code, reply: JSON.parse(stdout) as Record<string, unknown> };
    };

    it("are made at one host, and listed and revoked at another", async () => {
      const { reply } = await keys("a", "create", "--scope", "user", "--user", "alice");
      const ids = async () => ((await keys("b", "list")).reply.keys as { id: string }[]).map(({ id }) => id);
      expect(await ids()).toEqual([reply.id]);
      expect((await readdir(join(root, "a", "keys"))).length).toBe(0);
      expect(await keys("b", "revoke", String(reply.id))).toEqual({ code: 0, reply: { id: reply.id, revoked: true } });
      expect(await ids()).toEqual([]);
    });

    it("in files are imported when an operator says so, and not before", async () => {
      const files = await ApiKeys.open(join(root, "c"), systemWorld());
      const { id } = await files.create({ scope: "platform", label: "of the time before" });
      expect((await keys("c", "list")).reply).toEqual({ keys: [] });
      expect((await keys("c", "import")).reply).toEqual({ imported: [id] });
      expect((await keys("b", "list")).reply).toMatchObject({ keys: [{ id, label: "of the time before" }] });
      expect((await keys("c", "import")).reply).toEqual({ imported: [] });
    });
  });
