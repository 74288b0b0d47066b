/** The home on the local backend: its path, its programs, its budget, and what it is never used for. */

import { readFileSync } from "node:fs";
import { KEPT_HOME, TEMPORARY_HOME } from "@sandlot/contract";
import { afterAll, describe, expect, it } from "vitest";
import { onHarness } from "../on-harness.ts";
import { plant, ranPlanted, useEverything } from "../planted-programs.ts";
import { blueprint, initOf, onStage, openHarness, removeDaemon } from "./local-harness.ts";

afterAll(removeDaemon);

const OWN = `mkdir -p ~/.local/bin && printf '#!/bin/sh\\necho own' > ~/.local/bin/own && chmod +x ~/.local/bin/own`;
const SHOW = `readlink /home/sandbox; awk -F: '$1 == "sandbox" { print $6 }' /etc/passwd; echo ~sandbox; env -u HOME sh -c 'cd; echo ~sandbox'`;

describe("the home of a local sandbox", () => {
  it("is what the account file, the link and the shell say, in a thread's own sandbox and in a blank", () =>
    onStage(async (stage) => {
      const { sandbox } = await stage.attach((await stage.make()).target);
      expect((await sandbox.exec(SHOW)).stdout.trim().split("\n")).toEqual(Array(4).fill(KEPT_HOME));
      expect((await sandbox.exec("stat -c '%a %U' ~ && touch /home/sandbox/x && ls ~/x")).stdout).toBe(
        `700 sandbox\n${KEPT_HOME}/x\n`,
      );
      const blank = await stage.attach((await stage.make(null)).target);
      expect((await blank.sandbox.exec(SHOW, { cwd: "/" })).stdout.trim().split("\n")).toEqual(
        Array(4).fill(KEPT_HOME),
      );
    }));

  it("is in memory where the blueprint says so, under the same link", () =>
    onStage(async (stage) => {
      const made = await stage.make(stage.newKey(), { blueprint: { ...blueprint, home: "temporary" } });
      const { sandbox } = await stage.attach(made.target);
      expect((await sandbox.exec(SHOW)).stdout.trim().split("\n")).toEqual(Array(4).fill(TEMPORARY_HOME));
      expect((await sandbox.exec("stat -f -c %T ~; stat -c %a ~; touch /home/sandbox/x; ls ~")).stdout).toBe(
        "tmpfs\n700\nx\n",
      );
      expect((await sandbox.exec(`${OWN}; own; head -c 100M /dev/zero > ~/big`)).stderr).toContain("No space left");
    }));

  it("has programs that every kind of command finds, also in the next sandbox", () =>
    onStage(async (stage) => {
      const key = stage.newKey();
      const first = await stage.make(key);
      await (await stage.attach(first.target)).sandbox.exec(OWN);
      await stage.kill(first);
      await stage.destroy(first);
      const { sandbox } = await stage.attach((await stage.make(key)).target);
      expect((await sandbox.exec("own")).stdout).toBe("own\n");
      expect((await sandbox.exec(["own"])).stdout).toBe("own\n");
      const { sessionId } = await sandbox.sessions.open();
      expect((await sandbox.sessions.exec(sessionId, "own")).stdout).toBe("own\n");
      const terminal = await sandbox.terminals.open({ columns: 80, rows: 24, command: ["own"] });
      let shown = "";
      for await (const { bytes } of terminal.output) shown += new TextDecoder().decode(bytes);
      expect(shown).toContain("own");
      const interactive = await sandbox.terminals.open({ columns: 80, rows: 24 });
      interactive.write("own; exit\n");
      let typed = "";
      for await (const { bytes } of interactive.output) typed += new TextDecoder().decode(bytes);
      expect(typed).toContain("own\r\n");
    }));

  it("has no program that the daemon or the host runs for itself", () =>
    onStage(async (stage) => {
      const key = stage.newKey();
      await plant(stage, key);
      const made = await stage.make(key);
      await useEverything(stage, made);
      expect(await ranPlanted(stage, made)).toBe("");
      // Without a home, Node looks up no module below it, and a shell reads no file of it.
      expect(readFileSync(`/proc/${initOf(made.target.ref)}/environ`, "latin1")).not.toContain("HOME=");
      // The daemon starts once more, beside the planted programs.
      const { sandbox } = await stage.attach(made.target);
      await sandbox.exec("kill -9 -1").catch(() => null);
      await stage.eventually("the daemon answers again", async () => {
        const again = await stage.attach(made.target).catch(() => null);
        return (await again?.sandbox.exec(":").catch(() => null))?.exitCode === 0;
      });
      await useEverything(stage, made);
      expect(await ranPlanted(stage, made)).toBe("");
    }));

  it("counts against the disk budget, under both of its names", async () => {
    const limited = { ...blueprint, limits: { diskBytes: 1_000_000 } };
    await onHarness(await openHarness(), limited, async (stage) => {
      const { sandbox } = await stage.attach((await stage.make()).target);
      const big = new Uint8Array(1_100_000);
      for (const path of [`${KEPT_HOME}/big`, "/home/sandbox/big"])
        await stage.rejects(sandbox.files.write(path, big), "disk_limit_exceeded");
      await sandbox.files.write(`${KEPT_HOME}/small`, big.subarray(0, 600_000));
      await stage.rejects(
        sandbox.files.write("/mnt/user-data/workspace/small", big.subarray(0, 600_000)),
        "disk_limit_exceeded",
      );
    });
  });
});
