/** Mounts of one acquire: places that a blueprint may not use, what a double means, and what is refused. */

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandlotError } from "@sandlot/contract";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openFleet } from "../../../src/open-fleet.ts";
import { hasBubblewrap } from "../../gateway/support/gateway-process.ts";

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => "it resolved",
    (error: unknown) => (isSandlotError(error) ? error.code : String(error)),
  );

describe.skipIf(!hasBubblewrap)("mounts of an acquire (skipped where bubblewrap is not installed)", () => {
  let place: string;
  let host: (name: string, content: string) => string;

  beforeEach(() => {
    place = mkdtempSync(join(tmpdir(), "sl-mounts-"));
    host = (name, content) => {
      const path = join(place, name);
      mkdirSync(path, { recursive: true });
      writeFileSync(join(path, "who"), content);
      return path;
    };
  });
  afterEach(() => rmSync(place, { recursive: true, force: true }));

  it("take the places of Sandlot's own, and win over the blueprint's and the skills'", async () => {
    const skills = join(place, "skills");
    host("skills/custom", "the fleet's");
    host("skills/public", "public");
    const configured = host("configured", "configured");
    const blueprint = { mounts: [{ hostPath: configured, sandboxPath: "/mnt/data", readOnly: true }] };
    const config = { home: join(place, "home"), backend: "local" as const, blueprints: { default: blueprint } };
    await using fleet = await openFleet({ ...config, skills: { hostPath: skills } });
    const extra = (name: string, sandboxPath: string, readOnly: boolean) => ({
      ...{ hostPath: host(name, name), sandboxPath, readOnly, replaces: true },
    });
    const mounts = [
      extra("acp", "/mnt/acp-workspace", true),
      extra("custom", "/mnt/skills/custom", true),
      extra("data", "/mnt/data", false),
    ];
    {
      await using lease = await fleet.acquire({ thread: "t1", mounts });
      const script = "cat /mnt/acp-workspace/who /mnt/skills/custom/who /mnt/skills/public/who /mnt/data/who";
      expect((await lease.sandbox.exec(script)).stdout).toBe("acpcustompublicdata");
      expect((await lease.sandbox.exec("echo x > /mnt/acp-workspace/new")).exitCode).not.toBe(0);
      await lease.sandbox.exec("echo -n written > /mnt/data/who");
      expect(readFileSync(join(place, "data/who"), "utf8")).toBe("written");
      // The same mounts are the same sandbox, in any order; others are not.
      await using again = await fleet.acquire({ thread: "t1", mounts: [...mounts].reverse() });
      expect(again.sandbox.id).toBe(lease.sandbox.id);
      await using plain = await fleet.acquire({ thread: "t1" });
      expect(plain.sandbox.id).toBe(lease.sandbox.id);
      expect(await codeOf(fleet.acquire({ thread: "t1", mounts: mounts.slice(1) }))).toBe("blueprint_mismatch");
    }
    await using other = await fleet.acquire({ thread: "t2" });
    expect((await other.sandbox.exec("cat /mnt/skills/custom/who /mnt/data/who")).stdout).toBe("the fleet'sconfigured");
    await other.sandbox.exec("echo mine > /mnt/acp-workspace/new");
    await fleet.close({ destroy: true });
  }, 60_000);

  it("are refused at other reserved places, without leave to replace, and by a backend without mounts", async () => {
    await using fleet = await openFleet({ home: join(place, "home"), backend: "local" });
    const hostPath = host("some", "some");
    const ask = (sandboxPath: string, replaces: boolean) =>
      codeOf(fleet.acquire({ thread: "t1", mounts: [{ hostPath, sandboxPath, readOnly: true, replaces }] }));
    for (const sandboxPath of ["/mnt/user-data", "/mnt/user-data/x", "/mnt/skills", "/mnt/acp-workspace/x", "/etc"])
      expect([sandboxPath, await ask(sandboxPath, true)]).toEqual([sandboxPath, "mount_refused"]);
    for (const sandboxPath of ["/mnt/acp-workspace", "/mnt/skills/custom"])
      expect([sandboxPath, await ask(sandboxPath, false)]).toEqual([sandboxPath, "mount_refused"]);
    expect(await fleet.list()).toEqual([]);
    await using memory = await openFleet({ home: join(place, "memory"), backend: "memory", store: { type: "memory" } });
    const mounts = [{ hostPath, sandboxPath: "/mnt/x", readOnly: true }];
    expect(await codeOf(memory.acquire({ thread: "t1", mounts }))).toBe("capability_missing");
  }, 60_000);
});
