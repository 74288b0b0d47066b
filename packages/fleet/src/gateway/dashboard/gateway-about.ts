/** A published type, so its file reaches no declaration of an optional package. */

import type { DashboardConfiguration, DashboardDoctor, DashboardLogLine, DashboardOverview } from "@sandlot/contract";

/** What the program that started the gateway knows, and the gateway does not. */
export interface GatewayAbout {
  readonly limit: NonNullable<DashboardOverview["limit"]>;
  /** With the origin of every value, and without secrets. */
  configuration(): Pick<DashboardConfiguration, "file"> & {
    readonly values: NonNullable<DashboardConfiguration["values"]>;
  };
  /** The last lines of its log; absent: it has none in memory. */
  log?(limit: number): readonly DashboardLogLine[];
  /** Looks at the machine, the store and the backend. */
  doctor(): Promise<NonNullable<DashboardDoctor["findings"]>>;
}
