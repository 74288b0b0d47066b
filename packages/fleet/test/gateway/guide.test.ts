/** The session of `docs/guides/http.md`, with curl and a shell, against a gateway. Every line must succeed. */

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openStage } from "./support/stage.ts";

const GUIDE = join(import.meta.dirname, "../../../../docs/guides/http.md");

test("the guide's session works from the first line to the last", async () => {
  const guide = await readFile(GUIDE, "utf8");
  const blocks = [...guide.matchAll(/^```sh\n([\s\S]*?)^```/gm)].map(([, block]) => block);
  expect(blocks.length).toBeGreaterThan(8);
  const stage = await openStage();
  const folder = await mkdtemp(join(tmpdir(), "sandlot-guide-"));
  try {
    const shell = spawn("bash", ["-euxo", "pipefail", "-c", blocks.join("\n")], {
      cwd: folder,
      env: { PATH: process.env.PATH ?? "", SANDLOT_URL: stage.gateway.url, SANDLOT_HOME: stage.home },
    });
    let told = "";
    for (const stream of [shell.stdout, shell.stderr]) stream.on("data", (piece) => (told += piece));
    const code = await new Promise((resolve) => shell.once("close", resolve));
    expect(code === 0 ? "" : told.slice(-2_000)).toBe("");
  } finally {
    await rm(folder, { recursive: true });
    await stage.done();
  }
}, 60_000);
