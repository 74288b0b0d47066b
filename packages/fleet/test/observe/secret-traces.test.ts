/**
 * Where a secret of commands must not be found: argument lists of processes, logs, events, traces, audits, lists of
 * commands, and every file that Sandlot writes. A control value found in each place proves that the search covers it.
 */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Span, type Tracer, trace } from "@opentelemetry/api";
import { SandlotClient } from "@sandlot/client";
import { sandlotTools } from "@sandlot/client/tools";
import { pino } from "pino";
import { afterEach, expect, test } from "vitest";
import { readOperatorKey } from "../../src/gateway/keys/operator-key.ts";
import { startGateway } from "../../src/gateway/start-gateway.ts";
import { openFleet } from "../../src/index.ts";
import { systemWorld } from "../../src/world/system-world.ts";

const SECRET = "s3cr3t-value-0815-abcdef";
const FORMS = [SECRET, [...SECRET].reverse().join(""), Buffer.from(SECRET).toString("base64").slice(0, 24)];
/** The test's own control values. */
const MARK = "marked-command-4711";

afterEach(() => trace.disable());

function recordSpans(): unknown[] {
  const seen: unknown[] = [];
  const span = new Proxy({} as Span, {
    get: (_, name) => {
      if (name === "then") return undefined;
      if (name === "isRecording") return () => true;
      if (name === "spanContext") return () => ({ traceId: "1".repeat(32), spanId: "1".repeat(16), traceFlags: 1 });
      return (...args: unknown[]) => {
        seen.push(String(name), ...args);
        return span;
      };
    },
  });
  const start = (...args: unknown[]) => {
    seen.push(...args.filter((arg) => typeof arg !== "function"));
    return span;
  };
  const tracer = {
    startSpan: start,
    startActiveSpan: (...args: unknown[]) => (args.at(-1) as (span: Span) => unknown)(start(...args)),
  } as unknown as Tracer;
  trace.setGlobalTracerProvider({ getTracer: () => tracer });
  return seen;
}

/** The argument lists of every visible process on this machine. */
function argumentLists(): string {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map((pid) => readOr(`/proc/${pid}/cmdline`)).join("\n");
}

/** Everything below the fleet's home, except the commands' own writes in their workspace, and in checkpoints of it. */
function filesBelow(home: string): string {
  const found = readdirSync(home, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const ours = found.filter(
    ({ parentPath }) => !/\/(user-data\/workspace|checkpoints\/[0-9a-f]+\/packs)$/.test(parentPath),
  );
  return ours.map(({ parentPath, name }) => `${name}\n${readOr(join(parentPath, name))}`).join("\n");
}

function readOr(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    // A process that has ended, or a removed file, holds nothing.
    return "";
  }
}

test("nowhere but in the environment of commands", { timeout: 120_000 }, async (context) => {
  if (spawnSync("bwrap", ["--version"]).status !== 0) context.skip("bubblewrap is not installed");
  const home = mkdtempSync(join(tmpdir(), "sandlot-traces-"));
  const spans = recordSpans();
  const lines: string[] = [];
  const logger = pino({ level: "trace" }, { write: (line: string) => void lines.push(line) });
  const audited: unknown[] = [];
  const events: unknown[] = [];
  let lists = "";
  const fleet = await openFleet({ home, backend: "local" });
  fleet.events.on((event) => events.push(event));
  const gateway = await startGateway({ fleet, home, world: systemWorld(), settings: { port: 0 }, logger });
  try {
    const apiKey = (await readOperatorKey(home)) ?? "";
    const client = new SandlotClient({ url: gateway.url, apiKey });
    for (const source of [fleet, client]) {
      const thread = source === fleet ? "inside" : "outside";
      await using tools = sandlotTools(source, {
        ...{ thread, secrets: { TOKEN: SECRET }, outputBudgetChars: 500 },
        onAudit: (entry) => audited.push(entry),
      });
      const answers = [
        await tools.call("bash", { command: `echo ${MARK} "$TOKEN"; echo "$TOKEN" >&2; cat "/none/$TOKEN"; exit 3` }),
        await tools.call("bash", { command: 'for i in $(seq 1 100); do echo "$i $TOKEN"; done; echo "$TOKEN" > w' }),
        await tools.call("bash", { command: 'echo "$TOKEN"; sleep 60', timeout_seconds: 0.2 }),
        await tools.call("read_file", { path: "w" }),
        await tools.call("grep", { pattern: "s3cr3t", path: "." }),
        await tools.call("str_replace", { path: "w", old_str: `${SECRET}x`, new_str: "" }),
        await tools.call("bash", { command: `rm -rf /; echo ${SECRET}` }),
      ];
      const running = tools.call("bash", { command: `sleep 1; echo ${MARK}` });
      await new Promise((resolve) => setTimeout(resolve, 500));
      lists += argumentLists();
      lists += JSON.stringify(
        await tools.run.use(async (sandbox) => [
          await sandbox.execs.list(),
          await sandbox.sessions.list(),
          await sandbox.processes(),
        ]),
      );
      await running;
      expect(JSON.stringify(answers)).toContain("[redacted]");
      for (const form of FORMS) expect(JSON.stringify(answers)).not.toContain(form);
    }
    const places = {
      "argument lists and lists of commands": [lists, "sandboxd"],
      "the tools' audit": [JSON.stringify(audited), MARK],
      "the gateway's audit": [JSON.stringify(await client.audit()), "outside"],
      "the log": [lines.join(""), "answered"],
      events: [JSON.stringify(events), "lease-acquired"],
      spans: [JSON.stringify(spans), "/v1/threads"],
      files: [filesBelow(home), "bash-"],
    } as const;
    for (const [place, [content, sign]] of Object.entries(places)) {
      expect(content, `${place} was looked into`).toContain(sign);
      for (const form of FORMS) expect(content.includes(form), `${place} holds ${form}`).toBe(false);
    }
  } finally {
    await gateway.close();
    await fleet.close({ destroy: true, drainMs: 0 });
    rmSync(home, { recursive: true, force: true });
  }
});
