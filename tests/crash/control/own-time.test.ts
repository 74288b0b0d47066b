/** A limit of own time ends a hang, and leaves a starved process its time. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { availableParallelism, setPriority } from "node:os";
import { expect, test } from "vitest";
import { withinOwnTime } from "./own-time.ts";

test("processes that hang use up their time", async () => {
  const outcome = await withinOwnTime(
    300,
    () => [process.pid],
    () => null,
  );
  expect(outcome.value).toBe(null);
  expect(outcome.wallMs - outcome.starvedMs).toBeGreaterThan(300);
});

test("what is there in time is found", async () => {
  let looks = 0;
  const outcome = await withinOwnTime(
    60_000,
    () => [],
    () => (looks++ > 2 ? "there" : null),
  );
  expect(outcome.value).toBe("there");
});

test("a process without a processor uses up nothing", async ({ skip }) => {
  if (!existsSync("/proc/self/schedstat")) skip("this system does not tell how long a process waits for a processor");
  // The first process counts with the lowest priority, against as many at the ordinary one as there are processors.
  const spin = () => spawn("/bin/sh", ["-c", "while :; do :; done"], { stdio: "ignore" });
  const [slow, ...others] = Array.from({ length: 2 * availableParallelism() + 1 }, spin);
  if (slow?.pid === undefined) throw new Error("it was not started");
  setPriority(slow.pid, 19);
  const { pid } = slow;
  try {
    const { value, wallMs, starvedMs } = await withinOwnTime(
      500,
      () => [pid],
      () => null,
    );
    expect(value).toBe(null);
    // It had less than a half of a processor.
    expect(starvedMs).toBeGreaterThan(wallMs / 2);
    expect(wallMs).toBeGreaterThan(900);
  } finally {
    for (const one of [slow, ...others]) {
      one.kill("SIGKILL");
      if (one.exitCode === null && one.signalCode === null) await once(one, "exit");
    }
  }
});
