/** The doctor's findings about the daemon's files. */

import { sandboxdFiles } from "@sandlot/sandboxd";
import { expect, it } from "vitest";
import { daemonFinding } from "../../../src/backends/local/doctor.ts";

const nodePath = "/usr/bin/node";
// Whether this checkout was built does not matter here.
const daemon = {
  bundle: import.meta.filename,
  supervisor: import.meta.filename,
  compiled: null,
  pty: "pty",
  koffi: "koffi",
};

it("is content with all of them", () => {
  expect(daemonFinding({ daemon, nodePath })).toEqual({ name: "sandboxd", status: "ok", detail: `run by ${nodePath}` });
});

it.each([
  [{ pty: null }, /^no native part for terminals on /],
  [{ koffi: null }, /^no native part for starting processes without a fork \(commands take longer\) on /],
  [{ pty: null, koffi: null }, /^no native part for terminals, nor for starting processes without a fork /],
])("warns of native parts that are missing: %j", (missing, detail) => {
  const finding = daemonFinding({ daemon: { ...daemon, ...missing }, nodePath });
  expect(finding).toMatchObject({ status: "warn", detail: expect.stringMatching(detail) });
});

it("fails without the daemon itself", () => {
  const bundle = `${sandboxdFiles().bundle}.missing`;
  const finding = daemonFinding({ daemon: { ...daemon, bundle }, nodePath });
  expect(finding).toMatchObject({
    status: "fail",
    detail: `missing: ${bundle}`,
    fix: "build the project: npm run build",
  });
});
