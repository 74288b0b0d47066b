/** `sandlot store`: what each command says, refuses and leaves behind. The sandboxes here are records only. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { InstanceId } from "@sandlot/contract";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.ts";
import { Stage } from "../../src/testing/store-suite/stage.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import type { ProcessIdentity } from "../../src/world/world.ts";
import { runHere } from "./run-here.ts";

const world = systemWorld();
let home: string;
const cli = (...args: string[]) => runHere(["store", ...args], { SANDLOT_HOME: home });
const file = (name: string) => join(home, name);

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "sandlot-store-cli-"));
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

/** The configured store with two parked sandboxes, a leased one and a tombstone, and with these sessions. */
async function fill(sessions: Readonly<Record<string, ProcessIdentity>> = {}): Promise<void> {
  const store = await openSqliteStore({ path: file("fleet.db"), world });
  const stage = new Stage({ store, second: async () => store, empty: async () => {}, dispose: async () => {} }, expect);
  await stage.endRecovery();
  const a = await stage.join("maker");
  await stage.ready(a, "one");
  await stage.ready(a, "two");
  await stage.lease(await stage.ready(a, "leased"), "lease");
  const ended = await stage.stopping(a, "ended");
  await store.remove({ sandboxId: ended.sandboxId, revision: ended.revision, actor: a });
  await store.leave(a);
  for (const [instance, identity] of Object.entries(sessions))
    await stage.beat(instance as InstanceId, 1, { register: true, identity });
  await store.close();
}

/** A process of this machine that has ended. */
async function deadProcess(): Promise<ProcessIdentity> {
  const child = spawn(process.execPath, ["-e", "0"]);
  await once(child, "exit");
  return { ...world.identity, pid: child.pid ?? 0, startTime: "1" };
}

async function useStore<T>(name: string, use: (store: Awaited<ReturnType<typeof openSqliteStore>>) => Promise<T>) {
  const store = await openSqliteStore({ path: file(name), world });
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}

test("status shows the store, its sandboxes, its sessions and its speed", async () => {
  await fill({ "i-gateway": world.identity });
  const { code, stdout } = await cli("status");
  expect(code).toBe(0);
  expect(stdout).toContain(`sqlite at ${file("fleet.db")}`);
  expect(stdout).toMatch(/latency +read [\d.]+ ms, write [\d.]+ ms/);
  expect(stdout).toMatch(/sandboxes +3/);
  expect(stdout).toMatch(/i-gateway +\d+ +1 +\d+\.\ds/);
  const status = JSON.parse((await cli("status", "--json")).stdout);
  expect(status).toMatchObject({
    type: "sqlite",
    promise: "linearizable",
    recovering: false,
    transfer: null,
    sandboxes: { total: 3, leased: 1, parked: 2, blank: 0, creating: 0, stopping: 0 },
    sessions: [{ instance: "i-gateway", beat: 1, process: process.pid }],
  });
  expect(status.sizeBytes).toBeGreaterThan(1_000);
  expect(status.latencyMs.write).toBeGreaterThan(0);
  expect(stdout + JSON.stringify(status)).not.toContain("token-");
});

test("status makes no store", async () => {
  const { code, stderr } = await cli("status");
  expect([code, stderr]).toEqual([1, expect.stringContaining("there is no store yet")]);
  expect(existsSync(file("fleet.db"))).toBe(false);
});

test("export refuses a store in use, names the instances and changes nothing", async () => {
  await fill({ "i-gateway": world.identity });
  const { code, stderr } = await cli("export", file("out.jsonl"));
  expect(code).toBe(1);
  expect(stderr).toContain(`i-gateway (process ${process.pid})`);
  expect(stderr).toContain("store_in_use");
  expect(existsSync(file("out.jsonl"))).toBe(false);
  expect((await useStore("fleet.db", (store) => store.overview())).transfer).toBe(null);
});

test("export ends the sessions of dead processes and closes the store", async () => {
  await fill({ "i-killed": await deadProcess() });
  const { code, stderr } = await cli("export", file("out.jsonl"));
  expect([code, stderr]).toEqual([0, expect.stringContaining("keep it secret")]);
  expect(statSync(file("out.jsonl")).mode & 0o777).toBe(0o600);
  const lines = readFileSync(file("out.jsonl"), "utf8").trimEnd().split("\n");
  expect(lines.length).toBe(1 + 1 + 3 + 1 + 1);
  const { code: refused, stderr: why } = await runHere(["ps"], { SANDLOT_HOME: home });
  expect([refused, why]).toEqual([1, expect.stringContaining("sandlot store resume")]);
  expect((await cli("status")).stdout).toContain("(moved)");
  expect((await cli("resume")).stdout).toContain("can use the store again");
  expect((await runHere(["ps", "--json"], { SANDLOT_HOME: home, SANDLOT_BACKEND: "memory" })).code).toBe(0);
});

test("export again gives the same rows, and an existing file is left alone", async () => {
  await fill();
  await cli("export", file("out.jsonl"));
  const before = readFileSync(file("out.jsonl"), "utf8");
  expect((await cli("export", file("out.jsonl"))).code).toBe(1);
  expect(readFileSync(file("out.jsonl"), "utf8")).toBe(before);
  const again = await cli("export");
  const rows = (text: string) => text.split("\n").slice(1, -2);
  expect(rows(again.stdout)).toEqual(rows(before));
});

test("an export while instances run has no sandboxes and leaves the store open", async () => {
  await fill({ "i-gateway": world.identity });
  expect((await cli("export", "--while-running", file("out.jsonl"))).code).toBe(0);
  const text = readFileSync(file("out.jsonl"), "utf8");
  expect(text).not.toContain('"record"');
  expect(text).toContain('"tombstone"');
  expect((await useStore("fleet.db", (store) => store.overview())).transfer).toBe(null);
  expect((await cli("import", file("out.jsonl"), "--to", `sqlite:${file("new.db")}`)).code).toBe(0);
  expect(await useStore("new.db", (store) => store.overview())).toMatchObject({ recovering: true, transfer: null });
});

test("import fills a new store, once", async () => {
  await fill();
  await cli("export", file("out.jsonl"));
  const { code, stdout } = await cli("import", file("out.jsonl"), "--to", `sqlite:${file("new.db")}`);
  expect([code, stdout]).toEqual([0, expect.stringContaining("Imported 3 sandboxes and 1 ended ones")]);
  const [former, moved] = await Promise.all([
    useStore("fleet.db", (store) => store.list({ parked: true })),
    useStore("new.db", (store) => store.list({ parked: true })),
  ]);
  expect(new Set(moved)).toEqual(new Set(former));
  expect(await useStore("new.db", (store) => store.overview())).toMatchObject({ recovering: false, transfer: null });
  const again = await cli("import", file("out.jsonl"), "--to", `sqlite:${file("new.db")}`);
  expect([again.code, again.stderr]).toEqual([1, expect.stringContaining("it has 3 sandboxes")]);
  const back = await cli("import", file("out.jsonl"));
  expect([back.code, back.stderr]).toEqual([1, expect.stringContaining("it was exported itself")]);
});

test("an import of another file does not go on with a broken one", async () => {
  await fill();
  await cli("export", file("out.jsonl"));
  await useStore("new.db", (store) => store.beginTransfer({ state: "importing", id: "another", importer: "x" }));
  const { code, stderr } = await cli("import", file("out.jsonl"), "--to", `sqlite:${file("new.db")}`);
  expect([code, stderr]).toEqual([1, expect.stringContaining("the import of another file")]);
});

test("a broken import says so, serves no instance, and the same command finishes it", async () => {
  await fill();
  await cli("export", file("out.jsonl"));
  const { id } = JSON.parse(readFileSync(file("out.jsonl"), "utf8").split("\n")[0] ?? "");
  await useStore("new.db", (store) => store.beginTransfer({ state: "importing", id, importer: "x" }));
  writeFileSync(file("new.yaml"), `store: { type: sqlite, path: ${file("new.db")} }\n`);
  const served = await runHere(["ps", "-c", file("new.yaml")], { SANDLOT_HOME: home });
  expect([served.code, served.stderr]).toEqual([
    1,
    expect.stringContaining("run the same `sandlot store import` again"),
  ]);
  expect((await cli("status", "-c", file("new.yaml"))).stdout).toContain("(importing)");
  expect((await cli("resume", "-c", file("new.yaml"))).code).toBe(1);
  expect((await cli("import", file("out.jsonl"), "--to", file("new.yaml"))).code).toBe(0);
  expect((await useStore("new.db", (store) => store.list())).length).toBe(3);
});

test("a damaged file is named, and no store is made", async () => {
  await fill();
  await cli("export", file("out.jsonl"));
  const whole = readFileSync(file("out.jsonl"), "utf8");
  const lines = whole.split("\n");
  const damaged: readonly (readonly [string, string])[] = [
    [lines.slice(0, -2).join("\n").concat("\n"), "its last line is missing"],
    [whole.slice(0, -10), "cut off in the middle of a line"],
    [whole.replace('"version":1', '"version":2'), "version 2"],
    [whole.replace('"sandlot":"store"', '"sandlot":"other"'), "not an export"],
    [whole.replace("token-1", "token-9"), "its checksum differs"],
    [[...lines.slice(0, 2), ...lines.slice(3)].join("\n"), "some are missing"],
    [`${whole}{}\n`, "more after its last line"],
    [whole.replace('"state":"ready"', '"state":"lost"'), "a line is of no known kind"],
    ["", "it is empty"],
    ["{]\n", "not JSON"],
    [`${"x".repeat(5_000_000)}\n`, "a line is too long"],
  ];
  for (const [text, problem] of damaged) {
    writeFileSync(file("bad.jsonl"), text);
    const { code, stderr } = await cli("import", file("bad.jsonl"), "--to", `sqlite:${file("new.db")}`);
    expect([code, stderr]).toEqual([1, expect.stringContaining(problem)]);
    expect(existsSync(file("new.db"))).toBe(false);
  }
  expect((await cli("import", file("none.jsonl"), "--to", `sqlite:${file("new.db")}`)).stderr).toContain("ENOENT");
});

test("a store in memory is neither exported nor filled", async () => {
  writeFileSync(file("memory.yaml"), "backend: memory\nstore: { type: memory }\n");
  const { code, stderr } = await cli("export", file("out.jsonl"), "-c", file("memory.yaml"));
  expect([code, stderr]).toEqual([1, expect.stringContaining("ends with its process")]);
  expect(existsSync(file("out.jsonl"))).toBe(false);
});
