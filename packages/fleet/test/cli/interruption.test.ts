import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { interruptible } from "../../src/cli/interruption.ts";
import { runScript } from "./run-cli.ts";

const SCRIPT = fileURLToPath(new URL("./waits-for-signal.ts", import.meta.url));

const CODES = [
  ["SIGINT", 130],
  ["SIGTERM", 143],
  ["SIGHUP", 129],
] as const;

describe.each(CODES)("%s", (name, code) => {
  it("lets the command close what it has open", async () => {
    const ended = await runScript(SCRIPT, [], {
      onOutput: (stdout, kill) => stdout === "waiting\n" && kill(name),
    });
    expect(ended).toEqual({ code, signal: null, stdout: `waiting\nclosing after ${name}\nclosed\n`, stderr: "" });
  });

  it("ends the process when it comes again", async () => {
    const ended = await runScript(SCRIPT, ["--hang"], { onOutput: (_, kill) => kill(name) });
    expect(ended).toMatchObject({ code, signal: null, stdout: `waiting\nclosing after ${name}\n` });
  });
});

it("leaves no handlers behind, also after a failure", async () => {
  const before = process.listenerCount("SIGINT");
  await interruptible(async () => expect(process.listenerCount("SIGINT")).toBe(before + 1));
  await expect(interruptible(() => Promise.reject(new Error("no")))).rejects.toThrow("no");
  expect(process.listenerCount("SIGINT")).toBe(before);
});
