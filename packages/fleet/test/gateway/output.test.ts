/** Output of commands through a gateway: for a caller that waits, and for a caller that reads it as it comes. */

import { request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { SandlotClient } from "@sandlot/client";
import { SANDBOX_LIMITS } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { encodeInPieces } from "../../src/gateway/streams/large-json.ts";
import { allEvents, outputOf } from "./support/sse.ts";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

const MEBIBYTE = 1024 * 1024;
const BODY_STALL_MS = 500;

let stage: Stage;
let alice: Caller;

beforeAll(async () => {
  stage = await openStage({ settings: { bodyStallMs: BODY_STALL_MS } });
  alice = await stage.user("alice");
});
afterAll(() => stage.done());

describe("the answer to a command", () => {
  test("holds the end of the output, says how much is before it, and that is at the output route", async () => {
    const command = `printf begin; head -c ${3 * MEBIBYTE} /dev/zero; printf end`;
    const response = await alice.call("POST", "/v1/threads/big/exec", { json: { command } });
    const text = await response.text();
    // Control characters are six times as long as JSON.
    expect(text.length).toBeLessThan(7 * MEBIBYTE);
    expect(response.headers.get("content-type")).toBe("application/json; charset=utf-8");
    const { execId, stdout, omitted } = JSON.parse(text);
    expect(stdout.length).toBe(SANDBOX_LIMITS.execResultMaxBytes);
    expect(stdout.endsWith("\0end")).toBe(true);
    expect(omitted).toMatchObject({ stdoutBytes: 2 * MEBIBYTE + 8, stderrBytes: 0 });
    expect(omitted.remedy).toContain(`/execs/${execId}/output?stdoutOffset=0&stderrOffset=0`);
    const whole = await alice.call("GET", `/v1/threads/big/execs/${execId}/output`);
    const bytes = Buffer.from(await whole.arrayBuffer());
    expect([bytes.length, bytes.toString("utf8", 0, 5)]).toEqual([3 * MEBIBYTE + 8, "begin"]);
  });

  test("holds less when less is asked for, and never more than the gateway allows", async () => {
    const command = `head -c ${2 * MEBIBYTE} /dev/zero | tr '\\0' a`;
    const ask = (outputMaxBytes: number) =>
      alice.ask<{ stdout: string }>(200, "POST", "/v1/threads/big/exec", { json: { command, outputMaxBytes } });
    expect((await ask(10)).stdout).toBe("a".repeat(10));
    expect((await ask(2 * MEBIBYTE)).stdout.length).toBe(SANDBOX_LIMITS.execResultMaxBytes);
  });

  test("is encoded in pieces, which are the same JSON", async () => {
    const value = {
      empty: "",
      zeros: "\0".repeat(200_000),
      faces: `a${"😀".repeat(100_000)}`,
      quotes: '"\\\n'.repeat(50_000),
      lone: `${"x".repeat(65_535)}\ud800${"y".repeat(65_536)}`,
      nested: { a: [1, null] },
      nothing: undefined,
    };
    let pauses = 0;
    const breathe = async () => {
      pauses += 1;
    };
    expect((await encodeInPieces(value, breathe)).equals(Buffer.from(JSON.stringify(value)))).toBe(true);
    expect(pauses).toBeGreaterThan(10);
    expect((await encodeInPieces({}, breathe)).toString()).toBe("{}");
  });
});

describe("a command that is held", () => {
  test("waits for a reader that reads nothing for longer than others may", async () => {
    const total = 2 * SANDBOX_LIMITS.execOutputMaxBytes;
    const json = JSON.stringify({ command: `yes | head -c ${total}`, output: "hold" });
    const headers = {
      authorization: `Bearer ${alice.key}`,
      accept: "text/event-stream",
      "content-type": "application/json",
    };
    const outgoing = request(`${alice.url}/v1/threads/held/exec`, { method: "POST", headers });
    const response = await new Promise<import("node:http").IncomingMessage>((resolve, reject) => {
      outgoing.once("response", resolve).once("error", reject).end(json);
    });
    await sleep(4 * BODY_STALL_MS);
    const parts: Buffer[] = [];
    for await (const part of response) parts.push(part as Buffer);
    const events = await allEvents(new Response(Buffer.concat(parts)));
    expect(events.map(({ event }) => event)).not.toContain("gap");
    expect(outputOf(events, "stdout").length).toBe(total);
    expect(events.at(-1)?.event).toBe("exit");
  }, 60_000);

  test("cannot be waited for without a reader", async () => {
    const json = { command: "true", output: "hold" };
    const refused = await alice.ask<{ error: { code: string } }>(422, "POST", "/v1/threads/held/exec", { json });
    expect(refused.error.code).toBe("invalid_request");
  });
});

describe("exec with listeners", () => {
  test("gives whole characters as they come, and waits for its listener, in the library and in the client", async () => {
    const client = new SandlotClient({ url: stage.gateway.url, apiKey: alice.key });
    for (const source of [client, stage.fleet]) {
      await using lease = await source.acquire({ thread: "live" });
      const seen: string[] = [];
      const errors: string[] = [];
      const result = await lease.sandbox.exec(
        "printf '\\303'; sleep 0.1; printf '\\266 one'; sleep 0.1; echo two >&2; exit 3",
        {
          onStdout: async (text) => {
            await sleep(10);
            seen.push(text);
          },
          onStderr: (text) => errors.push(text),
        },
      );
      expect(seen.join("")).toBe("ö one");
      expect(seen.length).toBeGreaterThan(0);
      expect(errors).toEqual(["two\n"]);
      expect(result).toMatchObject({ status: "completed", exitCode: 3, stdout: "ö one", stderr: "two\n" });
      expect(result.omitted).toBeUndefined();
    }
  });

  test("keeps the end for the result, and counts what is before it", async () => {
    await using lease = await stage.fleet.acquire({ thread: "live" });
    let received = 0;
    const result = await lease.sandbox.exec(`yes ö | head -c 3000000`, {
      onStdout: (text) => {
        received += Buffer.byteLength(text);
      },
      outputMaxBytes: 100_001,
    });
    expect(received).toBe(3_000_000);
    const held = Buffer.byteLength(result.stdout);
    expect(result.stdout).not.toContain("\ufffd");
    expect([held + (result.omitted?.stdoutBytes ?? 0), result.stdoutDroppedBytes]).toEqual([3_000_000, 0]);
    expect(held).toBeLessThanOrEqual(100_001);
  });

  test("ends the command when a listener throws, when it is aborted, or when its time is over", async () => {
    await using lease = await stage.fleet.acquire({ thread: "live" });
    const { sandbox } = lease;
    const onStdout = () => {
      throw new Error("enough");
    };
    await expect(sandbox.exec("yes", { onStdout, execId: "thrown" })).rejects.toThrow("enough");
    const controller = new AbortController();
    const aborted = sandbox.exec("sleep 30; echo late", { onStdout, execId: "aborted", signal: controller.signal });
    await sleep(100);
    controller.abort(new Error("no more"));
    await expect(aborted).rejects.toThrow("no more");
    const late = await sandbox.exec("sleep 30", { onStdout, execId: "late", timeoutMs: 200 });
    expect(late.status).toBe("timed_out");
    const running = (await sandbox.execs.list()).filter(({ status }) => status === "running");
    expect(running).toEqual([]);
  });
});
