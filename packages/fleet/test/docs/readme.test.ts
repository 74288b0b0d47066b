/** The READMEs are right about the library: the first program runs, and prints the shown output. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import { openFleet } from "../../src/open-fleet.ts";
import { codeBlocks, read } from "./documents.ts";

const PROGRAM = "packages/fleet/test/docs/first-program.ts";

afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
});

describe("the first program", () => {
  test.each(["README.md", "packages/fleet/README.md"])("stands in %s", (path) => {
    expect(codeBlocks(path, "ts")).toContain(read(PROGRAM));
  });

  test("prints what the README says", async () => {
    const home = mkdtempSync(join(tmpdir(), "sandlot-readme-"));
    vi.stubEnv("SANDLOT_HOME", home);
    const lines: string[] = [];
    vi.spyOn(console, "log").mockImplementation((line: string) => void lines.push(`${line}\n`));
    try {
      await import("./first-program.ts");
      expect(codeBlocks("README.md", "text")).toContain(lines.join(""));
    } finally {
      rmSync(home, { recursive: true, force: true });
    }
  });
});

describe("a fleet", () => {
  test("installs no signal handlers while it is open", async () => {
    const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
    const counts = () => signals.map((name) => process.listenerCount(name));
    const before = counts();
    const home = join(tmpdir(), "sandlot-readme-signals");
    await using fleet = await openFleet({ home, backend: "memory", store: { type: "memory" } });
    await using lease = await fleet.acquire({ thread: "t1" });
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
    expect(counts()).toEqual(before);
  });
});
