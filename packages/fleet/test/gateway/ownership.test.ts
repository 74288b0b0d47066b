/** DeerFlow's ownership scenarios with two gateways over one store. */

import { describeOwnership } from "./support/ownership-suite.ts";

describeOwnership("rows in memory");
