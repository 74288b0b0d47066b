import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { keepNoBlank } from "../support/no-blank.ts";
import { MAIN, runCli, runScript } from "./run-cli.ts";

/** Real sandboxes: this machine's bubblewrap, as a newcomer's first command has it. */
const hasBubblewrap = (process.env.PATH ?? "").split(":").some((folder) => existsSync(join(folder, "bwrap")));
const home = mkdtempSync(join(tmpdir(), "slc-"));
const environment = { SANDLOT_HOME: home };
const cli = (...args: string[]) => runCli(args, environment);

describe.skipIf(!hasBubblewrap)("commands on real sandboxes (skipped where bubblewrap is not installed)", () => {
  afterAll(async () => {
    for (const thread of ["t1", "t2", "t3"]) await cli("rm", "-t", thread, "--force", "--purge");
    rmSync(home, { recursive: true, force: true });
  }, 60_000);

  it("exec passes output, exit code and files of the thread through", async () => {
    const first = await cli("exec", "-t", "t1", "--", "echo out; echo err >&2; echo kept > note; exit 7");
    expect(first).toMatchObject({ code: 7, stdout: "out\n", stderr: "err\n" });
    expect(await cli("exec", "-t", "t1", "--", "cat", "note")).toMatchObject({ code: 0, stdout: "kept\n" });
    expect(await cli("exec", "-t", "t2", "--", "ls")).toMatchObject({ code: 0, stdout: "" });
  }, 60_000);

  it("exec takes options before the command and leaves the command's alone", async () => {
    const args = ["exec", "-t", "t1", "-C", "/tmp", "-e", "A=1", "-e", "B=two words", "--", "printf", "%s|", "--json"];
    expect(await cli(...args)).toMatchObject({ code: 0, stdout: "--json|" });
    const shown = await cli(...args.slice(0, 9), 'echo "$PWD $A $B"');
    expect(shown.stdout).toBe("/tmp 1 two words\n");
  }, 60_000);

  it("exec hands its input on", async () => {
    const child = spawn(
      process.execPath,
      ["--conditions=sandlot-source", MAIN, "exec", "-t", "t1", "--", "tr a-z A-Z"],
      {
        env: { ...process.env, ...environment },
        stdio: ["pipe", "pipe", "inherit"],
      },
    );
    const parts: Buffer[] = [];
    child.stdout.on("data", (part: Buffer) => parts.push(part));
    child.stdin.end("some input\n");
    const [code] = await once(child, "close");
    expect([code, Buffer.concat(parts).toString()]).toEqual([0, "SOME INPUT\n"]);
  }, 60_000);

  it("exec says with its exit code why there is no result", async () => {
    const late = await cli("exec", "-t", "t1", "--timeout", "300", "--", "sleep 30");
    expect(late).toMatchObject({ code: 124, stderr: expect.stringContaining("ran out of time after 300ms") });
    const wrong = await cli("exec", "-t", "no thread!", "--", "true");
    expect(wrong).toMatchObject({ code: 125, stdout: "" });
    expect(wrong.stderr).toContain("invalid_thread_id");
    expect((await cli("exec", "-t", "t1", "--", "kill -9 $$")).code).toBe(137);
  }, 60_000);

  it("exec ends the command on Ctrl-C", async () => {
    let sent = false;
    const ended = await runScript(MAIN, ["exec", "-t", "t3", "--", "echo started; sleep 300; echo after"], {
      environment,
      onOutput: (stdout, kill) => {
        if (sent || !stdout.includes("started")) return;
        sent = true;
        kill("SIGINT");
      },
    });
    expect(ended).toMatchObject({ code: 130, stdout: "started\n" });
    const { stdout } = await cli("exec", "-t", "t3", "--", "pgrep -c sleep || true");
    expect(stdout).toBe("0\n");
  }, 60_000);

  it("exec ends quietly, with its command, when its output has no reader", async () => {
    const line = '"$0" --conditions=sandlot-source "$1" exec -t t3 -- yes | head -2; echo "$PIPESTATUS"';
    const child = spawn("bash", ["-c", line, process.execPath, MAIN], {
      env: { ...process.env, ...environment },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let [stdout, stderr] = ["", ""];
    child.stdout.on("data", (text) => (stdout += text));
    child.stderr.on("data", (text) => (stderr += text));
    await once(child, "close");
    expect([stdout, stderr]).toEqual(["y\ny\n141\n", ""]);
    expect((await cli("exec", "-t", "t3", "--", "pgrep -c yes || true")).stdout).toBe("0\n");
  }, 60_000);

  it("exec --json gives the whole result", async () => {
    const { code, stdout } = await cli("--json", "exec", "-t", "t1", "--", "echo x; exit 3");
    expect(code).toBe(3);
    expect(JSON.parse(stdout)).toMatchObject({ status: "completed", exitCode: 3, stdout: "x\n", stderr: "" });
  }, 60_000);

  it("ps, explain, audit, cp, ls and rm work on the same sandboxes", async () => {
    const { sandboxes } = JSON.parse((await cli("ps", "--json")).stdout) as { sandboxes: { thread: string }[] };
    expect(sandboxes.map(({ thread }) => thread)).toContain("t1");
    expect((await cli("ps")).stdout).toMatch(/SANDBOX.*THREAD.*STATE/);
    expect(await cli("audit")).toMatchObject({ code: 0, stdout: "Engine and store agree.\n" });
    const file = join(home, "local.bin");
    writeFileSync(file, Buffer.from([0, 1, 2, 255]));
    expect((await cli("cp", file, "t1:deep/copy.bin")).code).toBe(0);
    expect((await cli("ls", "t1:deep")).stdout).toContain("/mnt/user-data/workspace/deep/copy.bin");
    expect((await cli("cp", "t1:deep/copy.bin", join(home, "back.bin"))).code).toBe(0);
    expect([...readFileSync(join(home, "back.bin"))]).toEqual([0, 1, 2, 255]);
    expect((await cli("cp", file, join(home, "other"))).code).toBe(1);
    // A thread's own directories go by their names, and a trailing slash means a directory.
    expect((await cli("cp", file, "t1:uploads/")).stderr).toContain("-> /mnt/user-data/uploads/local.bin (4 bytes)");
    expect((await cli("ls", "t1:uploads/")).stdout).toContain("/mnt/user-data/uploads/local.bin");
    expect((await cli("rm", "-t", "t1")).stdout).toContain("its files are kept");
    expect((await cli("exec", "-t", "t1", "--", "cat note")).stdout).toBe("kept\n");
    await cli("exec", "-t", "t1", "--", "echo planted > ~/.bashrc");
    const reset = await cli("home", "reset", "-t", "t1");
    expect(reset).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^The home of thread t1 is empty\. Gone are /),
    });
    expect((await cli("exec", "-t", "t1", "--", "cat ~/.bashrc note")).stdout).toBe("kept\n");
    expect(JSON.parse((await cli("home", "reset", "-t", "t1", "--json")).stdout)).toEqual({
      thread: "t1",
      outcome: "stopped",
    });
    expect(await cli("home", "reset", "-t", "no-such-thread")).toMatchObject({ code: 1 });
    expect((await cli("rm", "-t", "t1", "--purge")).stdout).toContain("its files are removed");
    expect((await cli("exec", "-t", "t1", "--", "ls")).stdout).toBe("");
  }, 120_000);

  it("ps leaves out a sandbox that ended by itself, audit reports it, and its files are kept", async () => {
    await cli("exec", "-t", "t2", "--", "echo kept > note");
    const threads = async () =>
      (JSON.parse((await cli("ps", "--json")).stdout) as { sandboxes: { thread: string; sandboxId: string }[] })
        .sandboxes;
    const { sandboxId = "" } = (await threads()).find(({ thread }) => thread === "t2") ?? {};
    const objects = join(home, readdirSync(home).find((name) => name.startsWith("fleet-")) ?? "", "objects");
    const place = join(objects, readdirSync(objects).find((name) => name.startsWith(sandboxId)) ?? "", "process.json");
    process.kill((JSON.parse(readFileSync(place, "utf8")) as { init: { pid: number } }).init.pid, "SIGKILL");
    await expect.poll(threads).not.toContainEqual(expect.objectContaining({ thread: "t2" }));
    const audit = await cli("audit", "--json");
    expect(audit.code).toBe(1);
    expect(JSON.parse(audit.stdout)).toMatchObject({ consistent: false, findings: [{ kind: "gone", sandboxId }] });
    expect((await cli("exec", "-t", "t2", "--", "cat note")).stdout).toBe("kept\n");
  }, 90_000);

  it("exec without a thread has a sandbox of its own, which goes with the command", async () => {
    const once = await cli("exec", "--", "pwd; echo x > left; ls");
    expect(once).toMatchObject({ code: 0, stdout: "/mnt/user-data/workspace\nleft\n" });
    expect((await cli("exec", "--", "ls")).stdout).toBe("");
    expect((await cli("ps", "--threads", "-q")).stdout).not.toContain("~");
    expect((await cli("ps", "--json")).stdout).not.toContain('"thread": "~');
  }, 60_000);

  it("explain without a server shows the time that holds without one", async () => {
    await cli("exec", "-t", "t2", "--", "true");
    const before = Date.now();
    const { ends, summary } = JSON.parse((await cli("explain", "-t", "t2", "--json")).stdout) as {
      ends: { reason: string; at: number };
      summary: string;
    };
    expect(ends.reason).toBe("orphaned");
    expect(ends.at - before).toBeGreaterThan(60_000);
    expect(ends.at - before).toBeLessThan(180_000);
    expect(summary).toContain("no other Sandlot process runs");
  }, 60_000);

  it("port without a server leads to the port inside until it is interrupted", async () => {
    const child = spawn(
      process.execPath,
      ["--conditions=sandlot-source", MAIN, "exec", "-t", "t2", "--", "python3 -m http.server 8123"],
      {
        env: { ...process.env, ...environment },
        stdio: "ignore",
      },
    );
    try {
      await expect.poll(async () => (await cli("port", "-t", "t2")).stdout, { timeout: 30_000 }).toMatch(/^8123 /m);
      let answered: Promise<string> | null = null;
      const ended = await runScript(MAIN, ["port", "-t", "t2", "8123"], {
        environment,
        onOutput: (stdout, kill) => {
          const [url] = /http:\/\/127\.0\.0\.1:\d+/.exec(stdout) ?? [];
          if (url === undefined || answered !== null) return;
          answered = fetch(url).then((response) => response.text());
          void answered.finally(() => kill("SIGINT")).catch(() => undefined);
        },
      });
      expect(ended.stdout).toContain("leads to port 8123");
      expect(await answered).toContain("Directory listing");
    } finally {
      child.kill("SIGINT");
      await once(child, "close");
    }
  }, 90_000);

  it("the prompt of a shell names the thread", async () => {
    const line = `"$0" --conditions=sandlot-source "$1" shell -t t2`;
    const child = spawn("script", ["-qec", `bash -c '${line}' '${process.execPath}' '${MAIN}'`, "/dev/null"], {
      env: { ...process.env, ...environment },
      stdio: ["pipe", "pipe", "inherit"],
    });
    let shown = "";
    child.stdout.on("data", (piece) => {
      shown += String(piece);
      if (shown.includes("[sandlot t2]")) child.stdin.write("exit\n");
    });
    await once(child, "close");
    expect(shown).toMatch(/\[sandlot t2\] \S+\$ /);
  }, 60_000);

  it("a shell needs a terminal, and says so", async () => {
    const { code, stderr } = await cli("shell", "-t", "t1");
    expect(code).toBe(1);
    expect(stderr).toContain("a shell needs a terminal");
  }, 60_000);

  it("doctor finds this machine ready, or says what is missing", async () => {
    const { code, stdout } = await cli("--json", "doctor");
    const { ready, findings } = JSON.parse(stdout) as { ready: boolean; findings: { name: string; status: string }[] };
    expect(code).toBe(ready ? 0 : 1);
    expect(ready).toBe(true);
    const names = findings.map(({ name }) => name);
    expect(names).toEqual(expect.arrayContaining(["bubblewrap", "control groups", "disk limit", "network open"]));
  }, 60_000);
});

describe.skipIf(!hasBubblewrap)("a gateway from the command line (skipped where bubblewrap is not installed)", () => {
  const place = mkdtempSync(join(tmpdir(), "slg-"));
  const served = { SANDLOT_HOME: place };
  let child: ReturnType<typeof spawn>;
  let url = "";

  beforeAll(async () => {
    keepNoBlank(place);
    const args = ["--conditions=sandlot-source", MAIN, "--json", "serve", "--port", "0"];
    child = spawn(process.execPath, args, { env: { ...process.env, ...served }, stdio: ["ignore", "pipe", "inherit"] });
    const [line] = (await once(child.stdout as NodeJS.ReadableStream, "data")) as [Buffer];
    url = (JSON.parse(line.toString()) as { listening: string }).listening;
  }, 60_000);

  afterAll(async () => {
    await runCli(["rm", "-t", "remote", "--force", "--purge"], { ...served, SANDLOT_URL: url });
    const ended = once(child, "close");
    child.kill("SIGTERM");
    expect((await ended)[0]).toBe(0);
    rmSync(place, { recursive: true, force: true });
  }, 60_000);

  it("is asked by the same commands, with the operator's key by itself", async () => {
    const asked = { ...served, SANDLOT_URL: url };
    const ran = await runCli(["exec", "-t", "remote", "--", "echo there > f; cat f; exit 4"], asked);
    expect(ran).toMatchObject({ code: 4, stdout: "there\n" });
    expect((await runCli(["ps"], asked)).stdout).toContain("remote");
    expect(await runCli(["audit"], asked)).toMatchObject({ code: 0 });
  }, 60_000);

  it("refuses without a key, and takes one that was made", async () => {
    expect((await fetch(`${url}/v1/sandboxes`)).status).toBe(401);
    const made = await runCli(["keys", "create", "--scope", "user", "--user", "u1", "--json"], served);
    const { id, key } = JSON.parse(made.stdout) as { id: string; key: string };
    const headers = { authorization: `Bearer ${key}` };
    expect((await fetch(`${url}/v1/threads/mine/files/list?path=/mnt/user-data`, { headers })).status).toBe(200);
    expect((await fetch(`${url}/v1/audit`, { headers })).status).toBe(403);
    expect((await runCli(["keys", "revoke", id], served)).stdout).toContain("is revoked");
    expect((await runCli(["keys", "list"], served)).stdout).not.toContain(id);
  }, 60_000);
});
