/**
 * The dashboard's own routes: signing in, and what only its pages show. In a browser the session is a cookie, so such a
 * client has no key.
 */

import {
  type DashboardConfiguration,
  type DashboardDoctor,
  type DashboardFleet,
  type DashboardLink,
  type DashboardLog,
  type DashboardSession,
  dashboardConfigurationSchema,
  dashboardDoctorSchema,
  dashboardFleetSchema,
  dashboardLinkSchema,
  dashboardLogSchema,
  dashboardSessionSchema,
  GATEWAY_HEADERS,
  leaseSchema,
} from "@sandlot/contract";
import { Transport, type TransportOptions } from "./wire/transport.ts";

const SESSION = "/v1/dashboard/session";

export interface FilePlace {
  readonly user: string;
  readonly thread: string;
  readonly path: string;
}

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

  /** Writes a file of a page; `path` is one inside the thread's sandbox. */
  async upload(file: Blob, to: FilePlace, signal?: AbortSignal): Promise<void> {
    await this.#transport.done({
      ...{
        method: "PUT",
        path: `/v1/threads/${encodeURIComponent(to.thread)}/files/content`,
        query: { path: to.path },
      },
      ...{ headers: { [GATEWAY_HEADERS.user]: to.user }, body: file, signal },
    });
  }

  /** A folder with everything in it, as a tar archive. */
  async *downloadFolder(from: FilePlace, signal?: AbortSignal): AsyncGenerator<Uint8Array> {
    const response = await this.#transport.stream({
      ...{ method: "GET", path: `/v1/threads/${encodeURIComponent(from.thread)}/files/archive` },
      ...{ query: { path: from.path }, headers: { [GATEWAY_HEADERS.user]: from.user }, signal },
    });
    yield* response.chunks;
  }

  /** The overviews of all gateways of the fleet, with their last six hours in so many slices. For operators. */
  fleet(bins = 0): Promise<DashboardFleet> {
    const call = { method: "GET", path: "/v1/dashboard/fleet", query: { bins }, repeatable: true } as const;
    return this.#transport.json(dashboardFleetSchema, call);
  }

  /** The configuration in force, with the origin of every value. For operators. */
  configuration(): Promise<DashboardConfiguration> {
    const path = "/v1/dashboard/configuration";
    return this.#transport.json(dashboardConfigurationSchema, { method: "GET", path, repeatable: true });
  }

  /** The last lines of the gateway's log. For operators. */
  log(limit = 500): Promise<DashboardLog> {
    const call = { method: "GET", path: "/v1/dashboard/log", query: { limit }, repeatable: true } as const;
    return this.#transport.json(dashboardLogSchema, call);
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
