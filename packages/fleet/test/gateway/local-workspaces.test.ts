/**
 * Uploads, artifacts and branches with real sandboxes on this machine: none is started for them, placed files are
 * inside at once, and planted links lead nowhere.
 */

import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Fleet } from "../../src/fleet.ts";
import { type Gateway, startGateway } from "../../src/gateway/start-gateway.ts";
import { openFleetAndHost } from "../../src/open-fleet.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { hasBubblewrap } from "./support/gateway-process.ts";
import { Caller } from "./support/stage.ts";

const ROOT = "/mnt/user-data";

describe.skipIf(!hasBubblewrap)("workspaces of real sandboxes (skipped where bubblewrap is not installed)", () => {
  const home = mkdtempSync(join(tmpdir(), "slw-"));
  const outside = join(home, "outside.txt");
  let fleet: Fleet;
  let gateway: Gateway;
  let alice: Caller;

  beforeAll(async () => {
    const opened = await openFleetAndHost({ home, backend: "local" });
    ({ fleet } = opened);
    const { hostWorkspaces } = opened;
    if (hostWorkspaces === null) throw new Error("the local backend's workspaces are on this disk");
    gateway = await startGateway({ fleet, home, world: systemWorld(), settings: { port: 0 }, hostWorkspaces });
    alice = new Caller(gateway.url, (await gateway.keys.create({ scope: "user", user: "alice" })).key);
    writeFileSync(outside, "untouched");
  }, 60_000);

  afterAll(async () => {
    for (const { thread, user } of await fleet.list())
      if (thread !== null) await fleet.destroy({ thread, user: user ?? "" }, { force: true, purge: true });
    await gateway.close();
    await fleet.close({ destroy: true });
    rmSync(home, { recursive: true });
  }, 60_000);

  const form = (name: string, content: string) => {
    const data = new FormData();
    data.append("files", new Blob([content]), name);
    return data;
  };
  const run = (thread: string, command: string) =>
    alice.ask<{ stdout: string; exitCode: number }>(200, "POST", `/v1/threads/${thread}/exec`, { json: { command } });
  const homesOf = () => {
    const name = readdirSync(home).find((one) => one.startsWith("fleet-")) ?? "";
    const homes = join(home, name, "homes");
    return readdirSync(homes)
      .filter((one) => !one.startsWith("."))
      .map((one) => join(homes, one));
  };

  test("asking about a thread leaves no trace; an upload, an artifact and a branch start no sandbox", async () => {
    expect(await alice.ask(200, "GET", "/v1/threads/w1/uploads")).toMatchObject({ count: 0 });
    await alice.ask(404, "GET", "/v1/threads/w1/artifacts/none.txt");
    await alice.ask(404, "DELETE", "/v1/threads/w1/uploads/none.txt");
    expect(homesOf()).toEqual([]);

    await alice.ask(200, "POST", "/v1/threads/w1/uploads", { body: form("a.txt", "from outside") });
    await alice.ask(200, "PUT", "/v1/threads/w1/artifacts/deep/made.md", {
      body: "# made",
      headers: { "if-none-match": "*" },
    });
    const branched = await alice.ask(201, "POST", "/v1/threads/w1/branch", { json: { to: "w2" } });
    expect(branched).toEqual({ thread: "w2", fileCount: 2, sizeBytes: 18, skipped: [] });
    expect(await (await alice.call("GET", "/v1/threads/w2/artifacts/deep/made.md")).text()).toBe("# made");
    expect(await fleet.list()).toEqual([]);
  });

  test("is there inside, belongs to the sandbox's account, and can be added to while it is in use", async () => {
    const seen = await run(
      "w1",
      `cd ${ROOT}; cat uploads/a.txt outputs/deep/made.md; echo more >> uploads/a.txt; id -u`,
    );
    expect(seen).toMatchObject({ exitCode: 0, stdout: "from outside# made1000\n" });
    await alice.ask(200, "POST", "/v1/threads/w1/uploads", { body: form("b.txt", "later") });
    expect((await run("w1", `stat -c '%U %a' ${ROOT}/uploads/b.txt; cat ${ROOT}/uploads/b.txt`)).stdout).toBe(
      "sandbox 644\nlater",
    );
    const made = await run("w1", `echo result > ${ROOT}/outputs/out.txt`);
    expect(made.exitCode).toBe(0);
    expect(await (await alice.call("GET", "/v1/threads/w1/artifacts/out.txt")).text()).toBe("result\n");
  }, 60_000);

  test("a file is read from the disk, or through the sandbox where a link leads, under one version", async () => {
    await run("w11", `cd ${ROOT}/workspace; echo plain > plain; ln -s plain link; ln -s /etc/hostname out`);
    const content = (path: string, headers = {}) =>
      alice.call("GET", `/v1/threads/w11/files/content?path=${ROOT}/workspace/${path}`, { headers });
    const direct = await content("plain");
    expect([direct.status, await direct.text(), direct.headers.get("x-sandlot-generation")]).toEqual([
      200,
      "plain\n",
      null,
    ]);
    expect(await (await content("link")).text()).toBe("plain\n");
    expect((await content("out")).status).toBe(200);
    const whole = await content("link", { range: "bytes=1-2" });
    expect([whole.status, await whole.text()]).toEqual([200, "plain\n"]);
    expect((await content("none")).status).toBe(404);
    expect((await content("../workspace")).status).toBeGreaterThanOrEqual(400);
    const etag = direct.headers.get("etag") ?? "";
    const stat = await alice.ask<{ version: string }>(
      200,
      "GET",
      `/v1/threads/w11/files/stat?path=${ROOT}/workspace/plain`,
    );
    expect(etag).toBe(`"${encodeURIComponent(stat.version)}"`);
    expect((await content("plain", { "if-none-match": etag })).status).toBe(304);
    expect((await content("plain", { "if-match": '"another"' })).status).toBe(412);
    const part = await content("plain", { range: "bytes=1-2" });
    expect([part.status, await part.text(), part.headers.get("content-range")]).toEqual([206, "la", "bytes 1-2/6"]);
    await alice.ask(200, "PUT", `/v1/threads/w11/files/content?path=${ROOT}/workspace/plain`, {
      body: "next",
      headers: { "if-match": etag },
    });
    expect(await (await content("plain")).text()).toBe("next");
    const put = (path: string, body: string, headers = {}) =>
      alice.call("PUT", `/v1/threads/w11/files/content?path=${ROOT}/workspace/${path}`, { body, headers });
    expect((await put("plain", "late", { "if-match": etag })).status).toBe(412);
    expect((await put("deep/er/new", "made", { "if-none-match": "*" })).status).toBe(200);
    // Through a link the sandbox writes, where the link leads inside.
    expect((await put("link", "through")).status).toBe(200);
    expect((await put("out", "evil")).status).toBeGreaterThanOrEqual(400);
    const seen = await run("w11", `cd ${ROOT}/workspace; cat plain deep/er/new; stat -c %U deep/er deep/er/new; ls -A`);
    expect(seen.stdout).toBe("throughmadesandbox\nsandbox\ndeep\nlink\nout\nplain\n");
  }, 60_000);

  test("planted links lead nowhere and are not written through", async () => {
    await run(
      "w3",
      [
        `cd ${ROOT}`,
        `ln -s ${outside} uploads/link.txt`,
        `ln -s /etc outputs/etc`,
        "echo one > outputs/first",
        "ln outputs/first outputs/second",
        "mkfifo outputs/pipe",
        "mkdir uploads/folder.txt",
        "echo kept > workspace/kept; ln workspace/kept uploads/hard.txt",
      ].join("; "),
    );
    for (const name of ["link.txt", "folder.txt", "hard.txt"]) {
      const answer = await alice.ask(200, "POST", "/v1/threads/w3/uploads", { body: form(name, "evil") });
      expect(answer).toMatchObject({ success: false, files: [], skippedFiles: [name] });
    }
    expect(readFileSync(outside, "utf8")).toBe("untouched");
    const statuses: Record<string, number> = {};
    for (const path of ["etc/passwd", "pipe", "etc"]) {
      const answer = await alice.call("GET", `/v1/threads/w3/artifacts/${path}`);
      statuses[path] = answer.status;
      expect(await answer.text()).not.toContain("root:");
    }
    expect(Object.values(statuses).every((status) => status >= 400 && status < 500)).toBe(true);
    const linked = await alice.call("GET", `/v1/threads/w3/artifacts/mnt/user-data/uploads/link.txt`);
    expect([linked.status >= 400 && linked.status < 500, await linked.text()]).toEqual([
      true,
      expect.not.stringContaining("untouched"),
    ]);
    for (const path of ["first", "etc/new.txt", "pipe"]) {
      const answer = await alice.call("PUT", `/v1/threads/w3/artifacts/${path}`, { body: "evil" });
      expect([path, answer.status >= 400 && answer.status < 500]).toEqual([path, true]);
    }
    expect((await run("w3", `cat ${ROOT}/outputs/second ${ROOT}/workspace/kept`)).stdout).toBe("one\nkept\n");
    expect(existsSync("/etc/new.txt")).toBe(false);
  }, 60_000);

  test("a directory that became a link takes nothing in", async () => {
    await run("w4", `cd ${ROOT}; rmdir uploads; ln -s ${home} uploads`);
    const answer = await alice.call("POST", "/v1/threads/w4/uploads", { body: form("x.txt", "evil") });
    expect(answer.status).toBeGreaterThanOrEqual(400);
    expect(answer.status).toBeLessThan(500);
    expect(existsSync(join(home, "x.txt"))).toBe(false);
  }, 60_000);

  test("a branch copies files with their rights and links, names what it leaves out, and is whole or not there", async () => {
    await run(
      "w5",
      [
        `cd ${ROOT}/workspace`,
        "echo '#!/bin/sh' > tool; chmod 750 tool",
        "mkdir -p a/b; echo deep > a/b/c; ln -s /etc/passwd away; ln -s a/b/c near; mkfifo pipe",
        "head -c 3000000 /dev/zero > large; chmod 755 large",
      ].join("; "),
    );
    // Inside the filter refuses it; a workspace of an earlier release may have one.
    const large = homesOf().map((one) => join(one, "user-data/workspace/large"));
    chmodSync(large.find((path) => existsSync(path)) ?? "", 0o6755);
    expect((await run("w5", `stat -c %a ${ROOT}/workspace/large`)).stdout).toBe("6755\n");
    const { skipped, ...counts } = await alice.ask<{ skipped: string[]; fileCount: number; sizeBytes: number }>(
      201,
      "POST",
      "/v1/threads/w5/branch",
      { json: { to: "w6" } },
    );
    expect(counts).toEqual({ thread: "w6", fileCount: 5, sizeBytes: 3_000_015 });
    expect(skipped).toEqual([`${ROOT}/workspace/pipe`]);
    const { stdout } = await run("w6", `cd ${ROOT}/workspace; stat -c '%n %U %a' tool large a a/b; cat near; ls`);
    expect(stdout).toBe(
      "tool sandbox 750\nlarge sandbox 755\na sandbox 755\na/b sandbox 755\ndeep\na\naway\nlarge\nnear\ntool\n",
    );
    // A link is a name: inside it leads to the sandbox's own files, and outside nothing follows it.
    expect((await run("w6", `readlink ${ROOT}/workspace/away`)).stdout).toBe("/etc/passwd\n");
    await run("w5", `echo changed > ${ROOT}/workspace/a/b/c`);
    expect((await run("w6", `cat ${ROOT}/workspace/a/b/c`)).stdout).toBe("deep\n");

    for (const taken of ["w6", "w1", "w5"])
      await alice.ask(409, "POST", "/v1/threads/w5/branch", { json: { to: taken } });
    // A workspace without a sandbox counts, too.
    await alice.ask(200, "POST", "/v1/threads/w7/uploads", { body: form("mine.txt", "keep me") });
    await alice.ask(409, "POST", "/v1/threads/w5/branch", { json: { to: "w7" } });
    expect(await (await alice.call("GET", "/v1/threads/w7/artifacts/mnt/user-data/uploads/mine.txt")).text()).toBe(
      "keep me",
    );
  }, 60_000);

  test("a branch copies what is nested deeply", async () => {
    const down = "i=0; while [ $i -lt 140 ]; do mkdir -p d && cd d || exit; i=$((i+1)); done";
    await run("w8", `cd ${ROOT}/workspace; ${down}; echo bottom > file`);
    await alice.ask(201, "POST", "/v1/threads/w8/branch", { json: { to: "w9" } });
    expect((await run("w9", `cd ${ROOT}/workspace; ${down}; cat file`)).stdout).toBe("bottom\n");
  }, 60_000);

  test("deleting a thread that only has files removes them", async () => {
    await alice.ask(200, "DELETE", "/v1/threads/w7");
    expect(await alice.ask(200, "GET", "/v1/threads/w7/uploads")).toMatchObject({ count: 0 });
  }, 60_000);

  test("drafts of a killed process go when the folder is next used; those of a running one stay", async () => {
    await alice.ask(200, "POST", "/v1/threads/w10/uploads", { body: form("only-here.txt", "a") });
    const made = homesOf().find((one) => existsSync(join(one, "user-data/uploads/only-here.txt")));
    const folder = join(made ?? "", "user-data/outputs");
    const { draftName } = await import("../../src/world/drafts.ts");
    const world = systemWorld();
    const [mine, theirs] = [draftName(world), draftName({ ...world, identity: { ...world.identity, pid: 4_194_303 } })];
    const foreign = draftName({ ...world, identity: { ...world.identity, bootId: "another" } });
    for (const name of [mine, theirs, foreign]) writeFileSync(join(folder, name), "half");
    await alice.ask(200, "PUT", "/v1/threads/w10/artifacts/new.txt", { body: "x", headers: { "if-none-match": "*" } });
    expect(readdirSync(folder).sort()).toEqual([mine, foreign, "new.txt"].sort());
  });
});
