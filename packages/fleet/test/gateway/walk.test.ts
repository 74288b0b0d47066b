/** The everyday walk: a lease, a command, a file, the release. */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { allEvents, outputOf } from "./support/sse.ts";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let alice: Caller;

beforeAll(async () => {
  stage = await openStage();
  alice = await stage.user("alice");
});
afterAll(() => stage.done());

describe("leases", () => {
  test("are given, renewed, and released more than once", async () => {
    const lease = await alice.ask<{ leaseId: string; expiresAt: number; recovery: { kind: string } }>(
      201,
      "POST",
      "/v1/threads/lease-1/leases",
      { json: { purpose: "test", ttlMs: 60_000 } },
    );
    expect(Object.keys(lease).sort()).toEqual(["expiresAt", "generation", "leaseId", "recovery", "sandboxId"]);
    expect(lease.recovery.kind).toBe("empty");
    const renewed = await alice.ask<{ expiresAt: number }>(200, "PUT", `/v1/leases/${lease.leaseId}`);
    expect(renewed.expiresAt).toBeGreaterThanOrEqual(lease.expiresAt);
    await alice.ask(204, "DELETE", `/v1/leases/${lease.leaseId}`);
    await alice.ask(204, "DELETE", `/v1/leases/${lease.leaseId}`);
    await alice.ask(404, "PUT", `/v1/leases/${lease.leaseId}`);
  });

  test("need no body", async () => {
    const { leaseId } = await alice.ask(201, "POST", "/v1/threads/lease-2/leases");
    await alice.ask(204, "DELETE", `/v1/leases/${leaseId}`);
  });

  test("that are not renewed end by themselves", async () => {
    const { leaseId } = await alice.ask(201, "POST", "/v1/threads/lease-3/leases", { json: { ttlMs: 1_000 } });
    await expect
      .poll(async () => JSON.stringify(await stage.operator.ask(200, "GET", "/v1/sandboxes")))
      .not.toContain(leaseId);
    await alice.ask(404, "PUT", `/v1/leases/${leaseId}`);
  });
});

describe("exec", () => {
  test("answers with the library's result", async () => {
    const result = await alice.ask(200, "POST", "/v1/threads/t1/exec", {
      json: { command: "echo out; echo err >&2; exit 3" },
    });
    expect(result).toMatchObject({ status: "completed", exitCode: 3, stdout: "out\n", stderr: "err\n", signal: null });
  });

  test("takes a list of arguments, a directory, variables and stdin", async () => {
    const json = { argv: ["cat", "-"], stdin: "hello", env: { NAME: "x" }, cwd: "/mnt/user-data/outputs" };
    expect(await alice.ask(200, "POST", "/v1/threads/t1/exec", { json })).toMatchObject({
      stdout: "hello",
      exitCode: 0,
    });
  });

  test("takes a list in `command`, as the library does", async () => {
    const json = { command: ["printf", "%s|", "a b", "$HOME"] };
    expect(await alice.ask(200, "POST", "/v1/threads/t1/exec", { json })).toMatchObject({ stdout: "a b|$HOME|" });
    await alice.ask(422, "POST", "/v1/threads/t1/exec", { json: { command: [] } });
    await alice.ask(422, "POST", "/v1/threads/t1/exec", { json: { command: [1] } });
  });

  test("closing the stdin of a command that has ended is fine; writing to it is not", async () => {
    const json = { command: "true", background: true, execId: "over" };
    await alice.ask(202, "POST", "/v1/threads/t1/exec", { json });
    await expect
      .poll(async () => {
        const { execs } = await alice.ask<{ execs: { execId: string; status: string }[] }>(
          200,
          "GET",
          "/v1/threads/t1/execs",
        );
        return execs.find(({ execId }) => execId === "over")?.status;
      })
      .toBe("completed");
    await alice.ask(204, "POST", "/v1/threads/t1/execs/over/stdin", { json: { data: "", end: true } });
    await alice.ask(409, "POST", "/v1/threads/t1/execs/over/stdin", { json: { data: "late" } });
  });

  test("streams events with offsets", async () => {
    const response = await alice.call("POST", "/v1/threads/t1/exec", {
      json: { command: "echo one; echo two >&2" },
      headers: { accept: "text/event-stream" },
    });
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toContain("text/event-stream");
    const events = await allEvents(response);
    expect(events.at(0)?.event).toBe("start");
    expect(events.at(-1)?.event).toBe("exit");
    expect(events.at(-1)?.data).toMatchObject({ exitCode: 0, status: "completed", stdoutBytes: 4, stderrBytes: 4 });
    expect(events.find(({ event }) => event === "stdout")?.data).toEqual({
      stream: "stdout",
      offset: 0,
      base64: Buffer.from("one\n").toString("base64"),
    });
    expect(outputOf(events, "stderr")).toBe("two\n");
  });

  test("in the background is followed, fed, listed and ended by its id", async () => {
    const { execId } = await alice.ask<{ execId: string }>(202, "POST", "/v1/threads/t1/exec", {
      json: { command: "cat", background: true },
    });
    const execs = await alice.ask<{ execs: { execId: string; status: string }[] }>(200, "GET", "/v1/threads/t1/execs");
    expect(execs.execs.find((one) => one.execId === execId)?.status).toBe("running");
    await alice.ask(204, "POST", `/v1/threads/t1/execs/${execId}/stdin`, { json: { data: "fed\n" } });
    await alice.ask(200, "POST", `/v1/threads/t1/execs/${execId}/wait`, { json: { pattern: "fed", timeoutMs: 5_000 } });
    await alice.ask(204, "POST", `/v1/threads/t1/execs/${execId}/stdin`, { json: { base64: "YWdhaW4=", end: true } });
    const raw = await alice.call("GET", `/v1/threads/t1/execs/${execId}/output`);
    expect(await raw.text()).toBe("fed\nagain");
    const resumed = await alice.call("GET", `/v1/threads/t1/execs/${execId}/output?stdoutOffset=4&stderrOffset=0`, {
      headers: { accept: "text/event-stream" },
    });
    const events = await allEvents(resumed);
    expect(outputOf(events, "stdout")).toBe("again");
    expect(events.map(({ event }) => event)).not.toContain("start");
    const after = await alice.call("GET", `/v1/threads/t1/execs/${execId}/output`, {
      headers: { accept: "text/event-stream", "last-event-id": "6.0" },
    });
    expect(outputOf(await allEvents(after), "stdout")).toBe("ain");
    await alice.ask(200, "POST", `/v1/threads/t1/execs/${execId}/signal`, { json: { signal: "SIGTERM" } });
  });

  test("is signalled", async () => {
    const json = { command: "sleep 60", background: true, execId: "sleeper" };
    await alice.ask(202, "POST", "/v1/threads/t1/exec", { json });
    const reply = await alice.ask(200, "POST", "/v1/threads/t1/execs/sleeper/signal", { json: { signal: "SIGTERM" } });
    expect(reply).toEqual({ delivered: true });
    const events = await allEvents(
      await alice.call("GET", "/v1/threads/t1/execs/sleeper/output", { headers: { accept: "text/event-stream" } }),
    );
    expect(events.at(-1)?.data).toMatchObject({ exitCode: null, status: "killed" });
  });

  test("with the same id runs once", async () => {
    const json = {
      command: "echo x >> /mnt/user-data/outputs/count; cat /mnt/user-data/outputs/count",
      execId: "once",
    };
    const first = await alice.ask(200, "POST", "/v1/threads/t1/exec", { json });
    const second = await alice.ask(200, "POST", "/v1/threads/t1/exec", { json });
    expect(second).toEqual(first);
    await alice.ask(409, "POST", "/v1/threads/t1/exec", { json: { ...json, command: "echo other" } });
  });

  test("asks about no thread that has no sandbox", async () => {
    expect(await alice.ask(200, "GET", "/v1/threads/nothing/execs")).toEqual({ execs: [] });
    await alice.ask(404, "GET", "/v1/threads/nothing/execs/none/output");
    await alice.ask(404, "POST", "/v1/threads/nothing/execs/none/signal", { json: { signal: "SIGTERM" } });
    const { sandboxes } = await stage.operator.ask<{ sandboxes: { thread: string }[] }>(200, "GET", "/v1/sandboxes");
    expect(sandboxes.map(({ thread }) => thread)).not.toContain("nothing");
  });

  test("ends when its caller goes away", async () => {
    const gone = new AbortController();
    const call = alice.call("POST", "/v1/threads/gone/exec", { json: { command: "sleep 60" }, signal: gone.signal });
    await expect
      .poll(async () => (await alice.ask<{ execs: unknown[] }>(200, "GET", "/v1/threads/gone/execs")).execs.length)
      .toBe(1);
    gone.abort();
    await expect(call).rejects.toThrow();
    await expect
      .poll(async () => {
        const { execs } = await alice.ask<{ execs: { status: string }[] }>(200, "GET", "/v1/threads/gone/execs");
        return execs.filter(({ status }) => status === "running").length;
      })
      .toBe(0);
  });
});

describe("threads", () => {
  test("are deleted with all they have, and again", async () => {
    await alice.ask(200, "POST", "/v1/threads/short/exec", { json: { command: "echo kept > kept" } });
    expect(await alice.ask(200, "DELETE", "/v1/threads/short")).toEqual({ outcome: "stopped" });
    await alice.ask(200, "DELETE", "/v1/threads/short");
    const result = await alice.ask(200, "POST", "/v1/threads/short/exec", { json: { command: "ls" } });
    expect(result.stdout).toBe("");
  });

  test("in use are deleted only by force", async () => {
    const { leaseId } = await alice.ask(201, "POST", "/v1/threads/used/leases");
    const body = await alice.ask<{ error: { code: string } }>(409, "DELETE", "/v1/threads/used");
    expect(body.error.code).toBe("sandbox_in_use");
    await alice.ask(200, "DELETE", "/v1/threads/used?force=true");
    await alice.ask(204, "DELETE", `/v1/leases/${leaseId}`);
  });

  test("are branched to new ones", async () => {
    await alice.ask(200, "POST", "/v1/threads/trunk/exec", {
      json: { command: "mkdir -p a/b; echo deep > a/b/c; echo out > /mnt/user-data/outputs/o; ln -s a link" },
    });
    const reply = await alice.ask(201, "POST", "/v1/threads/trunk/branch", { json: { to: "twig" } });
    expect(reply).toEqual({ thread: "twig", fileCount: 3, sizeBytes: 9, skipped: [] });
    const result = await alice.ask(200, "POST", "/v1/threads/twig/exec", {
      json: { command: "cat a/b/c /mnt/user-data/outputs/o; ls" },
    });
    expect(result.stdout).toBe("deep\nout\na\nlink\n");
    await alice.ask(409, "POST", "/v1/threads/trunk/branch", { json: { to: "twig" } });
    await alice.ask(409, "POST", "/v1/threads/trunk/branch", { json: { to: "trunk" } });
  });
});
