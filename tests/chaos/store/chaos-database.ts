/**
 * A database of the chaos: a primary with replicas that follow it without its waiting for them, so that a failover can
 * lose what was acknowledged.
 *
 * Every participant reaches it over a link of its own, which leads to the present primary. Main has one that no fault
 * touches (`address`).
 */

import type { Database, StoreServer } from "../../crash/database/database.ts";
import type { ServerSettings } from "../../crash/database/store-address.ts";
import type { Upstream } from "./link.ts";

export interface ChaosDatabase extends Database {
  readonly address: ServerSettings;
  readonly stepMs: number;
  /** How long the primary may be stopped before its replicas take over; `null`: they never do by themselves. */
  readonly stopMaxMs: number | null;
  /** The present primary. */
  readonly server: StoreServer;
  readonly upstream: Upstream;
  /** What a participant whose link listens at `port` of this host is configured with. */
  addressAt(port: number): ServerSettings;
  /** Another part of the same servers, which has an epoch of its own. */
  apart(address: ServerSettings): ServerSettings;
  /**
   * The primary goes on without its replicas for a while, is killed, and a replica becomes the primary. Resolves when it
   * answers. Later calls find a replica again.
   */
  failOver(lagMs: number): Promise<void>;
}
