/** Every store behaves the same: the one suite, for each of them. */

import { describe, expect, it } from "vitest";
import { describeStore } from "../../src/testing/store-suite.ts";
import { openMemory, openRows, openSqlite } from "./stores.ts";

const tools = { describe, it, expect };

describeStore({ name: "memory", tools, open: () => openMemory() });
describeStore({ name: "memory, shared", tools, open: () => openMemory(undefined, true) });
describeStore({ name: "rows", tools, open: () => openRows() });
describeStore({ name: "sqlite", tools, open: () => openSqlite() });
