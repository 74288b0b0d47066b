/** A fleet and the client of a gateway both satisfy the tools' source interface. */

import { expectTypeOf, test } from "vitest";
import type { Fleet } from "../../../fleet/src/index.ts";
import type { SandlotClient } from "../../src/index.ts";
import type { SandboxSource } from "../../src/tools/index.ts";

test("a fleet and a gateway's client are sources", () => {
  expectTypeOf<Fleet>().toExtend<SandboxSource>();
  expectTypeOf<SandlotClient>().toExtend<SandboxSource>();
});
