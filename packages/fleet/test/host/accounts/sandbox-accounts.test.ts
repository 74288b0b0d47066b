/** The account of each sandbox. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it, onTestFinished } from "vitest";
import type { IdRange } from "../../../src/host/accounts/id-range.ts";
import { SandboxAccounts } from "../../../src/host/accounts/index.ts";
import { draftName } from "../../../src/world/drafts.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import type { World } from "../../../src/world/world.ts";

const world = systemWorld();

function machine(configured: IdRange | null = null) {
  const directory = mkdtempSync(join(tmpdir(), "sl-accounts-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const home = join(directory, "home");
  const object = (name: string) => ({ name, path: join(home, "objects", name) });
  const open = (identity = world.identity, registry = "ids.sqlite", other: Partial<World> = {}) =>
    new SandboxAccounts({
      ...{ home, configured, backend: "local", registry: join(directory, registry) },
      world: { ...world, identity, ...other },
    });
  const begin = () => mkdirSync(join(home, "objects"), { recursive: true });
  const moveAway = () => renameSync(home, join(directory, "moved"));
  begin();
  return { home, object, open, begin, moveAway };
}

/** A process that has ended. */
const dead = { ...world.identity, pid: 2 ** 22 - 1, startTime: "1" };

describe("an account", () => {
  it("is one sandbox's, whichever process has made it, with the id before it free for its network", () => {
    const { open, object } = machine({ first: 70_000, count: 20 });
    const [one, other] = [open(), open()];
    const uids = ["a", "b", "c", "d"].map((name, at) => (at % 2 === 0 ? one : other).claim(object(name)).uid);
    expect(new Set(uids).size).toBe(4);
    for (const uid of uids) expect([uid >= 70_001 && uid < 70_020, uids.includes(uid - 1)]).toEqual([true, false]);
  });

  it("is given back by the sandbox that has it, and by no other", () => {
    const { open, object } = machine({ first: 70_000, count: 4 });
    const accounts = open();
    const a = accounts.claim(object("a"));
    accounts.release("b", a);
    accounts.claim(object("b"));
    expect(() => accounts.claim(object("c"))).toThrow("all 2 accounts for sandboxes are in use");
    accounts.release("a", a);
    expect(accounts.claim(object("c"))).toEqual(a);
    // Late, and twice: by now the account belongs to c.
    accounts.release("a", a);
    expect(() => accounts.claim(object("d"))).toThrow("in use");
  });

  it("of a killed fleet is given back at the next sweep, unless its sandbox is there", () => {
    const { home, open, object } = machine({ first: 70_000, count: 20 });
    const killed = open(dead);
    const [kept, lost] = [killed.claim(object("kept")), killed.claim(object("lost"))];
    writeFileSync(object("kept").path, "");
    const living = open();
    const coming = living.claim(object("coming"));
    living.sweep();
    expect(readdirSync(join(home, "ids"))).toEqual([kept.uid, coming.uid, "number"].map(String).sort());
    expect(living.claim(object("new")).uid).toBe(lost.uid);
  });

  it("of a fleet in a container that was started again is given back when it is old and its sandbox is not there", () => {
    const { home, open, object } = machine({ first: 70_000, count: 20 });
    const elsewhere = open({ ...dead, pidNamespace: "pid:[1]" });
    const [kept, lost, recent] = ["kept", "lost", "recent"].map((name) => elsewhere.claim(object(name)).uid);
    const foreign = elsewhere.claim({ name: "foreign", path: "/another/path/of/the/home/foreign" }).uid;
    writeFileSync(object("kept").path, "");
    for (const [uid, name] of Object.entries({ [`${kept}`]: "kept", [`${lost}`]: "lost", [foreign]: "foreign" }))
      utimesSync(join(home, "ids", uid, name), 1, 1);
    open().sweep();
    expect(readdirSync(join(home, "ids"))).toEqual([kept, recent, foreign, "number"].map(String).sort());
  });

  it("is claimed by nothing where a fleet was killed before it had written a claim, or after it had taken one out", () => {
    const { home, open, object } = machine({ first: 70_000, count: 2 });
    const place = join(home, "ids/70001");
    mkdirSync(place, { recursive: true });
    const a = open().claim(object("a"));
    expect(readdirSync(place)).toEqual(["a"]);
    rmSync(join(place, "a"));
    open().sweep();
    expect(existsSync(place)).toBe(false);
    open().release("a", a);
    expect(open(dead).claim(object("b"))).toEqual(a);
    // As if it was killed before it had a number.
    renameSync(place, join(home, "ids", draftName({ ...world, identity: dead })));
    const living = join(home, "ids", draftName(world));
    mkdirSync(living);
    open().sweep();
    expect(readdirSync(join(home, "ids")).sort()).toEqual([basename(living), "number"]);
  });

  it("is kept for a sandbox that its maker made at the last moment of its life", () => {
    const { home, object, open } = machine({ first: 70_000, count: 20 });
    const { uid } = open(dead).claim(object("late"));
    const processLiveness = () => {
      writeFileSync(object("late").path, "");
      return "dead" as const;
    };
    open(world.identity, "ids.sqlite", { processLiveness }).sweep();
    expect(existsSync(join(home, "ids", String(uid)))).toBe(true);
  });

  it("is given back whenever the process that claims it is killed", async () => {
    const { home, open } = machine();
    for (let round = 0; round < 5; round += 1) {
      const claiming = spawn(
        process.execPath,
        ["--conditions=sandlot-source", join(import.meta.dirname, "claiming-process.ts"), home],
        { stdio: ["ignore", "pipe", "inherit"] },
      );
      await once(claiming.stdout, "data");
      await sleep(round * 7);
      claiming.kill("SIGKILL");
      await once(claiming, "exit");
      open().sweep();
      expect(readdirSync(join(home, "ids"))).toEqual(["number"]);
    }
  });

  it("of a home is another's than that of a home at the same path, in a container with a registry of its own", () => {
    const { open, object, begin, moveAway } = machine();
    const home = open(world.identity, "one.sqlite");
    const one = home.claim(object("a"));
    expect(open(world.identity, "one.sqlite").range).toEqual(home.range);
    moveAway();
    begin();
    const other = open(world.identity, "other.sqlite").claim(object("a"));
    expect(other.uid).not.toBe(one.uid);
  });

  it("that something runs as is not claimed for another sandbox, nor given back", async (context) => {
    if (process.getuid?.() !== 0) return context.skip("only root can run something as another account");
    const { home, open, object, begin, moveAway } = machine({ first: 1_899_100_000, count: 6 });
    const sandbox = open(dead).claim(object("a"));
    const [own, network] = [sandbox.uid, sandbox.uid + 1].map((uid) =>
      spawn("sleep", ["60"], { uid, gid: uid, stdio: "ignore" }),
    );
    onTestFinished(() => void [own, network].map((child) => child?.kill("SIGKILL")));
    open().sweep();
    expect(readdirSync(join(home, "ids"))).toContain(String(sandbox.uid));
    moveAway();
    begin();
    const anew = open();
    expect(anew.claim(object("b")).uid).toBe(sandbox.uid + 4);
    expect(() => anew.claim(object("c"))).toThrow("in use");
    own?.kill("SIGKILL");
    if (own !== undefined) await once(own, "exit");
    expect(anew.claim(object("c"))).toEqual(sandbox);
  });
});
