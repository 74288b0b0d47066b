/** The audit of commands against its corpus: all of the dangerous ones, none of the harmless ones. */

import { describe, expect, test } from "vitest";
import { auditCommand } from "../../src/tools/index.ts";
import { splitCommand } from "../../src/tools/policy/shell-text.ts";
import { BLOCKED, PASSED, WARNED } from "./command-corpus.ts";

const short = (command: string) => JSON.stringify(command.slice(0, 60));

describe("the command audit", () => {
  test.each(BLOCKED.map((command) => [short(command), command]))("blocks %s", (_, command) => {
    expect(auditCommand(command)).toMatchObject({ verdict: "block", reason: expect.any(String) });
  });

  test.each(WARNED.map((command) => [short(command), command]))("warns of %s", (_, command) => {
    expect(auditCommand(command)).toMatchObject({ verdict: "warn", reason: expect.any(String) });
  });

  test.each(PASSED.map((command) => [short(command), command]))("lets %s pass", (_, command) => {
    expect(auditCommand(command)).toEqual({ verdict: "pass", rule: null, reason: null });
  });

  test("does not claim to be a boundary: what it cannot see passes", () => {
    expect(auditCommand("r''m -rf /").verdict).toBe("pass");
  });

  test("answers in a moment, whatever it is given", () => {
    const pieces = [
      ..."a|(|$(|' \"|rm -r |env |base64 x |bash -c |bash -c x |eval x |x() { |dd x |cat x |A=1 |echo 'a' |pip -x |a;|> |<<X\n".split(
        "|",
      ),
      ...[
        "while true; do & ",
        "python -c $(",
        "rm -r -r ~ ",
        "\n",
        "a && ",
        "chmod x ",
        "sudo ",
        " ",
        '"$( ',
        "\\",
        "a | ",
        "${",
      ],
    ];
    const nasty = pieces.map((piece) => `${piece.repeat(Math.floor(9_900 / piece.length))}x`);
    for (const command of nasty) {
      // Its own time, not that of other work on the machine.
      const begun = process.cpuUsage();
      auditCommand(command);
      expect(process.cpuUsage(begun).user / 1_000, short(command)).toBeLessThan(500);
    }
  });
});

describe("splitting", () => {
  test.each([
    ["a && b || c; d", ["a", "b", "c", "d"]],
    ["a | b", ["a", "b"]],
    ["a '|' \"&&\" b", ["a '|' \"&&\" b"]],
    ["a $(b; c) d", ["a $(b; c) d"]],
    ["a 2>&1 | b &> c", ["a 2>&1", "b &> c"]],
    ["(a; b) | c", ["a", "b", "c"]],
    ["cat <<X\na; b\nX\nc", ["cat <<X", "c"]],
    ["a 'open; b", ["a 'open; b"]],
    ["a\\;b; c", ["a\\;b", "c"]],
    ["a &\nb", ["a", "b"]],
  ])("%j", (source, parts) => {
    expect(splitCommand(source).map(({ text }) => text)).toEqual(parts);
  });
});
