/** DeerFlow's provisioner contract with real sandboxes: its client's calls, mounts, and a gateway that is restarted. */

import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Fleet } from "../../src/fleet.ts";
import { type Gateway, startGateway } from "../../src/gateway/start-gateway.ts";
import { openFleetAndHost } from "../../src/open-fleet.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { DeerFlowClient, idOf, run } from "./support/deerflow-client.ts";
import { hasBubblewrap } from "./support/gateway-process.ts";

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

describe.skipIf(!hasBubblewrap)("with real sandboxes (skipped where bubblewrap is not installed)", () => {
  const place = mkdtempSync(join(tmpdir(), "slp-"));
  const home = join(place, "home");
  const base = join(place, "deer-flow");
  let fleet: Fleet;
  let gateway: Gateway;
  let key: string;
  let client: DeerFlowClient;
  let ports: { port: number; preview: { port: number } };

  const start = async () => {
    ({ fleet } = await openFleetAndHost({ home, backend: "local" }));
    const settings = { ...ports, provisioner: { hostBasePath: base } };
    gateway = await startGateway({ fleet, home, world: systemWorld(), settings });
  };
  const directory = (...names: string[]) => {
    const path = join(base, ...names);
    mkdirSync(path, { recursive: true });
    return path;
  };

  beforeAll(async () => {
    mkdirSync(home);
    mkdirSync(base);
    ports = { port: await freePort(), preview: { port: await freePort() } };
    await start();
    ({ key } = await gateway.keys.create({ scope: "platform" }));
    client = new DeerFlowClient(gateway.url, key);
  }, 60_000);

  afterAll(async () => {
    await gateway.close();
    for (const { user, thread } of await fleet.list())
      if (user !== null && thread !== null) await fleet.destroy({ user, thread }, { force: true });
    await fleet.close({ destroy: true });
    rmSync(place, { recursive: true });
  }, 60_000);

  it("a turn of DeerFlow: discover, create, ready, commands and files, alive, listed, and gone", async () => {
    const id = await idOf("ann", "t1");
    expect(await client.discover(id)).toBeNull();
    const made = await client.create("t1", id, { user: "ann" });
    expect(await client.isReady(made)).toBe(true);
    expect(await run(made, "echo from $((40 + 2)) > /mnt/user-data/outputs/a; cat /mnt/user-data/outputs/a")).toContain(
      "from 42",
    );
    expect(await client.isAlive(id)).toBe(true);
    expect(await client.discover(id)).toEqual(made);
    expect(await client.listRunning()).toEqual([made]);
    // A background process of one turn is there in the next.
    await run(made, "nohup sleep 300 > /dev/null 2>&1 & echo $! > /tmp/pid");
    expect(await run(await client.create("t1", id, { user: "ann" }), "kill -0 $(cat /tmp/pid) && echo runs")).toContain(
      "runs",
    );
    await client.destroy(id);
    expect([await client.isAlive(id), await client.discover(id)]).toEqual([false, null]);
    expect((await fetch(`${made.sandbox_url}/v1/sandbox`)).status).toBe(401);
    // The files of a thread outlive its sandbox.
    const again = await client.create("t1", id, { user: "ann" });
    expect(await run(again, "cat /mnt/user-data/outputs/a")).toContain("from 42");
    await client.destroy(id);
  }, 120_000);

  it("survives a restart of the gateway, with the same URL and the same processes", async () => {
    const made = await client.create("t2", "s2");
    await run(made, "nohup sleep 300 > /dev/null 2>&1 & echo $! > /tmp/pid");
    await gateway.close();
    await fleet.close();
    await start();
    expect(await client.discover("s2")).toEqual(made);
    expect(await run(made, "kill -0 $(cat /tmp/pid) && echo runs")).toContain("runs");
    await client.destroy("s2");
    expect(await client.isAlive("s2")).toBe(false);
  }, 120_000);

  it("two gateways of one home know the same sandboxes", async () => {
    const other = await openFleetAndHost({ home, backend: "local" });
    const second = await startGateway({ fleet: other.fleet, home, world: systemWorld(), settings: { port: 0 } });
    try {
      const there = new DeerFlowClient(second.url, key);
      const ask = (_: unknown, index: number) => (index % 2 === 0 ? client : there).create(null, "both");
      const made = await Promise.all(Array.from({ length: 6 }, ask));
      const path = ({ sandbox_url }: { sandbox_url: string }) => new URL(sandbox_url).pathname;
      expect(new Set(made.map(path)).size).toBe(1);
      expect((await fleet.list()).map(({ thread }) => thread)).toEqual(["both"]);
      const [here] = made;
      const found = await there.discover("both");
      if (here === undefined || found === null) throw new Error("it was made");
      await run(here, "echo one > /tmp/file");
      expect(await run(found, "cat /tmp/file")).toContain("one");
      await there.destroy("both");
      expect([await client.isAlive("both"), await client.listRunning()]).toEqual([false, []]);
      for (const { sandbox_url } of [here, found]) expect((await fetch(`${sandbox_url}/v1/sandbox`)).status).toBe(401);
    } finally {
      await second.close();
      await other.fleet.close();
    }
  }, 120_000);

  it("mounts what DeerFlow sends, where it sends it", async () => {
    writeFileSync(join(directory("users/ann/acp"), "plan"), "the plan\n");
    writeFileSync(join(directory("users/ann/skills_view/custom"), "skill"), "the skill\n");
    const mounts = [
      { host_path: join(base, "users/ann/acp"), container_path: "/mnt/acp-workspace", read_only: true },
      { host_path: join(base, "users/ann/skills_view/custom"), container_path: "/mnt/skills/custom/", read_only: true },
      { host_path: join(base, "users/ann/lark/data"), container_path: "/mnt/integrations/lark-cli/data" },
    ];
    const made = await client.create("t3", "s3", { user: "ann", mounts });
    expect(await run(made, "cat /mnt/acp-workspace/plan /mnt/skills/custom/skill")).toMatch(/the plan\s+the skill/);
    expect(await run(made, "touch /mnt/acp-workspace/x 2>&1 || echo refused")).toContain("refused");
    await run(made, "echo kept > /mnt/integrations/lark-cli/data/token");
    expect(readFileSync(join(base, "users/ann/lark/data/token"), "utf8")).toBe("kept\n");
    await client.destroy("s3");
    // Of a parked sandbox with other mounts a new one is made.
    await (await fleet.acquire({ user: "ann", thread: "t3" })).release();
    const other = await client.create("t3", "s3", { user: "ann", mounts: mounts.slice(0, 1) });
    expect(await run(other, "cat /mnt/acp-workspace/plan; ls /mnt/skills/custom 2>&1")).toMatch(
      /the plan[\s\S]*No such/,
    );
    await client.destroy("s3");
  }, 120_000);

  it("mounts all seven places at once, also one below another that is read-only, and 400 where that may be written", async () => {
    const lark = "/mnt/integrations/lark-cli";
    const below = ["config", "config/locks", "data", "runtime"].map((name) => `${lark}/${name}`);
    const places = ["/mnt/acp-workspace", "/mnt/skills/custom", "/mnt/skills/integrations", ...below];
    const mounts = places.map((container_path, index) => {
      writeFileSync(join(directory(`seven/${index}`), "number"), `${index}\n`);
      return {
        host_path: join(base, `seven/${index}`),
        container_path,
        read_only: container_path === `${lark}/config`,
      };
    });
    await expect(
      client.create("t5", "s5", { mounts: mounts.map((one) => ({ ...one, read_only: false })) }),
    ).rejects.toThrow(/^Provisioner create failed: 400 .*sandboxes may write/);
    directory("seven/3/locks");
    const made = await client.create("t5", "s5", { mounts });
    const shown = await run(made, `cat ${places.map((one) => `${one}/number`).join(" ")}`);
    expect(shown.trim().split(/\s+/)).toEqual(["0", "1", "2", "3", "4", "5", "6"]);
    await client.destroy("s5");
  }, 120_000);

  it("refuses mounts outside the base, through links, at other places, doubled and too many", async () => {
    const inside = directory("mine");
    const outside = join(place, "outside");
    mkdirSync(outside);
    symlinkSync(outside, join(base, "link"));
    symlinkSync(inside, join(base, "inner-link"));
    writeFileSync(join(base, "file"), "");
    const acp = "/mnt/acp-workspace";
    const refused: (readonly [text: string, mounts: { host_path: string; container_path: string }[]])[] = [
      ["outside", [{ host_path: outside, container_path: acp }]],
      ["outside", [{ host_path: `${base}/mine/../../outside`, container_path: acp }]],
      ["outside", [{ host_path: `${base}-other`, container_path: acp }]],
      ["not absolute", [{ host_path: "mine", container_path: acp }]],
      ["symbolic link", [{ host_path: join(base, "link"), container_path: acp }]],
      ["symbolic link", [{ host_path: join(base, "link/below/it"), container_path: acp }]],
      ["symbolic link", [{ host_path: join(base, "inner-link"), container_path: acp }]],
      ["not a directory", [{ host_path: join(base, "file"), container_path: acp }]],
      ["not absolute", [{ host_path: inside, container_path: "mnt/acp-workspace" }]],
      ["not allowed", [{ host_path: inside, container_path: "/mnt/user-data" }]],
      ["not allowed", [{ host_path: inside, container_path: "/mnt/skills/../../etc" }]],
      ["not allowed", [{ host_path: inside, container_path: "/mnt/skills/public" }]],
      ["twice", [acp, `${acp}/`].map((container_path) => ({ host_path: inside, container_path }))],
      ["at most 10", Array.from({ length: 11 }, () => ({ host_path: inside, container_path: acp }))],
    ];
    for (const [text, mounts] of refused) {
      const problem = await client.create("t4", "s4", { mounts }).then(
        () => "created",
        (error: Error) => error.message,
      );
      expect(problem).toMatch(/^Provisioner create failed: 400 /);
      expect([JSON.stringify(mounts), problem]).toEqual([JSON.stringify(mounts), expect.stringContaining(text)]);
    }
    const { key: users } = await gateway.keys.create({ scope: "user", user: "ann" });
    const own = [{ host_path: inside, container_path: acp, read_only: true }];
    const asUser = new DeerFlowClient(gateway.url, users).create("t4", "s4", { user: "ann", mounts: own });
    await expect(asUser).rejects.toThrow(/400 .*a user's key may mount none/);
    const missing = [{ host_path: join(base, "no-such"), container_path: acp, read_only: true }];
    await expect(client.create("t4", "s4", { mounts: missing })).rejects.toThrow(/400 .*does not exist/);
    expect([existsSync(join(outside, "below")), existsSync(join(base, "no-such"))]).toEqual([false, false]);
    expect(await fleet.find({ thread: "t4" })).toBeNull();
  }, 120_000);
});
