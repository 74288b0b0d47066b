import { expect, it } from "vitest";
import { etagOf } from "../../src/gateway/conditions.ts";

it("every version that a sandbox can send has a tag that a header can hold", () => {
  for (const version of ["1-2", 'a"b\r\nx: y', "half a pair: \ud800", "\udc00", "ä 🙂"])
    expect(etagOf({ version })).toMatch(/^"[\x21\x23-\x7e]+"$/);
});
