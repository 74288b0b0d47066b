/** Keys, links, leases, uploads, rate limits and audit logs of two gateways on two hosts that share a store. */

import { describeSharing } from "./support/sharing-suite.ts";

describeSharing("rows in memory");
