/** The versions of the host's interpreters: asked once, and again when a program has changed. */

import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, it } from "vitest";
import { hostInterpreters } from "../../src/host/runtime/host-interpreters.ts";

const folder = mkdtempSync(join(tmpdir(), "sl-interpreters-"));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

it("are asked again after an upgrade, and only then", async () => {
  const [program, asked] = [join(folder, "python3"), join(folder, "asked")];
  const install = (version: string) => {
    rmSync(program, { force: true });
    writeFileSync(program, `#!/bin/sh\necho x >> ${asked}\necho Python ${version}\n`);
    chmodSync(program, 0o755);
  };
  install("3.11.2");
  const before = await hostInterpreters([program, join(folder, "ruby")]);
  expect(before.split("\n").slice(1)).toEqual([`${program} Python 3.11.2`, `${join(folder, "ruby")} absent`]);
  expect(await hostInterpreters([program, join(folder, "ruby")])).toBe(before);
  expect(readFileSync(asked, "utf8")).toBe("x\n");
  install("3.12.0");
  expect(await hostInterpreters([program])).toContain("Python 3.12.0");
});
