/** `cp`, `ls`, `rm` and `explain` through a gateway: whole directories, odd names, and refusals of this machine. */

import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FileListing, SandboxSummary } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { serve } from "../../src/gateway/index.ts";
import { openFleetAndHost } from "../../src/open-fleet.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { runHere } from "./run-here.ts";

const root = mkdtempSync(join(tmpdir(), "slf-"));
const home = join(root, "home");
let served: Awaited<ReturnType<typeof serve>>;

beforeAll(async () => {
  const open = () => openFleetAndHost({ home, backend: "memory" });
  served = await serve({ openFleet: open, home, gateway: { port: 0 }, world: systemWorld() });
});

afterAll(async () => {
  await served.close({ destroy: true });
  rmSync(root, { recursive: true });
});

const cli = (...args: string[]) => runHere(args, { SANDLOT_HOME: home, SANDLOT_URL: served.url });

const listed = async (where: string) =>
  (JSON.parse((await cli("ls", where, "--depth", "9", "--json")).stdout) as FileListing).entries;

describe("cp", () => {
  const ODD = ["with space", "quo'te\"s", "-rf", "line\nbreak", "t1:colon", "grüße-日本", ".hidden", "100%"];
  const tree = join(root, "tree");

  beforeAll(() => {
    mkdirSync(join(tree, "deep", "empty"), { recursive: true });
    for (const name of ODD) writeFileSync(join(tree, "deep", name), `content of ${name}`);
    writeFileSync(join(tree, "run.sh"), "#!/bin/sh\n");
    chmodSync(join(tree, "run.sh"), 0o755);
    writeFileSync(
      join(tree, "bytes"),
      Uint8Array.from({ length: 256 }, (_, byte) => byte),
    );
    symlinkSync("/etc/passwd", join(tree, "link"));
  });

  it("copies whole directories in and out, with any names, and lists what it leaves out", async () => {
    const put = await cli("cp", tree, "t1:copy");
    // A backup must not mistake a part for the whole.
    expect(put).toMatchObject({ code: 1, stdout: "" });
    expect(put.stderr).toContain(`left out, neither file nor directory: ${join(tree, "link")}\n`);
    expect(put.stderr).toMatch(/-> \/mnt\/user-data\/workspace\/copy \(10 files, \d+ bytes\)\n/);
    expect(put.stderr).toMatch(/^Error: 1 left out/m);
    const back = join(root, "back");
    expect((await cli("cp", "t1:copy", back)).code).toBe(0);
    expect(readdirSync(join(back, "deep")).sort()).toEqual([...ODD, "empty"].sort());
    for (const name of ODD) expect(readFileSync(join(back, "deep", name), "utf8")).toBe(`content of ${name}`);
    expect(readFileSync(join(back, "bytes"))).toEqual(readFileSync(join(tree, "bytes")));
    expect(statSync(join(back, "run.sh")).mode & 0o777).toBe(0o755);
  });

  it("takes -t with :PATH as it takes THREAD:PATH, and - as standard output", async () => {
    expect((await cli("cp", "-t", "t9", join(tree, "run.sh"), ":in/run.sh")).code).toBe(0);
    expect(await cli("cp", "-t", "t9", ":in/run.sh", "-")).toEqual({ code: 0, stdout: "#!/bin/sh\n", stderr: "" });
    expect((await cli("cp", "t9:in/run.sh", "-")).stdout).toBe("#!/bin/sh\n");
    expect(existsSync("-")).toBe(false);
    expect((await cli("cp", "-t", "t9", "t8:x", ".")).stderr).toContain("-t names thread t9");
    expect((await cli("ls", "-t", "t9", "in")).stdout).toContain("/mnt/user-data/workspace/in/run.sh");
    expect((await cli("cp", "t9:in", "-")).stderr).toContain("is a directory");
  });

  it("does not make a thread by looking for one", async () => {
    for (const args of [
      ["ls", "nothread"],
      ["ls", "-t", "nothread"],
      ["cp", "nothread:x", "-"],
      ["rm", "-t", "nothread"],
    ])
      expect(await cli(...args)).toMatchObject({
        code: 1,
        stdout: "",
        stderr: expect.stringContaining("thread_not_found: There is no thread nothread"),
      });
    expect((await cli("ps", "--threads", "-q")).stdout).not.toContain("nothread");
  });

  it("goes into what is a directory, under the name it had", async () => {
    await cli("cp", join(tree, "deep"), "t2:", "--json");
    await cli("cp", join(tree, "bytes"), "t2:new/");
    expect((await listed("t2")).map(({ path }) => path)).toEqual(
      expect.arrayContaining(["/mnt/user-data/workspace/deep/-rf", "/mnt/user-data/workspace/new/bytes"]),
    );
    const into = mkdtempSync(join(root, "into-"));
    const { stdout } = await cli("cp", "t2:deep/", into, "--json");
    expect(JSON.parse(stdout)).toMatchObject({ to: join(into, "deep"), files: ODD.length, leftOut: [] });
    await cli("cp", "t2:new/bytes", `${into}/made/`);
    expect(readdirSync(join(into, "made"))).toEqual(["bytes"]);
  });

  it("replaces a file of this machine whole, keeps links to it, and writes into what is no file", async () => {
    const place = mkdtempSync(join(root, "place-"));
    writeFileSync(join(place, "real"), "old");
    symlinkSync("real", join(place, "link"));
    expect((await cli("cp", "t2:new/bytes", join(place, "link"))).code).toBe(0);
    expect(statSync(join(place, "real")).size).toBe(256);
    expect((await cli("cp", "t2:new/none", join(place, "real"))).code).toBe(1);
    expect(statSync(join(place, "real")).size).toBe(256);
    expect(readdirSync(place).sort()).toEqual(["link", "real"]);
    expect((await cli("cp", "t2:new/bytes", "/dev/null")).code).toBe(0);
  });

  it.each([
    ["a source that is missing", [join(root, "none"), "never:x"], "none does not exist"],
    ["a source that is no file", ["/dev/null", "never:x"], "/dev/null is neither a file nor a directory"],
    ["a directory that is missing", ["t2:new/bytes", join(root, "none", "such")], "none does not exist"],
    ["a path through a file", ["t2:new/bytes", join(tree, "bytes", "x")], "x leads through something that is not"],
    ["two places of this machine", ["a", "b"], "one side is in a sandbox (THREAD:PATH"],
  ])("refuses %s in one line", async (_, args, words) => {
    const { code, stdout, stderr } = await cli("cp", ...args);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    // On a slow machine it reports progress first.
    expect(stderr).toMatch(/^(Copying .*\n)*error invalid_request: .*\n {2}What to do: .*\n$/);
    expect(stderr).toContain(words);
  });

  it("asks for no sandbox before it knows that there is something to copy", async () => {
    const { sandboxes } = JSON.parse((await cli("ps", "--json")).stdout) as { sandboxes: SandboxSummary[] };
    expect(sandboxes.map(({ thread }) => thread)).not.toContain("never");
    expect(existsSync(join(root, "none"))).toBe(false);
  });
});

describe("ls, rm and explain", () => {
  it("ls of a file shows the file", async () => {
    await cli("cp", join(root, "tree", "bytes"), "t3:bytes");
    expect(await listed("t3:bytes")).toEqual([expect.objectContaining({ kind: "file", sizeBytes: 256 })]);
    expect((await cli("ls", "t3:none")).stderr).toContain("file_not_found");
  });

  it("rm without a user leaves the threads of others alone", async () => {
    await cli("cp", join(root, "tree", "bytes"), "shared:bytes", "-u", "ann");
    expect((await cli("rm", "-t", "shared")).stderr).toContain("There is no thread shared");
    const { sandboxes } = JSON.parse((await cli("ps", "--json")).stdout) as { sandboxes: SandboxSummary[] };
    expect(sandboxes).toContainEqual(expect.objectContaining({ user: "ann", thread: "shared" }));
    expect((await cli("rm", "-t", "shared", "-u", "ann")).stdout).toContain("has ended");
  });

  it("explain wants a beginning that is one sandbox's only", async () => {
    const { sandboxes } = JSON.parse((await cli("ps", "--json")).stdout) as { sandboxes: SandboxSummary[] };
    const [{ sandboxId = "" } = {}] = sandboxes;
    expect((await cli("explain", sandboxId.slice(0, 12))).code).toBe(0);
    // 17 ids have at least two with the same first digit.
    for (let count = 0; count < 17; count += 1) await served.fleet.warm({ thread: `many-${count}` });
    const ids = (await served.fleet.list()).map((one) => one.sandboxId);
    const shared = ids.map((id) => id.slice(0, 1)).find((digit, index, all) => all.indexOf(digit) !== index) ?? "";
    expect((await cli("explain", shared)).stderr).toMatch(/sandbox: .*is the beginning of [0-9a-f]+, [0-9a-f]+/);
    expect((await cli("explain", "zz")).stderr).toContain("sandbox_not_found");
  });

  it("an address that is none is not a gateway that does not answer", async () => {
    for (const url of ["nonsense", "ftp://127.0.0.1"])
      expect(await cli("ps", "--url", url)).toMatchObject({
        code: 1,
        stderr: expect.stringContaining("is not the address of a gateway, such as http://127.0.0.1:8750"),
      });
  });
});
