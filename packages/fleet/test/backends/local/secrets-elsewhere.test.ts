/**
 * Where the value of a per-call secret must never be: arguments of processes, logs, events, traces, audits,
 * explanations, and files that Sandlot writes. Every call goes through a gateway over local sandboxes, with every
 * output turned up. A control value that does belong in each place proves that the search covers it.
 */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Span, trace } from "@opentelemetry/api";
import { SandlotClient } from "@sandlot/client";
import { sandlotTools, type ToolBox, type ToolOutput } from "@sandlot/client/tools";
import type { FleetEvent } from "@sandlot/contract";
import pino from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startGateway } from "../../../src/gateway/start-gateway.ts";
import { type Fleet, openFleet } from "../../../src/index.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const VALUE = "sk-test-4Yh8Kd2Vn6Qp0Zr3Xw7Bm1";
const FORMS = [
  VALUE,
  Buffer.from(VALUE).toString("base64").slice(4, 32),
  Buffer.from(VALUE).toString("hex"),
  [...VALUE].reverse().join(""),
];
/** Placed on purpose, as a thread and as an argument: a working search finds it. */
const MARK = "mark-5Tg9Lc3Fj";
const hasBubblewrap = spawnSync("bwrap", ["--version"]).status === 0;

const leaksIn = (text: string) => FORMS.filter((form) => text.includes(form));

/** A trace provider, through the API alone, that keeps everything it receives. */
function keepTraces(): string[] {
  const kept: string[] = [];
  const keep = (...told: unknown[]) => {
    kept.push(JSON.stringify(told, (_, value) => (value instanceof Error ? [value.message, value.stack] : value)));
    return span;
  };
  const span: Span = {
    ...{ setAttribute: keep, setAttributes: keep, setStatus: keep, addEvent: keep, addLink: keep, addLinks: keep },
    ...{ updateName: keep, end: () => {}, isRecording: () => true, recordException: (error) => void keep(error) },
    spanContext: () => ({ traceId: "0".repeat(32), spanId: "0".repeat(16), traceFlags: 1 }),
  };
  const startActiveSpan = (...args: unknown[]) => {
    keep(...args.slice(0, -1));
    return (args.at(-1) as (span: Span) => unknown)(span);
  };
  trace.setGlobalTracerProvider({ getTracer: () => ({ startSpan: keep, startActiveSpan }) as never });
  return kept;
}

function processesWith(what: string, file: "cmdline" | "environ"): number {
  return readdirSync("/proc").filter((pid) => {
    if (!/^\d+$/.test(pid) || Number(pid) === process.pid) return false;
    try {
      return readFileSync(`/proc/${pid}/${file}`, "latin1").includes(what);
    } catch {
      // It has ended, or belongs to the kernel.
      return false;
    }
  }).length;
}

describe.skipIf(!hasBubblewrap)("a secret of a call (skipped where bubblewrap is not installed)", () => {
  const home = mkdtempSync(join(tmpdir(), "sls-"));
  const events: FleetEvent[] = [];
  const logs: string[] = [];
  const audits: unknown[] = [];
  const outputs: ToolOutput[] = [];
  const traces = keepTraces();
  let fleet: Fleet;
  let gateway: Awaited<ReturnType<typeof startGateway>>;
  let client: SandlotClient;
  let tools: ToolBox;

  beforeAll(async () => {
    fleet = await openFleet({ home, backend: "local" });
    fleet.events.on((event) => events.push(event));
    const logger = pino({ level: "trace" }, { write: (line: string) => void logs.push(line) });
    gateway = await startGateway({ fleet, home, world: systemWorld(), settings: { port: 0 }, logger });
    const { key } = await gateway.keys.create({ scope: "operator" });
    client = new SandlotClient({ url: gateway.url, apiKey: key, user: "ann" });
    const onAudit = (entry: unknown) => audits.push(entry);
    tools = sandlotTools(client, { thread: MARK, secrets: { TOKEN: VALUE }, onAudit });
  }, 60_000);

  afterAll(async () => {
    trace.disable();
    await tools?.end();
    await fleet?.destroy({ thread: MARK, user: "ann" }, { purge: true, force: true });
    await gateway?.close();
    await fleet?.close({ destroy: true });
    rmSync(home, { recursive: true, force: true });
  }, 60_000);

  const call = async (name: string, input: Record<string, unknown>) => {
    const output = await tools.call(name, input);
    outputs.push(output);
    return output;
  };

  test("is in the environment of its command, and in no argument of any process", async () => {
    const running = call("bash", { command: `echo "$TOKEN" >/dev/null; sh -c 'sleep 2; : ${MARK}'` });
    while (processesWith(MARK, "cmdline") === 0) await new Promise((resolve) => setTimeout(resolve, 20));
    expect(processesWith(VALUE, "environ")).toBeGreaterThan(0);
    expect(processesWith(VALUE, "cmdline")).toBe(0);
    const inside = await call("bash", { command: "cat /proc/[0-9]*/cmdline | tr '\\0' ' '" });
    expect(inside.text).not.toContain("[redacted]");
    expect((await running).code).toBeNull();
  });

  test("goes through everything that can go wrong with a command", async () => {
    expect((await call("bash", { command: 'echo "$TOKEN"; exit 3' })).code).toBe("command_failed");
    expect((await call("bash", { command: 'echo "$TOKEN"; sleep 9', timeout_seconds: 0.3 })).code).toBe(
      "command_timed_out",
    );
    expect((await call("bash", { command: `echo "${VALUE}" | sh` })).code).toBe("command_blocked");
    expect((await call("bash", { command: 'cd "/nowhere/$TOKEN"' })).code).toBe("command_failed");
    expect((await call("read_file", { path: `/mnt/user-data/${VALUE}` })).code).toBe("file_not_found");
    expect((await call("write_file", { path: "/mnt/user-data/workspace", content: VALUE })).isError).toBe(true);
    const long = await call("bash", { command: 'for i in $(seq 1 1000); do echo "$i $TOKEN"; done' });
    expect(long.text).toContain("/mnt/user-data/outputs/.tool-results/");
    await using lease = await client.acquire({ thread: MARK });
    const { stdout } = await lease.sandbox.exec(`echo "$TOKEN" | wc -c; : ${MARK}`, { env: { TOKEN: VALUE } });
    expect(stdout).toBe(`${VALUE.length + 1}\n`);
    await call("bash", { command: "kill -9 -1; sleep 5" });
  });

  test("is in no answer", () => {
    expect(outputs.length).toBeGreaterThan(8);
    expect(outputs.map(({ text }) => text).join("\n")).toContain("[redacted]");
    expect(leaksIn(JSON.stringify(outputs))).toEqual([]);
  });

  test("is in no event, and in no explanation", async () => {
    const [sandbox] = await fleet.list();
    const told = JSON.stringify([events, await fleet.explain(String(sandbox?.sandboxId)), await fleet.audit()]);
    expect(told).toContain(MARK);
    expect(leaksIn(told)).toEqual([]);
  });

  test("is in no trace", () => {
    const told = traces.join("\n");
    for (const name of ["sandlot.exec", "sandlot.acquire", MARK]) expect(told).toContain(name);
    expect(leaksIn(told)).toEqual([]);
  });

  test("is in no line of the log", () => {
    const told = logs.join("\n");
    expect(told).toContain("/v1/threads/:thread");
    expect(leaksIn(told)).toEqual([]);
  });

  test("is in no audit: of commands, of requests", async () => {
    expect(audits.length).toBeGreaterThan(5);
    const requests = await client.audit().catch((error: unknown) => String(error));
    const told = JSON.stringify([audits, requests]);
    expect(told).toContain("[redacted]");
    expect(leaksIn(told)).toEqual([]);
  });

  test("is in no file that Sandlot writes", async () => {
    const found = (what: string) =>
      spawnSync("grep", ["-rlaF", "--", what, home], { encoding: "utf8" }).stdout.split("\n").filter(Boolean);
    expect(found(MARK).length).toBeGreaterThan(0);
    expect(found("[redacted]").some((path) => path.includes(".tool-results"))).toBe(true);
    for (const form of FORMS) expect(found(form), form).toEqual([]);
    // A command's own writes are not stopped: the same search finds them.
    const written = await call("bash", { command: 'echo "$TOKEN" > kept-by-the-command' });
    expect(written.code, written.text).toBeNull();
    expect(found(VALUE)).toEqual([expect.stringContaining("kept-by-the-command")]);
  });
});
