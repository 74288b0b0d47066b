/** The text that a person reads when a command failed. */

import { SandlotError } from "@sandlot/contract";
import { expect, test } from "vitest";
import { printTable } from "../../src/cli/table.ts";
import { printFailure, printJson, type Terminal, withoutControl } from "../../src/cli/terminal.ts";

test("the remedy of the case is printed where the error has one, the general one otherwise", () => {
  let printed = "";
  const error = (text: string) => {
    printed += text;
  };
  const terminal = { error } as Terminal;
  const fix = "apt-get install bubblewrap";
  const missing = new SandlotError("isolation_unavailable", { backend: "local", problem: "bwrap is missing", fix });
  expect(printFailure(terminal, missing, false)).toBe(1);
  expect(printed).toContain(`What to do: ${fix}\n`);
  expect(printed).not.toContain("in the details");
  printed = "";
  const general = new SandlotError("file_not_found", { path: "/x" });
  printFailure(terminal, general, false);
  expect(printed).toContain(`What to do: ${general.remedy}\n`);
});

test("text of a sandbox cannot move the cursor", () => {
  let printed = "";
  const write = (text: string) => {
    printed += text;
  };
  const terminal = withoutControl({ out: write, error: write } as Terminal);
  printFailure(terminal, new SandlotError("file_not_found", { path: "/x\u001b[2J\r\u009b1A" }), false);
  const sent = { code: "later_code", message: "one\ntwo\u001b]0;title\u0007", retryable: false, details: {} };
  printFailure(terminal, SandlotError.received(sent, 409), false);
  printTable(terminal, ["PATH", "KIND"], [["/a\u001b[31m\n/b", "file"]]);
  expect(printed.replaceAll("\n", "")).not.toMatch(/\p{Cc}/u);
  expect(printed).toContain("/x\\x1b[2J\\x0d\\x9b1A");
  expect(printed).toContain("one\ntwo\\x1b]0;title\\x07");
  expect(printed).toContain("/a\\x1b[31m\\x0a/b  file\n");
  printed = "";
  printJson(terminal, { path: "/x\u001b[2J\u007f\u009b1A" });
  expect(printed.replaceAll("\n", "")).not.toMatch(/\p{Cc}/u);
  expect(JSON.parse(printed)).toEqual({ path: "/x\u001b[2J\u007f\u009b1A" });
  printed = "";
  terminal.error("left out: /a\u001b[2J\n\tindented\n");
  expect(printed).toBe("left out: /a\\x1b[2J\n\tindented\n");
});
