import { PassThrough } from "node:stream";
import { describe, expect, test } from "vitest";
import { readReadyLine } from "../../src/sandboxd/index.ts";
import { code } from "./expectations.ts";

const LINE = { ready: true, pid: 4, sandboxId: "s", generation: 7, port: null };

describe("the ready line", () => {
  test("is read when it comes, in pieces too", async () => {
    const source = new PassThrough();
    const ready = readReadyLine(source);
    source.write(JSON.stringify(LINE).slice(0, 9));
    source.write(`${JSON.stringify(LINE).slice(9)}\nmore`);
    expect(await ready).toEqual(LINE);
  });

  test("that does not come, or says something else, is an error", async () => {
    const said = (text: string) => {
      const source = new PassThrough();
      source.end(text);
      return code(readReadyLine(source));
    };
    expect(await said("")).toBe("internal");
    expect(await said("sandboxd: no\n")).toBe("internal");
    expect(await said('{"ready":false}\n')).toBe("internal");
    expect(await said("x".repeat(5_000))).toBe("internal");
    const reason = new Error("no longer wanted");
    await expect(readReadyLine(new PassThrough(), AbortSignal.abort(reason))).rejects.toBe(reason);
    const controller = new AbortController();
    const waiting = readReadyLine(new PassThrough(), controller.signal);
    controller.abort(reason);
    await expect(waiting).rejects.toBe(reason);
  });
});
