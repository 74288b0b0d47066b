/** Every command through a gateway with a user's key: it reaches the threads of its own user, and nothing else. */

import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ApiKeyInfo, SandboxSummary, ThreadSummary } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { serve } from "../../src/gateway/index.ts";
import { openFleetAndHost } from "../../src/open-fleet.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { runHere } from "./run-here.ts";

const root = mkdtempSync(join(tmpdir(), "slu-"));
const home = join(root, "home");
const config = join(root, "config");
let served: Awaited<ReturnType<typeof serve>>;
let keys: Record<"alice" | "bob", string>;

beforeAll(async () => {
  const open = () => openFleetAndHost({ home, backend: "memory" });
  served = await serve({ openFleet: open, home, gateway: { port: 0 }, world: systemWorld() });
  const make = async (user: string) => (await served.keys.create({ scope: "user", user })).key;
  keys = { alice: await make("alice"), bob: await make("bob") };
});

afterAll(async () => {
  await served.close({ destroy: true });
  rmSync(root, { recursive: true });
});

const as = (who: "alice" | "bob") => {
  const environment = { SANDLOT_HOME: join(root, who), SANDLOT_URL: served.url, SANDLOT_API_KEY: keys[who] };
  return (args: readonly string[], until?: RegExp) => runHere(args, environment, until);
};
const alice = (...args: string[]) => as("alice")(args);
const bob = (...args: string[]) => as("bob")(args);
const use = (user: string, thread: string) => served.fleet.warm({ user, thread });

describe("a user's key", () => {
  it("lists, stops and purges its own threads", async () => {
    await use("alice", "w1");
    await use("bob", "secret");
    const { sandboxes } = JSON.parse((await alice("ps", "--json")).stdout) as { sandboxes: SandboxSummary[] };
    expect(sandboxes.map(({ user, thread }) => [user, thread])).toEqual([["alice", "w1"]]);
    expect(await alice("rm", "-t", "w1")).toMatchObject({
      code: 0,
      stdout: expect.stringContaining("its files are kept"),
    });
    const { threads } = JSON.parse((await alice("ps", "--threads", "--json")).stdout) as { threads: ThreadSummary[] };
    expect(threads).toEqual([{ user: "alice", thread: "w1", sandbox: null }]);
    expect((await alice("rm", "-t", "w1", "--purge")).code).toBe(0);
    expect((await alice("ps", "--threads", "-q")).stdout).toBe("");
    expect((await alice("rm", "-t", "secret", "--force")).stderr).toContain("thread_not_found");
    expect((await alice("rm", "-t", "secret", "-u", "bob")).stderr).toContain("forbidden");
    expect((await bob("ps", "--threads", "-q")).stdout).toBe("secret\n");
  });

  it("explains by thread and by the beginning of an id, also what has ended", async () => {
    await use("alice", "w2");
    expect((await alice("explain", "-t", "w2")).stdout).toContain("kept for thread w2");
    const { sandbox } = (await served.fleet.findThread({ user: "alice", thread: "w2" })) ?? { sandbox: null };
    const short = sandbox?.sandboxId.slice(0, 12) ?? "";
    await alice("rm", "-t", "w2");
    for (const args of [["-t", "w2"], [short]])
      expect((await alice("explain", ...args)).stdout).toMatch(/^It was stopped at .*: destroyed\.\n/);
    expect((await bob("explain", short)).stderr).toContain("sandbox_not_found");
    expect((await alice("explain")).stderr).toContain("name a sandbox by its id, or a thread with -t");
  });

  it("ends everything of its own with rm --all, and with prune what is not in use", async () => {
    for (const thread of ["p1", "p2"]) await use("alice", thread);
    await using _held = await served.fleet.acquire({ user: "alice", thread: "p3" });
    const pruned = JSON.parse((await alice("prune", "--json")).stdout) as { ended: { thread: string }[] };
    expect(pruned.ended.map(({ thread }) => thread)).toEqual(["p1", "p2"]);
    const all = await alice("rm", "--all");
    expect(all).toMatchObject({ code: 1, stdout: expect.stringContaining("p3 is in use and goes on") });
    expect(await served.fleet.find({ user: "bob", thread: "secret" })).not.toBeNull();
    expect((await alice("rm")).stderr).toContain("name a thread with -t, or every thread with --all");
  });

  it("shows what its sandboxes use, and of one thread alone", async () => {
    for (const thread of ["s1", "s2"]) await use("alice", thread);
    await use("bob", "hidden");
    type Stats = { sandboxes: { thread: string; user: string; sandboxId: string; usage: object }[] };
    const all = JSON.parse((await alice("stats", "--json")).stdout) as Stats;
    expect(all.sandboxes.filter(({ thread }) => /^s\d$/.test(thread)).map(({ thread }) => thread)).toEqual([
      "s1",
      "s2",
    ]);
    expect(all.sandboxes.every(({ user }) => user === "alice")).toBe(true);
    expect(all.sandboxes[0]?.usage).toHaveProperty("memoryBytes");
    const { code, stdout } = await alice("stats", "-t", "s2");
    expect(code).toBe(0);
    expect(stdout.trimEnd().split("\n")).toHaveLength(2);
    expect(stdout).toMatch(/^THREAD +USER +MEMORY +PROCESSES +CPU +DISK\ns2 +alice +/);
    expect((await alice("stats", "-t", "hidden")).stderr).toContain("thread_not_found");
    await alice("rm", "--all", "--force");
    expect((await alice("stats")).stderr).toBe("There are no sandboxes.\n");
  });

  it("shows what commands printed", async () => {
    await using lease = await served.fleet.acquire({ user: "alice", thread: "logged" });
    await lease.sandbox.exec("echo first", { execId: "one" });
    await lease.sandbox.exec("echo second; echo trouble >&2", { execId: "two" });
    expect(await alice("logs", "-t", "logged")).toEqual({ code: 0, stdout: "second\n", stderr: "trouble\n" });
    expect((await alice("logs", "-t", "logged", "one")).stdout).toBe("first\n");
    expect((await alice("logs", "-t", "logged", "--list")).stdout).toMatch(/^one +completed +0 .*echo first$/m);
    expect((await alice("logs", "-t", "logged", "none")).stderr).toContain("exec_not_found");
    expect((await bob("logs", "-t", "logged")).stderr).toContain("thread_not_found");
  });

  it("hears of its own sandboxes", async () => {
    const heard = as("alice")(["events", "-f", "--json"], /heard-alice/);
    await expect.poll(() => served.openStreams()).toBeGreaterThan(0);
    await use("bob", "heard-bob");
    await use("alice", "heard-alice");
    const { stdout } = await heard;
    expect(stdout).toContain('"type":"sandbox-created"');
    expect(stdout).not.toContain("bob");
  });

  it("gets a link to a port, and makes no keys", async () => {
    await use("alice", "web");
    const link = await alice("port", "-t", "web", "8000", "--ttl", "10m");
    expect(link.stdout).toMatch(/^http:\/\/8000--/);
    expect((await alice("port", "-t", "no-such", "8000")).stderr).toContain("thread_not_found");
    expect((await alice("keys", "list")).stderr).toContain("forbidden");
  });

  it("gets AIO URLs, and ends one or all of its own", async () => {
    const urls = [await alice("aio", "-t", "deer", "--ttl", "10m"), await alice("aio", "-t", "deer")];
    for (const { stdout } of urls) expect(stdout).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/aio\/[0-9a-f]{96}\n$/);
    // The memory backend has no AIO API: a good URL gets that error.
    const statuses = () => Promise.all(urls.map(async ({ stdout }) => (await fetch(stdout.trim())).status));
    expect(await statuses()).toEqual([501, 501]);
    const [, linkId = ""] = /--revoke ([0-9a-f]{48})\n/.exec(urls[0]?.stderr ?? "") ?? [];
    expect((await bob("aio", "-t", "deer", "--revoke", linkId)).stderr).toContain("0 AIO URLs");
    expect((await alice("aio", "-t", "deer", "--revoke", linkId)).stderr).toContain("1 AIO URLs");
    expect(await statuses()).toEqual([401, 501]);
    expect(JSON.parse((await alice("aio", "-t", "deer", "--revoke", "--json")).stdout)).toEqual({ revoked: 1 });
    expect(await statuses()).toEqual([401, 401]);
  });
});

describe("keys, login", () => {
  it("keys ask the gateway that is named, not the files of this machine", async () => {
    const environment = { SANDLOT_HOME: home, SANDLOT_URL: served.url };
    const made = await runHere(["keys", "create", "--scope", "user", "--user", "carol", "--json"], environment);
    const { id } = JSON.parse(made.stdout) as ApiKeyInfo;
    const elsewhere = {
      ...environment,
      SANDLOT_HOME: join(root, "empty"),
      SANDLOT_API_KEY: readFileSync(join(home, "operator.key"), "utf8").trim(),
    };
    expect((await runHere(["keys", "list"], elsewhere)).stdout).toMatch(
      new RegExp(`^${id} +user +carol +default `, "m"),
    );
    expect((await runHere(["keys", "revoke", id], elsewhere)).code).toBe(0);
    expect((await runHere(["keys", "revoke", id], elsewhere)).code).toBe(1);
    expect((await served.keys.list()).map((key) => key.id)).not.toContain(id);
  });

  it("login remembers address and key for this account alone, and logout forgets them", async () => {
    const environment = { SANDLOT_HOME: join(root, "laptop"), XDG_CONFIG_HOME: config };
    const wrong = await runHere(["login", served.url], { ...environment, SANDLOT_API_KEY: "slk_000000000000_x" });
    expect(wrong).toMatchObject({ code: 1, stderr: expect.stringContaining("unauthorized") });
    const login = await runHere(["login", served.url], { ...environment, SANDLOT_API_KEY: keys.bob });
    expect(login).toMatchObject({ code: 0, stdout: expect.stringContaining("(user bob)") });
    expect(login.stdout + login.stderr).not.toContain(keys.bob);
    expect(statSync(join(config, "sandlot", "login.json")).mode & 0o777).toBe(0o600);
    expect((await runHere(["ps", "--threads", "-q"], environment)).stdout).toContain("secret\n");
    expect((await runHere(["logout"], environment)).stdout).toContain("Logged out");
    expect((await runHere(["logout"], environment)).stdout).toContain("There was no login");
  });
});
