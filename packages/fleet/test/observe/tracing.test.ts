/** Spans, received by a provider that a test registers through the API alone, as an SDK would. */

import { type Attributes, context, trace } from "@opentelemetry/api";
import { afterAll, expect, test } from "vitest";
import { isTracing } from "../../src/observe/tracing.ts";
import { openStage } from "../gateway/support/stage.ts";
import { collect, type Seen } from "./span-collector.ts";

/** Registered once, as in a process: a tracer keeps the first provider that it finds. */
let seen: Seen[] = [];
afterAll(() => {
  trace.disable();
  context.disable();
});

test("without a provider nothing is made, and nothing is missing", async () => {
  expect(isTracing()).toBe(false);
  const stage = await openStage();
  try {
    const alice = await stage.user("alice");
    await alice.ask(200, "POST", "/v1/threads/quiet/exec", { json: { command: "true" } });
  } finally {
    await stage.done();
  }
  seen = collect();
  expect([isTracing(), seen]).toEqual([true, []]);
});

test("a request, its acquire, the steps of it and the command are one tree", async () => {
  const stage = await openStage();
  try {
    const alice = await stage.user("alice");
    seen.length = 0;
    await alice.ask(200, "POST", "/v1/threads/traced/exec", { json: { command: "exit 3" } });
    const tree = seen.map(({ name, parent }) => `${parent ?? "-"} > ${name}`);
    const request = "POST /v1/threads/:thread/exec";
    expect(tree).toEqual([
      `- > ${request}`,
      `${request} > sandlot.acquire`,
      "sandlot.acquire > sandlot.create",
      "sandlot.acquire > sandlot.attach",
      `${request} > sandlot.exec`,
    ]);
    expect(seen.every(({ ended, failed }) => ended && !failed)).toBe(true);
    const attributes = Object.assign({}, ...seen.map((one) => one.attributes)) as Attributes;
    expect(attributes).toMatchObject({
      "sandlot.thread": "traced",
      "sandlot.purpose": "gateway: exec",
      "sandlot.recovery": "empty",
      "process.exit.code": 3,
      "http.response.status_code": 200,
    });
    expect(JSON.stringify(attributes)).not.toContain("exit 3");
  } finally {
    await stage.done();
  }
});

test("a blank is bound in a span, and what fails is an error of its span", async () => {
  const stage = await openStage({ fleet: { pool: { default: 1 } } });
  try {
    const alice = await stage.user("alice");
    await expect.poll(async () => (await stage.fleet.list()).map(({ state }) => state)).toEqual(["blank"]);
    seen.length = 0;
    await alice.ask(200, "POST", "/v1/threads/bound/exec", { json: { command: "true" } });
    expect(seen.map(({ name }) => name)).toContain("sandlot.bind");
    await expect(stage.fleet.acquire({ thread: "bound", user: "alice", blueprint: "none" })).rejects.toThrow();
    expect(seen.at(-1)).toMatchObject({ name: "sandlot.acquire", failed: true, ended: true });
  } finally {
    await stage.done();
  }
});
