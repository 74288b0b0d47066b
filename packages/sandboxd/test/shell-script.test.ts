/** A session's script means the same to every shell. */

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { parseRecord, preludeFor, programFor } from "../src/sessions/shell-script.ts";

const SHELLS = ["/bin/dash", "/bin/bash", "/bin/busybox"].filter((path) => existsSync(path));

describe.each(SHELLS)("%s", (shell) => {
  test("reports each command, whatever it was", () => {
    const directory = mkdtempSync(join(tmpdir(), "sd-script-"));
    onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
    const at = (name: string) => join(directory, name);
    const commands = [
      "x=1; cd /usr",
      "echo 'open",
      "if",
      "(exit 7)",
      "echo $?",
      "break",
      "echo it\\'s $x $PWD",
      "exit 3",
    ];
    // A pipe without a reader would block the shell, so the records go to a file and the last check is removed.
    const script = commands
      .map((command, index) =>
        programFor({
          nonce: `n${index}`,
          command,
          lastStatus: command === "echo $?" ? 7 : 0,
          stdin: "/dev/null",
          stdout: at(`out ${index}`),
          stderr: at(`err'${index}`),
          statusPipe: at("status"),
        }).replace(/\[ -p .*\n$/, ""),
      )
      .join("");
    writeFileSync(at("script"), preludeFor("/") + script);
    const args = shell.endsWith("busybox") ? ["sh", at("script")] : [at("script")];
    expect(spawnSync(shell, args, { stdio: "ignore" }).status).toBe(3);
    const records = readFileSync(at("status"), "utf8").split("\0").slice(0, -1).map(parseRecord);
    expect(records.map((record) => record?.nonce)).toEqual(commands.slice(0, -1).map((_, index) => `n${index}`));
    expect(records.map((record) => record?.cwd)).toEqual(Array.from({ length: 7 }, () => "/usr"));
    expect(records.map((record) => record?.status)).toEqual([0, 2, 2, 7, 0, 0, 0]);
    expect(readFileSync(at("out 4"), "utf8")).toBe("7\n");
    expect(readFileSync(at("out 6"), "utf8")).toBe("it's 1 /usr\n");
    expect(readFileSync(at("err'1"), "utf8")).not.toBe("");
  });
});
