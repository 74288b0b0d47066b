/** What `sandlot doctor` says of the place of the store. */

import { expect, test } from "vitest";
import { storeFinding } from "../../src/cli/doctor/host-findings.ts";

test("a store on a file system of several hosts is a warning with its remedy", () => {
  const store = { type: "sqlite", path: "/nonexistent/home/store.db" } as Parameters<typeof storeFinding>[0];
  expect(storeFinding(store, () => 0x6969)).toMatchObject({
    status: "warn",
    detail: expect.stringContaining("NFS"),
    fix: expect.stringContaining("store.path"),
  });
  expect(storeFinding(store)).toMatchObject({ status: "ok" });
});
