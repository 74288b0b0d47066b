/** What a person reads when a command failed. */

import { SandlotError } from "@sandlot/contract";
import { expect, test } from "vitest";
import { printFailure, type Terminal } from "../../src/cli/terminal.ts";

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
