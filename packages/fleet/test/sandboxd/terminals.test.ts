/** Terminals over WebSockets, with real programs in them. */

import { readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { SandlotError, type Terminal, type TerminalOptions } from "@sandlot/contract";
import { describe, expect, onTestFinished, test } from "vitest";
import { daemonFile } from "../../../sandboxd/test/start-daemon.ts";
import { attached } from "./attached.ts";
import { code, eventually, isAlive } from "./expectations.ts";

const SIZE = { columns: 80, rows: 24 };

async function opened(options: Partial<TerminalOptions> = {}, start: Parameters<typeof attached>[0] = {}) {
  const around = await attached(start);
  const terminal = await around.sandbox.terminals.open({ ...SIZE, ...options });
  return { ...around, terminals: around.sandbox.terminals, terminal, screen: new Screen(terminal) };
}

/** Everything a terminal has shown on one connection. */
class Screen {
  text = "";
  droppedBytes = 0;
  endOffset = 0;
  readonly over: Promise<void>;

  constructor(terminal: Terminal) {
    this.over = (async () => {
      for await (const { offset, droppedBytes, bytes } of terminal.output) {
        if (this.text === "") this.endOffset = offset;
        expect(offset).toBe(this.endOffset + (this.text === "" ? 0 : droppedBytes));
        this.droppedBytes += droppedBytes;
        this.endOffset = offset + bytes.length;
        this.text += Buffer.from(bytes).toString("latin1");
      }
    })();
  }

  async shows(wanted: string | RegExp): Promise<void> {
    await eventually(() => (typeof wanted === "string" ? this.text.includes(wanted) : wanted.test(this.text)));
  }
}

describe("a terminal", () => {
  test("is one: size, keys, colours, a controlling terminal", async () => {
    const { terminal, screen, daemon } = await opened({ env: { MINE: "1" } });
    terminal.write('stty size; tty; echo $MINE $TERM; pwd; echo "a$((1+1))"\r');
    await screen.shows("a2\r\n");
    expect(screen.text).toContain("24 80");
    expect(screen.text).toMatch(/\/dev\/pts\/\d+/);
    expect(screen.text).toContain("1 xterm-256color");
    expect(screen.text).toContain(daemon.workspace);
    terminal.resize(132, 50);
    terminal.write("stty size\r");
    await screen.shows("50 132");
    // The key for an interrupt does what it does at a terminal.
    terminal.write("sh -c 'trap \"echo int$((3+3)); exit\" INT; echo up$((4+4)); while :; do sleep 0.05; done'\r");
    await screen.shows("up8\r\n");
    terminal.write("\x03");
    await screen.shows("int6\r\n");
    terminal.write("exit 7\r");
    expect(await terminal.ended).toEqual({ exitCode: 7, signal: null });
    await screen.over;
  });

  test("runs a command, and its end comes after all its output", async () => {
    const { terminal, screen, terminals } = await opened({ command: ["sh", "-c", "seq 1 20000; exit 3"] });
    expect(await terminal.ended).toEqual({ exitCode: 3, signal: null });
    await screen.over;
    expect(screen.text.endsWith("19999\r\n20000\r\n")).toBe(true);
    expect(screen.text.length).toBe(screen.endOffset);
    expect(await terminals.list()).toEqual([]);
    const killed = await terminals.open({ ...SIZE, command: ["sh", "-c", "kill -9 $$"] });
    expect(await killed.ended).toEqual({ exitCode: null, signal: "SIGKILL" });
    const missing = await terminals.open({ ...SIZE, command: ["no-such-program"] });
    expect((await missing.ended)?.exitCode).not.toBe(0);
  });

  test("takes bytes as they are", async () => {
    const { terminal, screen } = await opened({
      command: ["sh", "-c", "stty raw -echo; echo ready; head -c 256 | od -An -v -tu1 -w256"],
    });
    await screen.shows("ready");
    terminal.write(Uint8Array.from({ length: 256 }, (_, i) => i));
    await terminal.ended;
    await screen.over;
    const numbers = screen.text
      .slice(screen.text.indexOf("ready") + 5)
      .trim()
      .split(/\s+/)
      .map(Number);
    expect(numbers).toEqual(Array.from({ length: 256 }, (_, i) => i));
  });

  test("takes more input than its program reads at once", async () => {
    const { terminal, screen } = await opened({
      command: ["sh", "-c", "stty raw -echo; echo ready; head -c 3000000 | md5sum"],
    });
    await screen.shows("ready");
    const part = Buffer.alloc(100_000, "x");
    for (let i = 0; i < 30; i++) terminal.write(part);
    await terminal.ended;
    await screen.over;
    expect(screen.text).toMatch(/[0-9a-f]{32}/);
  });

  test("is listed, shared, and found again by its id", async () => {
    const { terminals, terminal, screen } = await opened({ terminalId: "t" });
    expect(await terminals.list()).toMatchObject([{ terminalId: "t", columns: 80, rows: 24, attachedCount: 1 }]);
    const second = await terminals.attach("t");
    const other = new Screen(second);
    expect(await terminals.list()).toMatchObject([{ attachedCount: 2 }]);
    terminal.write("echo from-$((1))st\r");
    second.write("echo from-$((2))nd\r");
    for (const each of [screen, other]) {
      await each.shows("from-1st");
      await each.shows("from-2nd");
    }
    // Opening it again finds it.
    const again = await terminals.open({ ...SIZE, terminalId: "t" });
    const third = new Screen(again);
    await third.shows("from-2nd");
    await Promise.all([second.detach(), again.detach()]);
    expect(await second.ended).toBeNull();
    await eventually(async () => (await terminals.list())[0]?.attachedCount === 1);
    expect(await code(terminals.attach("never-was"))).toBe("terminal_not_found");
  });

  test("goes on when its connection ends, and comes back at an offset without a byte lost or repeated", async () => {
    const { terminals, terminal, screen } = await opened({
      terminalId: "t",
      command: ["sh", "-c", "for i in $(seq 400); do echo line-$i; sleep 0.001; done; sleep 0.3"],
    });
    await screen.shows("line-100\r");
    await terminal.detach();
    await screen.over;
    await sleep(100);
    const back = await terminals.attach("t", { fromOffset: screen.endOffset });
    const rest = new Screen(back);
    await back.ended;
    await rest.over;
    expect(rest.droppedBytes).toBe(0);
    const lines = (screen.text + rest.text).trim().split("\r\n");
    expect(lines).toEqual(Array.from({ length: 400 }, (_, i) => `line-${i + 1}`));
    // A client that comes after the end still sees it, for a while.
    const late = await terminals.attach("t", { fromOffset: rest.endOffset - 6 });
    const last = new Screen(late);
    expect(await late.ended).toEqual({ exitCode: 0, signal: null });
    await last.over;
    expect(last.text).toBe("-400\r\n");
  });

  test("holds a bounded part, and says what it dropped", async () => {
    const { terminals, terminal, screen } = await opened({
      terminalId: "t",
      command: ["sh", "-c", "read x; head -c 5000000 /dev/zero | tr '\\0' x; echo END; sleep 60"],
    });
    await terminal.detach();
    await screen.over;
    const starter = await terminals.attach("t");
    starter.write("\r");
    await sleep(100);
    await starter.detach();
    await eventually(async () => {
      const look = await terminals.attach("t");
      const seen = new Screen(look);
      const done = await Promise.race([seen.shows("END").then(() => true), sleep(2_000).then(() => false)]);
      await look.detach();
      await seen.over;
      return done && seen.droppedBytes > 3_000_000 && seen.text.length <= 1024 * 1024;
    });
  });

  test("waits for a reader that does not read", async () => {
    const { terminals, daemon, terminal } = await attached().then(async (around) => ({
      ...around,
      terminals: around.sandbox.terminals,
      terminal: await around.sandbox.terminals.open({
        ...SIZE,
        command: ["sh", "-c", `head -c 8000000 /dev/zero | tr '\\0' x; touch done; echo END`],
        cwd: around.daemon.workspace,
      }),
    }));
    const done = () => {
      try {
        readFileSync(join(daemon.workspace, "done"));
        return true;
      } catch {
        return false;
      }
    };
    await sleep(700);
    expect(done()).toBe(false);
    expect(await terminals.list()).toHaveLength(1);
    const screen = new Screen(terminal);
    await terminal.ended;
    await screen.over;
    expect(done()).toBe(true);
    expect(screen.text.length).toBe(8_000_000 + "END\r\n".length);
    expect(screen.droppedBytes).toBe(0);
  });
});

describe("closing a terminal", () => {
  test("hangs up, and ends what does not listen", async () => {
    const { terminals, terminal, screen, daemon, sandbox } = await opened({
      terminalId: "t",
      command: ["sh", "-c", `echo $$ > pid; trap 'echo hup > hup' HUP; echo ready; while :; do sleep 0.02; done`],
    });
    await screen.shows("ready");
    const pid = Number(readFileSync(join(daemon.workspace, "pid"), "utf8"));
    expect((await sandbox.activity()).openTerminals).toBe(1);
    await terminals.close("t");
    expect(isAlive(pid)).toBe(false);
    expect(readFileSync(join(daemon.workspace, "hup"), "utf8")).toBe("hup\n");
    expect(await terminal.ended).toMatchObject({ signal: "SIGKILL" });
    expect(await terminals.list()).toEqual([]);
    expect((await sandbox.activity()).openTerminals).toBe(0);
    await terminals.close("t");
    expect(await code(terminals.attach("t"))).toBe("terminal_not_found");
  });

  test("leaves no process, no descriptor and no zombie", async () => {
    const { terminals, daemon, sandbox } = await opened({ terminalId: "first" });
    const descriptors = async () => (await sandbox.exec(`ls -l /proc/${daemon.pid}/fd | grep -c ptmx`)).stdout.trim();
    for (let i = 0; i < 10; i++) await terminals.open({ ...SIZE, terminalId: `t${i}` });
    expect(await descriptors()).toBe("11");
    await Promise.all((await terminals.list()).map(({ terminalId }) => terminals.close(terminalId)));
    expect(await descriptors()).toBe("0");
    const { stdout } = await sandbox.exec(`ps -o stat=,comm= --ppid ${daemon.pid}`);
    expect(stdout.split("\n").filter((line) => /^Z|bash$/.test(line)).length).toBeLessThan(2);
  });

  test("comes with the end of the daemon", async () => {
    const { terminal, screen, daemon } = await opened({
      command: ["sh", "-c", "echo $$ > pid; echo ready; sleep 300"],
    });
    await screen.shows("ready");
    const pid = Number(readFileSync(join(daemon.workspace, "pid"), "utf8"));
    daemon.process.kill("SIGTERM");
    await daemon.exited;
    // Whether the daemon's last message got through is chance.
    expect([null, "SIGKILL"]).toContain((await terminal.ended)?.signal ?? null);
    expect(isAlive(pid)).toBe(false);
  });
});

describe("the daemon's side of a terminal", () => {
  test("is shared with no command, no session and no other terminal", async () => {
    const { terminals, sandbox } = await opened({ terminalId: "a" });
    await terminals.open({ ...SIZE, terminalId: "b" });
    const look = "ls -l /proc/self/fd";
    expect((await sandbox.exec(look)).stdout).not.toContain("ptmx");
    await sandbox.sessions.open({ sessionId: "s" });
    expect((await sandbox.sessions.exec("s", look)).stdout).not.toContain("ptmx");
    const third = await terminals.open({ ...SIZE, command: ["sh", "-c", `${look}; sleep 0.1`] });
    const screen = new Screen(third);
    await third.ended;
    await screen.over;
    expect(screen.text).toContain("/dev/pts/");
    expect(screen.text).not.toContain("ptmx");
  });

  test("needs its native part; without it everything else works", async () => {
    const pty = join(dirname(await daemonFile()), "pty.node");
    const bytes = readFileSync(pty);
    rmSync(pty);
    const { writeFileSync } = await import("node:fs");
    onTestFinished(() => writeFileSync(pty, bytes));
    const { sandbox } = await attached();
    const refusal = await sandbox.terminals.open(SIZE).catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(SandlotError);
    expect(refusal).toMatchObject({ code: "capability_missing", details: { capability: "terminals" } });
    expect((await sandbox.exec("echo fine")).stdout).toBe("fine\n");
    expect(await code(sandbox.terminals.open({ columns: 0, rows: 24 }))).toBe("invalid_request");
  });

  test("works on Node 20", async (context) => {
    const node = process.env.SANDLOT_TEST_NODE_20 ?? "/usr/bin/node";
    const { spawnSync } = await import("node:child_process");
    const version = spawnSync(node, ["--version"], { encoding: "utf8" }).stdout ?? "";
    if (!version.startsWith("v20.")) return context.skip(`${node} is not Node 20`);
    const { terminal, screen } = await opened({ command: ["sh", "-c", "stty size; exit 4"] }, { node });
    expect(await terminal.ended).toEqual({ exitCode: 4, signal: null });
    await screen.over;
    expect(screen.text).toBe("24 80\r\n");
  });
});
