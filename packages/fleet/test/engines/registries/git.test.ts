/** git over https with a bound secret: git's own HTTP backend, the real proxy, a local sandbox that holds no secret. */

import { describe, expect, it } from "vitest";
import { stageProblem } from "../../host/egress/stage/stage.ts";
import { inNetwork } from "./in-network.ts";

interface Outcome {
  readonly results: readonly { readonly exitCode: number | null; readonly output: string }[];
  readonly found: readonly string[];
  readonly proxyPeakBytes: number;
  readonly sizeBytes: number;
}

const PROGRAM = new URL("./git-program.ts", import.meta.url);
const MIB = 1_024 * 1_024;
const URL_INSIDE = "https://index.test:8443/private.git";
const AUTHOR = "git config --global user.name t; git config --global user.email t@example.org";
const problem = stageProblem("bwrap", "git");

describe.skipIf(problem !== null)(`git with a bound secret (${problem ?? "in a network namespace"})`, () => {
  it.each(["basic", "bearer"])("clones, pushes and fetches with %s", { timeout: 300_000 }, async (kind) => {
    const commands = [
      `${AUTHOR}; cd && git clone ${URL_INSIDE} a 2>&1`,
      "cd ~/a && echo one > file && git add . && git commit -qm one && git push origin HEAD:main 2>&1",
      `cd && git clone ${URL_INSIDE} b && cat b/file`,
      "cd ~/a && echo two > file && git commit -qam two && git push origin HEAD:main && cd ~/b && git pull && cat file",
    ];
    const { results } = await inNetwork<Outcome>(PROGRAM, { kind, commands, attempts: false });
    expect(
      results.map(({ exitCode }) => exitCode),
      JSON.stringify(results),
    ).toEqual([0, 0, 0, 0]);
    expect(results[2]!.output).toContain("one");
    expect(results[3]!.output).toContain("two");
  });

  it("pushes 200 MB in a stream, and fifty attempts find no secret", { timeout: 900_000 }, async () => {
    const commands = [
      `${AUTHOR}; git config --global core.compression 0; cd && git clone ${URL_INSIDE} a && cd a && head -c 200M /dev/urandom > big && git add . && git commit -qm big`,
      "cd ~/a && git push origin HEAD:main 2>&1",
      "grep -rs pw-7Qz ~ | head",
    ];
    const order = { kind: "basic", commands, attempts: true };
    const { results, found, proxyPeakBytes, sizeBytes } = await inNetwork<Outcome>(PROGRAM, order);
    expect(results[1], JSON.stringify(results)).toMatchObject({ exitCode: 0 });
    expect(sizeBytes).toBeGreaterThan(200 * MIB);
    expect(proxyPeakBytes).toBeGreaterThan(0);
    expect(proxyPeakBytes).toBeLessThan(180 * MIB);
    expect(results[2]!.output.trim()).toBe("");
    expect(found).toEqual([]);
  });

  it("a wrong secret is a clear error and no question", { timeout: 300_000 }, async () => {
    const order = { kind: "wrong", commands: [`git clone ${URL_INSIDE} a 2>&1`], attempts: false };
    const { results } = await inNetwork<Outcome>(PROGRAM, order);
    expect(results[0]!.exitCode).not.toBe(0);
    expect(results[0]!.output).toContain("refuses the bound secret forge");
    expect(results[0]!.output).toContain("network.secrets");
    expect(results[0]!.output).not.toContain("Username");
  });
});
