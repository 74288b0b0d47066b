/** Names and errors that a program inside a sandbox has chosen, printed by the command line on a person's terminal. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FileListing } from "@sandlot/contract";
import { afterAll, beforeAll, expect, it } from "vitest";
import { serve } from "../../src/gateway/index.ts";
import { openFleetAndHost } from "../../src/open-fleet.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { runHere } from "./run-here.ts";

const root = mkdtempSync(join(tmpdir(), "sln-"));
const home = join(root, "home");
/** Clears the screen; and, in UTF-8, a control character of the second block moves the cursor up. */
const NAME = "a\u001b[2J\u009b1Ab";
let served: Awaited<ReturnType<typeof serve>>;

beforeAll(async () => {
  const open = () => openFleetAndHost({ home, backend: "local" });
  served = await serve({ openFleet: open, home, gateway: { port: 0 }, world: systemWorld() });
  await using lease = await served.fleet.acquire({ thread: "t1" });
  await lease.sandbox.exec(["mkdir", "d"]);
  await lease.sandbox.exec(["ln", "-s", "/etc/passwd", `d/${NAME}`]);
});

afterAll(async () => {
  await served.close({ destroy: true });
  rmSync(root, { recursive: true });
});

const cli = (...args: string[]) => runHere(args, { SANDLOT_HOME: home, SANDLOT_URL: served.url });
const lines = (text: string) => text.replaceAll("\n", "");

it.each([
  ["ls", () => cli("ls", "t1:d")],
  ["cp, which leaves out a link", () => cli("cp", "t1:d", join(root, "copy"))],
  ["cp of what is not there", () => cli("cp", `t1:d/${NAME}/none`, join(root, "none"))],
])("%s prints no control character, and shows the name", async (_, command) => {
  const { stdout, stderr } = await command();
  expect(lines(stdout + stderr)).not.toMatch(/\p{Cc}/u);
  expect(stdout + stderr).toContain("a\\x1b[2J\\x9b1Ab");
});

it("ls --json prints no control character either, and is the same JSON", async () => {
  const { stdout } = await cli("ls", "t1:d", "--json");
  expect(lines(stdout)).not.toMatch(/\p{Cc}/u);
  const { entries } = JSON.parse(stdout) as FileListing;
  expect(entries.map(({ path }) => path)).toEqual([`/mnt/user-data/workspace/d/${NAME}`]);
});
