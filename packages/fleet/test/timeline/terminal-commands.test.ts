/** Commands in a terminal, told by its shell: from a real bash, in any pieces, and from hostile output. */

import { spawnSync } from "node:child_process";
import type { TimelineNote } from "@sandlot/contract";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { SHELL_MARKS, TerminalCommands } from "../../src/lifecycle/timeline/terminal-commands.ts";

function watched() {
  const notes: TimelineNote[] = [];
  let id = 0;
  let now = 0;
  const commands = new TerminalCommands("t", {
    note: (note) => notes.push(note),
    monotonicMs: () => (now += 1),
    newId: () => `c${id++}`,
  });
  const told = () =>
    notes.map(({ what, facts }) => {
      const { command, exitCode, hidden } = facts as Record<string, unknown>;
      return `${what} ${hidden === true ? "hidden" : command}${what === "ended" ? ` ${exitCode}` : ""}`;
    });
  return { commands, notes, told };
}

const begin = (line: string) => `\u001b]633;E;${line}\u0007`;
const end = (code: number) => `\u001b]633;D;${code}\u0007`;
const OUTPUT = `$ ${begin("    1  ls -la")}a b\r\n${end(0)}$ ${begin("   12  false")}${end(1)}$ `;

describe("marks", () => {
  test("become a start and an end, with the exit code", () => {
    const { commands, told } = watched();
    commands.saw(0, Buffer.from(end(0) + OUTPUT));
    expect(told()).toEqual(["started ls -la", "ended ls -la 0", "started false", "ended false 1"]);
  });

  test("mean the same in any pieces, and when they are seen twice", () => {
    fc.assert(
      fc.property(fc.array(fc.nat(OUTPUT.length), { maxLength: 12 }), fc.nat(OUTPUT.length), (cuts, again) => {
        const { commands, told } = watched();
        const bytes = Buffer.from(OUTPUT);
        const places = [0, ...cuts.filter((cut) => cut < bytes.byteLength).sort((a, b) => a - b), bytes.byteLength];
        for (let n = 1; n < places.length; n += 1) {
          const from = Math.min(places[n - 1] ?? 0, Math.max(0, (places[n - 1] ?? 0) - again));
          commands.saw(from, bytes.subarray(from, places[n]));
        }
        expect(told()).toEqual(["started ls -la", "ended ls -la 0", "started false", "ended false 1"]);
      }),
    );
  });

  test("say where the output of a command begins", () => {
    const { commands, notes } = watched();
    commands.saw(100, Buffer.from(OUTPUT));
    const [started] = notes;
    const offset = Number((started?.facts as { outputOffset?: number } | undefined)?.outputOffset) - 100;
    // The mark ends there.
    expect(OUTPUT.slice(offset).startsWith("\u0007a b")).toBe(true);
  });

  test("a line that the history leaves out is hidden, and a lost end ends with the next command", () => {
    const { commands, told } = watched();
    commands.saw(0, Buffer.from(begin(" 7  one") + begin(" 7  one") + begin(" 8  two\nlines")));
    commands.closed({ exitCode: 3, signal: null });
    commands.closed({ exitCode: 3, signal: null });
    const expected = ["started one", "ended one null", "started hidden", "ended hidden null"];
    expect(told()).toEqual([...expected, "started two\nlines", "ended two\nlines 3"]);
  });

  test("after dropped output nothing is put together from halves", () => {
    const { commands, told } = watched();
    commands.saw(0, Buffer.from("\u001b]633;E;   1  rm"));
    commands.saw(5_000, Buffer.from(" -rf /\u0007"));
    expect(told()).toEqual([]);
  });
});

describe("hostile output", () => {
  test("costs bounded memory and time, and gives bounded entries", () => {
    const { commands, notes } = watched();
    let offset = 0;
    const saw = (text: string | Buffer) => {
      const bytes = Buffer.from(text);
      commands.saw(offset, bytes);
      offset += bytes.byteLength;
    };
    saw("\u001b]633;E;1 ");
    for (let n = 0; n < 200; n += 1) saw("x".repeat(1_000));
    saw(end(0));
    expect(notes.length).toBeLessThanOrEqual(2);
    for (const { facts } of notes) expect((facts as { command: string }).command.length).toBeLessThan(17_000);
    for (let n = 0; n < 20; n += 1) saw(Buffer.alloc(4_096, "\u001b]633;"));
    saw(begin("5  echo still here"));
    expect(notes.at(-1)?.facts).toMatchObject({ command: "echo still here" });
  });

  test("codes that are none are left out", () => {
    const { commands, notes } = watched();
    commands.saw(0, Buffer.from(`${begin("1  x")}\u001b]633;D;999999999999\u0007${begin("no number")}`));
    expect(notes.at(-1)?.facts).toMatchObject({ exitCode: null });
    expect(notes).toHaveLength(2);
  });
});

test("bash writes these marks by itself", () => {
  const { commands, told } = watched();
  const { stdout } = spawnSync("sh", ["-c", "exec bash --norc --noprofile -i 2>&1"], {
    input: "echo one\n(exit 7)\nfor i in 1 2\ndo true\ndone\nexit 4\n",
    env: { PATH: process.env.PATH, HISTFILE: "/dev/null", TERM: "dumb", PS1: "$ ", ...SHELL_MARKS },
  });
  commands.saw(0, stdout);
  commands.closed({ exitCode: 4, signal: null });
  const expected = ["started echo one", "ended echo one 0", "started (exit 7)", "ended (exit 7) 7"];
  expect(told().slice(0, 4)).toEqual(expected);
  expect(told().at(-1)).toBe("ended exit 4 4");
  expect(told().join()).toMatch(/started for i in 1 2[;\n]/);
});
