/** Terminals. A backend without them must say so; the other cases do not apply to it. */

import type { Terminal } from "@sandlot/contract";
import { type BackendCase, type BackendStage, withCapability } from "./stage.ts";

const SIZE = { columns: 80, rows: 24 };

export const terminalCases: readonly BackendCase[] = withCapability(
  "terminal",
  (sandbox) => sandbox.terminals.open(SIZE),
  [
    {
      name: "a program in it sees a terminal of the asked size",
      run: async (stage) => {
        const { terminals } = await stage.sandbox();
        const terminal = await terminals.open({ ...SIZE, command: ["sh", "-c", "test -t 1 && stty size"] });
        stage.expect(await shown(terminal)).toContain("24 80");
        stage.expect(await terminal.ended).toEqual({ exitCode: 0, signal: null });
      },
    },
    {
      name: "what is typed arrives, and a resize is seen",
      run: async (stage) => {
        const { terminals } = await stage.sandbox();
        const terminal = await terminals.open({ ...SIZE, command: ["sh"] });
        const text = shown(terminal);
        terminal.resize(100, 40);
        terminal.write("stty size; echo $((20 + 3)); exit 5\n");
        stage.expect(await text).toMatch(/40 100[\s\S]*23/);
        stage.expect(await terminal.ended).toEqual({ exitCode: 5, signal: null });
      },
    },
    {
      name: "without a command it is a shell in the workspace",
      run: async (stage) => {
        const { terminals } = await stage.sandbox();
        const terminal = await terminals.open(SIZE);
        const text = shown(terminal);
        terminal.write("pwd; exit\n");
        stage.expect(await text).toContain("/mnt/user-data/workspace");
      },
    },
    {
      name: "it outlives its connection and is attached to again",
      run: async (stage) => {
        const { terminals } = await stage.sandbox();
        const first = await terminals.open({ ...SIZE, terminalId: "mine", command: ["sh"] });
        first.write("echo one-$((1 + 1))\n");
        await shownUntil(stage, first, "one-2");
        await first.detach();
        stage.expect((await terminals.list()).map(({ terminalId }) => terminalId)).toEqual(["mine"]);
        const again = await terminals.attach("mine");
        const text = shown(again);
        again.write("echo two-$((1 + 2)); exit\n");
        stage.expect(await text).toMatch(/one-2[\s\S]*two-3/);
      },
    },
    {
      name: "closing hangs up on what runs in it",
      run: async (stage) => {
        const { terminals } = await stage.sandbox();
        const terminal = await terminals.open({ ...SIZE, terminalId: "gone", command: ["sleep", "60"] });
        await terminals.close("gone");
        stage.expect((await terminal.ended)?.exitCode ?? null).toBe(null);
        await stage.eventually("the list is empty", async () => (await terminals.list()).length === 0);
        await terminals.close("gone");
        await stage.rejects(terminals.attach("gone"), "terminal_not_found");
      },
    },
    {
      name: "an open terminal counts as activity",
      run: async (stage) => {
        const made = await stage.make();
        const { sandbox } = await stage.attach(made.target);
        const count = async () => (await stage.backend.activity(made.target.ref, stage.signal)).openTerminals;
        stage.expect(await count()).toBe(0);
        await sandbox.terminals.open({ ...SIZE, terminalId: "t", command: ["sleep", "60"] });
        stage.expect(await count()).toBe(1);
        await sandbox.terminals.close("t");
        await stage.eventually("it is closed", async () => (await count()) === 0);
      },
    },
  ],
);

async function shown(terminal: Terminal): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const { bytes } of terminal.output) text += decoder.decode(bytes, { stream: true });
  return text;
}

async function shownUntil(stage: BackendStage, terminal: Terminal, wanted: string): Promise<void> {
  let text = "";
  for await (const { bytes } of terminal.output) {
    text += new TextDecoder().decode(bytes);
    if (text.includes(wanted)) return;
  }
  stage.expect(text).toContain(wanted);
}
