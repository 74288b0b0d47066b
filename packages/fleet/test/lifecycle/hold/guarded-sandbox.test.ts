/**
 * Guarded sandboxes: every method of every part goes through the gate, whatever its kind.
 */

import { inspect } from "node:util";
import type { Generation, Sandbox, SandboxId, Terminal } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { SANDBOX_SHAPE } from "../../../src/backend/sandbox-shape.ts";
import { type Gate, guarded } from "../../../src/lifecycle/hold/guarded-sandbox.ts";

type Call = (...input: unknown[]) => unknown;
type Kind = "promise" | "stream" | "terminal";

/** As many as the longest method takes. */
const INPUT = ["/a", "/b", { c: 1 }];
const terminal = { terminalId: "t", output: pieces(), ended: Promise.resolve(null) } as unknown as Terminal;

async function* pieces() {
  yield "one";
  yield "two";
}

/** Every method of the table with the path that leads to it. */
function methods(): readonly { readonly path: readonly string[]; readonly kind: Kind }[] {
  return Object.entries(SANDBOX_SHAPE).flatMap(([name, kind]) => {
    if (typeof kind === "object")
      return Object.entries(kind).map(([method, of]) => ({ path: [name, method], kind: of as Kind }));
    return kind === "value" ? [] : [{ path: [name], kind: kind as Kind }];
  });
}

/** A sandbox that has every method, and records each call with its arguments. */
function backendSandbox(calls: unknown[]): Sandbox {
  const sandbox: Record<string, unknown> = {};
  const answers = { promise: async () => "answer", stream: pieces, terminal: async () => terminal };
  for (const { path, kind } of methods()) {
    const [first = "", name = first] = path;
    if (path.length === 2) sandbox[first] ??= {};
    const part = path.length === 2 ? (sandbox[first] as object) : sandbox;
    Object.assign(part, {
      [name](this: unknown, ...input: unknown[]) {
        expect(this).toBe(part);
        calls.push([path.join("."), ...input]);
        return answers[kind]();
      },
    });
  }
  return sandbox as unknown as Sandbox;
}

function scene() {
  const calls: unknown[] = [];
  const passed: string[] = [];
  const inner = backendSandbox(calls);
  const gate: Gate & { closed: boolean } = {
    closed: false,
    async use(use) {
      gate.check();
      passed.push("use");
      return use(inner);
    },
    async *stream(open) {
      gate.check();
      passed.push("stream");
      for await (const piece of open(inner)) {
        gate.check();
        yield piece;
      }
    },
    check() {
      if (gate.closed) throw new Error("the gate is closed");
    },
  };
  const sandbox = guarded("s1" as SandboxId, 7 as Generation, gate);
  const call = (path: readonly string[], ...input: unknown[]) => {
    const holder = (path.length === 1 ? sandbox : Reflect.get(sandbox, path[0]!)) as Record<string, Call>;
    return holder[path.at(-1)!]!(...input);
  };
  return { gate, sandbox, call, calls, passed };
}

async function readAll(stream: unknown): Promise<unknown[]> {
  const read: unknown[] = [];
  for await (const piece of stream as AsyncIterable<unknown>) read.push(piece);
  return read;
}

describe("a guarded sandbox", () => {
  test.each(methods().map((method) => [method.path.join("."), method] as const))(
    "%s is passed on through the gate, and refused by a closed one",
    async (name, { path, kind }) => {
      const { gate, call, calls, passed } = scene();
      const use = async () => {
        const answer = call(path, ...INPUT);
        if (kind === "stream") return readAll(answer);
        return kind === "terminal" ? ((await answer) as Terminal).terminalId : answer;
      };
      expect(await use()).toEqual({ promise: "answer", stream: ["one", "two"], terminal: "t" }[kind]);
      const [called, ...input] = calls[0] as unknown[];
      expect(called).toBe(name);
      // A method with named parameters passes on only those.
      expect(input).toEqual(INPUT.slice(0, Math.max(1, input.length)));
      expect(passed).toEqual([kind === "stream" ? "stream" : "use"]);
      gate.closed = true;
      await expect(use()).rejects.toThrow("the gate is closed");
      expect(calls).toHaveLength(1);
    },
  );

  test("checks again before each piece of a stream, and before each use of a terminal", async () => {
    const { gate, sandbox } = scene();
    const stream = sandbox.files.download("/a")[Symbol.asyncIterator]();
    expect(await stream.next()).toEqual({ done: false, value: "one" });
    const opened = await sandbox.terminals.open({ columns: 80, rows: 24 });
    gate.closed = true;
    await expect(stream.next()).rejects.toThrow("the gate is closed");
    expect(() => opened.write("x")).toThrow("the gate is closed");
    expect(() => opened.resize(1, 1)).toThrow("the gate is closed");
    await expect(opened.output[Symbol.asyncIterator]().next()).rejects.toThrow("the gate is closed");
  });

  test("has parts that stay the same object, relative paths below the workspace, and names in stack traces", async () => {
    const { gate, sandbox, calls } = scene();
    expect(sandbox.files).toBe(sandbox.files);
    expect(sandbox.sessions).toBe(sandbox.sessions);
    await sandbox.files.read("notes.txt");
    expect(calls).toEqual([["files.read", "/mnt/user-data/workspace/notes.txt", undefined]]);
    gate.use = async () => {
      throw new Error("here");
    };
    const { stack } = (await sandbox.sessions.list().catch((error: unknown) => error)) as Error;
    expect(stack).toMatch(/at \S*\.list /);
  });

  test("shows what it is, and nothing of how it is reached", () => {
    const { sandbox } = scene();
    void sandbox.files;
    expect(inspect(sandbox)).toBe("Sandbox { id: 's1', generation: 7 }");
    expect({ ...sandbox }).toEqual({ id: "s1", generation: 7 });
  });
});
