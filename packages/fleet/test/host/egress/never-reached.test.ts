/** An exception for a range does not open the metadata addresses that lie inside it. */

import { expect, test } from "vitest";
import { isNeverReached } from "../../../src/backend/network/addresses.ts";

test.each([
  ["100.100.100.200", true],
  ["::ffff:127.0.0.1", true],
  ["fd00:ec2::254", true],
  ["169.254.169.254", true],
  ["100.64.0.1", false],
  ["10.1.2.3", false],
  ["fd00::1", false],
])("%s is never reached: %s", (address, never) => {
  expect(isNeverReached(address)).toBe(never);
});
