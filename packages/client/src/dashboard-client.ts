/**
 * The dashboard's own routes: signing in, and what only its pages show. In a browser the session is a cookie, so such a
 * client has no key.
 */

import {
  type DashboardConfiguration,
  type DashboardDoctor,
  type DashboardLink,
  type DashboardOverview,
  type DashboardSession,
  dashboardConfigurationSchema,
  dashboardDoctorSchema,
  dashboardLinkSchema,
  dashboardOverviewSchema,
  dashboardSessionSchema,
  GATEWAY_HEADERS,
  leaseSchema,
} from "@sandlot/contract";
import { Transport, type TransportOptions } from "./wire/transport.ts";

const SESSION = "/v1/dashboard/session";

export class DashboardClient {
  readonly #transport: Transport;

  constructor(options: TransportOptions) {
    this.#transport = new Transport(options);
  }

  /** Begins a session with a key. The browser keeps its cookie. */
  signIn(key: string): Promise<DashboardSession> {
    const headers = { [GATEWAY_HEADERS.apiKey]: key };
    return this.#transport.json(dashboardSessionSchema, { method: "POST", path: SESSION, headers });
  }

  /** Begins the session that a one-time link is for. */
  redeemLink(token: string): Promise<DashboardSession> {
    const path = "/v1/dashboard/links/use";
    return this.#transport.json(dashboardSessionSchema, { method: "POST", path, json: { token } });
  }

  /** Rejects with `unauthorized` when there is none. */
  session(): Promise<DashboardSession> {
    return this.#transport.json(dashboardSessionSchema, { method: "GET", path: SESSION, repeatable: true });
  }

  /** Ends the session at every gateway of the store. */
  signOut(): Promise<void> {
    return this.#transport.done({ method: "DELETE", path: SESSION, repeatable: true });
  }

  /** A link that opens the dashboard once, with the rights of this client's key. `path` is below the gateway's URL. */
  createLink(): Promise<DashboardLink> {
    return this.#transport.json(dashboardLinkSchema, { method: "POST", path: "/v1/dashboard/links" });
  }

  /** Holds the thread's sandbox for this long, also after this client is gone. Nothing renews or releases the lease. */
  extend({ user, thread, ttlMs }: { readonly user: string; readonly thread: string; readonly ttlMs: number }) {
    return this.#transport.json(leaseSchema, {
      ...{ method: "POST", path: `/v1/threads/${encodeURIComponent(thread)}/leases` },
      ...{ json: { purpose: "dashboard: kept", ttlMs }, headers: { [GATEWAY_HEADERS.user]: user } },
    });
  }

  /** The fleet's gateways, and what happened at this one. For operators. */
  overview(): Promise<DashboardOverview> {
    const path = "/v1/dashboard/overview";
    return this.#transport.json(dashboardOverviewSchema, { method: "GET", path, repeatable: true });
  }

  /** The configuration in force, with the origin of every value. For operators. */
  configuration(): Promise<DashboardConfiguration> {
    const path = "/v1/dashboard/configuration";
    return this.#transport.json(dashboardConfigurationSchema, { method: "GET", path, repeatable: true });
  }

  /** What `sandlot doctor` finds on the gateway's host. For operators. */
  doctor(): Promise<DashboardDoctor> {
    return this.#transport.json(dashboardDoctorSchema, {
      method: "GET",
      path: "/v1/dashboard/doctor",
      repeatable: true,
    });
  }
}
