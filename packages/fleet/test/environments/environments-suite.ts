/**
 * Environments of blueprints on real sandboxes: built once, mounted read-only, kept, failed, replaced. For each backend
 * that can have them.
 */

import { execFileSync, spawn } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { isSandlotError } from "@sandlot/contract";
import { afterEach, expect, it } from "vitest";
import type { FleetConfig } from "../../src/config/fleet-config.ts";
import type { Fleet } from "../../src/fleet.ts";
import { openFleet } from "../../src/open-fleet.ts";

const WHEEL = `
import sys, zipfile
name, version, path = sys.argv[1:]
info = f"{name}-{version}.dist-info"
with zipfile.ZipFile(path, "w") as made:
    made.writestr(f"{name}.py", f"version = '{version}'\\n")
    made.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    made.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    made.writestr(f"{info}/RECORD", "")
`;

type Setup = NonNullable<NonNullable<FleetConfig["blueprints"]>[string]["setup"]>;

export interface EnvironmentsStage {
  /** The backend, and what it needs. */
  readonly config: Partial<FleetConfig>;
  /** Those of the mount at /opt/env. */
  readonly mountOptions: RegExp;
  /** Whether blanks can wait for a thread. */
  readonly hasBlanks: boolean;
}

/** Declares the tests. */
export function testEnvironments({ config, hasBlanks, mountOptions }: EnvironmentsStage): void {
  const places: string[] = [];
  const fleets: Fleet[] = [];

  function newHome(): string {
    const home = mkdtempSync(join(tmpdir(), "sle-"));
    places.push(home);
    return home;
  }

  async function open(home: string, setup: Setup, more: Partial<FleetConfig> = {}): Promise<Fleet> {
    const fleet = await openFleet({ ...config, home, blueprints: { default: { setup } }, ...more });
    fleets.push(fleet);
    return fleet;
  }

  async function run(fleet: Fleet, thread: string, command: string): Promise<string> {
    const lease = await fleet.acquire({ thread });
    try {
      const { stdout, stderr } = await lease.sandbox.exec(["bash", "-c", command], { timeoutMs: 60_000 });
      return `${stdout}${stderr}`.trim();
    } finally {
      await lease.release();
    }
  }

  async function failure(promise: Promise<unknown>): Promise<{ code: string; message: string }> {
    try {
      await promise;
    } catch (error) {
      if (isSandlotError(error)) return error;
      throw error;
    }
    throw new Error("it did not fail");
  }

  function built(home: string): readonly string[] {
    return readdirSync(join(home, "environments")).filter((name) => name.includes("@"));
  }

  afterEach(async () => {
    for (const fleet of fleets.splice(0)) await fleet.close({ destroy: true });
    for (const place of places.splice(0)) rmSync(place, { recursive: true, force: true });
  }, 60_000);

  it("is built once, and read-only in every sandbox", { timeout: 120_000 }, async () => {
    const home = newHome();
    const script =
      "mkdir /opt/env/bin; echo 'echo hello from the environment' > /opt/env/bin/hello; chmod 700 /opt/env/bin/hello; date +%s%N > /opt/env/when";
    const fleet = await open(home, { script });
    const first = await run(fleet, "a", "hello; cat /opt/env/when");
    expect(first).toContain("hello from the environment");
    expect(await run(fleet, "b", "hello; cat /opt/env/when")).toBe(first);
    expect(
      await run(
        fleet,
        "a",
        "echo x > /opt/env/bin/hello; touch /opt/env/new; rm -rf /opt/env/bin; chmod 777 /opt/env/when; cat /opt/env/when",
      ),
    ).toContain("Read-only file system");
    const options = await run(fleet, "b", "grep ' /opt/env ' /proc/self/mountinfo; stat -c %a /opt/env/bin/hello");
    expect(options).toMatch(mountOptions);
    expect(options).toContain("755");
    expect(built(home)).toHaveLength(1);
  });

  it("ten acquires in two processes build it once", { timeout: 180_000 }, async () => {
    const home = newHome();
    const program = fileURLToPath(new URL("./acquiring-process.ts", import.meta.url));
    const setup = { script: "sleep 2; head -c 12 /dev/urandom | od -An -tx1 > /opt/env/when" };
    const outputs = await Promise.all(
      [0, 1].map(async (index) => {
        const args = [
          "--conditions=sandlot-source",
          program,
          JSON.stringify({ config: { ...config, home }, setup, index }),
        ];
        const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
        let said = "";
        child.stdout.setEncoding("utf8").on("data", (text: string) => (said += text));
        expect(await new Promise((resolve) => child.once("close", resolve))).toBe(0);
        return said.trim().split("\n");
      }),
    );
    expect(outputs.flat()).toHaveLength(10);
    expect(new Set(outputs.flat()).size).toBe(1);
    expect(built(home)).toHaveLength(1);
  });

  it("a setup that fails is an error with its last lines, and is not repeated", { timeout: 120_000 }, async () => {
    const home = newHome();
    const fleet = await open(home, { script: "echo before; echo no such package >&2; exit 3; echo after" });
    const error = await failure(fleet.acquire({ thread: "a" }));
    expect(error.code).toBe("environment_failed");
    expect(error.message).toContain("no such package");
    const [id = ""] = built(home);
    const before = readdirSync(join(home, "environments", id));
    expect(before).toEqual(expect.arrayContaining(["failed", "log"]));
    const again = performance.now();
    expect((await failure(fleet.acquire({ thread: "b" }))).code).toBe("environment_failed");
    expect(performance.now() - again).toBeLessThan(60_000);
    expect(execFileSync("cat", [join(home, "environments", id, "log")], { encoding: "utf8" })).toBe(
      "before\nno such package\n",
    );
    expect(await fleet.list()).toEqual([]);
  });

  it("a setup that hangs ends at its limit", { timeout: 120_000 }, async () => {
    const fleet = await open(newHome(), { script: "sleep 1000 & sleep 1000", timeoutMs: 2_000 });
    const error = await failure(fleet.acquire({ thread: "a" }));
    expect(error.code).toBe("environment_failed");
    expect(error.message).toContain("2000 ms");
  });

  it("a setup that fills the disk is ended", { timeout: 120_000 }, async () => {
    const home = newHome();
    const script = "i=0; while true; do head -c 1M /dev/urandom > /opt/env/$i; i=$((i+1)); sleep 0.02; done";
    const fleet = await open(home, { script, diskBytes: 20 * 1_024 * 1_024 });
    const error = await failure(fleet.acquire({ thread: "a" }));
    expect(error.message).toContain("setup.diskBytes");
    const [id = ""] = built(home);
    expect(existsSync(join(home, "environments", id, "tree"))).toBe(false);
  });

  it("an edited setup is another environment; a running sandbox keeps its own", { timeout: 180_000 }, async () => {
    const home = newHome();
    const source = join(home, "..", `${home.split("/").at(-1)}.txt`);
    places.push(source);
    writeFileSync(source, "one");
    const setup = { script: "cp list.txt /opt/env/list", files: { "list.txt": source } };
    const fleet = await open(home, setup);
    expect(await run(fleet, "a", "cat /opt/env/list")).toBe("one");
    const [first] = built(home);
    writeFileSync(source, "two");
    expect(await run(fleet, "a", "cat /opt/env/list")).toBe("one");
    expect(await run(fleet, "b", "cat /opt/env/list")).toBe("two");
    const { checkpoint } = await fleet.checkpoints.take({ thread: "a" }, { label: "with the first" });
    expect(checkpoint.environment).toBe(first);
    await fleet.destroy({ thread: "a" });
    expect(await run(fleet, "a", "cat /opt/env/list")).toBe("two");
    expect(built(home)).toHaveLength(2);
  });

  it("what a thread installs is newer than the environment: Python and npm", { timeout: 240_000 }, async () => {
    const home = newHome();
    const packages = newHome();
    chmodSync(packages, 0o755);
    for (const version of ["1.0", "2.0"])
      execFileSync("python3", ["-c", WHEEL, "sample", version, join(packages, `sample-${version}-py3-none-any.whl`)]);
    const wheel = (version: string) => `sample-${version}-py3-none-any.whl`;
    const files = { [wheel("1.0")]: join(packages, wheel("1.0")) };
    const npm = (version: string) =>
      `mkdir p && cd p && echo '{"name":"samplejs","version":"${version}","bin":{"samplejs":"c.js"},"main":"m.js"}' > package.json && ` +
      `printf '#!/usr/bin/env node\\nconsole.log("${version}")' > c.js && echo 'module.exports="${version}"' > m.js && npm pack -s && npm i -g --offline ./samplejs-${version}.tgz`;
    const script = `/usr/bin/python3 -m pip install --no-index ./${wheel("1.0")}\n${npm("1.0.0")}`;
    const mounts = [{ hostPath: packages, sandboxPath: "/opt/packages", readOnly: true }];
    const fleet = await open(
      home,
      { script, files },
      { blueprints: { default: { setup: { script, files }, mounts } } },
    );
    const python = "/usr/bin/python3 -c 'import sample; print(sample.version)'";
    const node = `samplejs; node -e 'console.log(require("samplejs"))'`;
    expect(await run(fleet, "a", `${python}; ${node}`)).toBe("1.0\n1.0.0\n1.0.0");
    const installed = await run(
      fleet,
      "a",
      `/usr/bin/python3 -m pip install --no-index --find-links /opt/packages -U sample; cd /tmp; ${npm("2.0.0")}`,
    );
    expect(await run(fleet, "a", `${python}; ${node}`), installed).toBe("2.0\n2.0.0\n2.0.0");
    expect(await run(fleet, "b", `${python}; ${node}`)).toBe("1.0\n1.0.0\n1.0.0");
  });

  it("what each thread gets of it: one file in its home, once, also where the home is temporary", async () => {
    const home = newHome();
    const script = "mkdir -p /opt/env/lib/python3.99/site-packages";
    const blueprints = { default: { setup: { script } }, memory: { setup: { script }, home: "temporary" as const } };
    const fleet = await open(home, { script }, { blueprints });
    const file = ".local/lib/python3.99/site-packages/_env.pth";
    const look = `cat $HOME/${file}; stat -c %Y.%i $HOME/${file}`;
    const first = await run(fleet, "a", look);
    expect(first).toContain("/opt/env/lib/python3.99/site-packages");
    expect(await run(fleet, "a", look)).toBe(first);
    const lease = await fleet.acquire({ thread: "m", blueprint: "memory" });
    const { stdout } = await lease.sandbox.exec(
      `echo $HOME; cat $HOME/${file}; find /mnt/user-data -name _env.pth | wc -l`,
    );
    await lease.release();
    expect(stdout).toBe("/home/temporary\n/opt/env/lib/python3.99/site-packages\n0\n");
  });

  it("a home that takes no file keeps no thread from its sandbox", async () => {
    const fleet = await open(newHome(), { script: "mkdir -p /opt/env/lib/python3.99/site-packages" });
    await run(fleet, "a", "rm -rf ~/.local; echo in the way > ~/.local");
    await fleet.destroy({ thread: "a" });
    const told: string[] = [];
    fleet.events.on((event) => event.type === "housekeeping-failed" && told.push(event.problem));
    expect(await run(fleet, "a", "cat ~/.local")).toBe("in the way");
    expect(told).toEqual([expect.stringContaining("_env.pth")]);
  });

  it("whatever a setup leaves becomes a plain tree, or a failure, and is removed again", async () => {
    const home = newHome();
    const script = [
      "mkdir -p left/over; touch left/over/file; chmod 555 left/over left",
      "cd /opt/env; mkdir closed; echo x > closed/file; chmod 000 closed/file; chmod 555 closed; mkfifo pipe",
      "ln -s /etc/shadow link; ln -s loop loop; printf x > \"$(printf 'a\\377b')\"; echo x > set; chmod 4755 set || chmod 755 set",
    ].join("\n");
    const fleet = await open(home, { script });
    const found = await run(fleet, "a", "cd /opt/env; cat closed/file; ls -A | wc -l; stat -c %a set; ls pipe");
    expect(found).toMatch(/^x\n5\n755\n.*pipe/);
    const [id = ""] = built(home);
    await fleet.destroy({ thread: "a" }, { force: true });
    await fleets.pop()?.close({ destroy: true });
    // Deeper than any path reaches.
    const sink = `import os; os.chdir("/opt/env"); [(os.mkdir("0" * 100), os.chdir("0" * 100)) for _ in range(60)]`;
    const deep = { script: `/usr/bin/python3 -c '${sink}'` };
    const error = await failure((await open(home, deep)).acquire({ thread: "b" }));
    expect(error.code).toBe("environment_failed");
    expect(error.message).toContain("cannot be read");
    expect(built(home)).toHaveLength(2);
    const environments = join(home, "environments");
    expect(readdirSync(join(environments, "trash"))).toEqual([]);
    expect(readdirSync(environments).filter((name) => name.startsWith(".sandlot-draft"))).toEqual([]);
    expect(existsSync(join(environments, id, "tree", "closed"))).toBe(true);
  });

  if (!hasBlanks) return;

  it("a blank that waits is replaced when the setup is edited", { timeout: 180_000 }, async () => {
    const home = newHome();
    const source = join(home, "..", `${home.split("/").at(-1)}.txt`);
    places.push(source);
    writeFileSync(source, "one");
    const setup = { script: "cp list.txt /opt/env/list", files: { "list.txt": source } };
    const fleet = await open(home, setup, { pool: { default: 1 }, housekeepingIntervalMs: 500 });
    const blank = async () => (await fleet.list()).find(({ state }) => state === "blank")?.sandboxId;
    await expect.poll(blank).toBeDefined();
    const before = await blank();
    writeFileSync(source, "two");
    await expect.poll(async () => ![undefined, before].includes(await blank())).toBe(true);
    expect(await run(fleet, "a", "cat /opt/env/list")).toBe("two");
  });

  it("a blank has it too", { timeout: 180_000 }, async () => {
    const fleet = await open(newHome(), { script: "echo here > /opt/env/file" }, { pool: { default: 1 } });
    for (let tries = 0; (await fleet.list()).length === 0 && tries < 600; tries++)
      await new Promise((resolve) => setTimeout(resolve, 100));
    expect((await fleet.list()).map(({ thread }) => thread)).toEqual([null]);
    expect(await run(fleet, "a", "cat /opt/env/file")).toBe("here");
  });
}
