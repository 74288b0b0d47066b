/** The key of the double, which its fleet has as well. */

import type { PresharedKey } from "@sandlot/contract";

export const DOUBLE_KEY: PresharedKey = { identity: "k1.daemon.s.double", key: "5a".repeat(32) };
