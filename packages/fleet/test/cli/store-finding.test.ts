/** The output of `sandlot doctor` for the place of the store. */

import { expect, test } from "vitest";
import { sqliteFinding } from "../../src/store/sqlite/doctor.ts";

test("a store on a file system of several hosts is a warning with its remedy", () => {
  const store = { type: "sqlite", path: "/nonexistent/home/store.db" } as const;
  expect(sqliteFinding(store, () => 0x6969)).toMatchObject({
    status: "warn",
    detail: expect.stringContaining("NFS"),
    fix: expect.stringContaining("store.path"),
  });
  expect(sqliteFinding(store)).toMatchObject({ status: "ok" });
});
