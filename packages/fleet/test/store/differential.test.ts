/** The memory store beside the SQLite store and the row store: see `differential.ts`. */

import { describe, it } from "vitest";
import { expectSameAnswers } from "./differential.ts";
import { openRows, openSqlite } from "./stores.ts";

describe.each([
  { name: "sqlite", open: openSqlite },
  { name: "rows", open: openRows },
])("memory and $name", ({ open }) => {
  it("answer every sequence of steps alike", () => expectSameAnswers(open));
});
