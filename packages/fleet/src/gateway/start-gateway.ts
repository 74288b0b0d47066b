/**
 * Starts and stops a gateway over an open fleet. The caller owns the fleet: closing the gateway drains its own requests
 * and leaves the sandboxes alone.
 */

import type { Server as HttpServer } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { type AuditFinding, SandlotError } from "@sandlot/contract";
import type { FastifyBaseLogger } from "fastify";
import pino from "pino";
import type { HostWorkspaces } from "../backend/host-workspaces.ts";
import {
  type GatewayConfig,
  type GatewaySettings,
  previewScheme,
  previewTls,
  resolveGatewaySettings,
} from "../config/gateway-settings.ts";
import type { Settings } from "../config/settings.ts";
import type { Fleet, SharedEntries } from "../fleet.ts";
import type { StoreSteps } from "../observe/store-steps.ts";
import { sleep } from "../world/waiting.ts";
import type { World } from "../world/world.ts";
import { AuditLog } from "./audit-log.ts";
import type { GatewayContext } from "./context.ts";
import { Dashboard } from "./dashboard/dashboard.ts";
import type { GatewayAbout } from "./dashboard/gateway-about.ts";
import { DashboardSessions } from "./dashboard/sessions.ts";
import { Converter } from "./documents/converter.ts";
import { EventLog } from "./events/event-log.ts";
import { PeerCredential } from "./events/peer-credential.ts";
import { PeerEvents } from "./events/peer-events.ts";
import { type AuthenticationParts, keyIdOf } from "./guards/caller.ts";
import { RateExchange } from "./guards/rate-exchange.ts";
import { RateLimits } from "./guards/rate-limits.ts";
import { ApiKeys } from "./keys/api-keys.ts";
import { ensureOperatorKey } from "./keys/operator-key.ts";
import { writeOwnAddress } from "./keys/own-gateways.ts";
import type { GatewayLogger } from "./logger.ts";
import { Metrics } from "./metrics.ts";
import { placedWorkspaces } from "./placed-workspaces.ts";
import { AioLinks } from "./previews/aio-links.ts";
import { PreviewLinks } from "./previews/links.ts";
import { PreviewServer } from "./previews/preview-server.ts";
import { LivingRecords } from "./provisioner/living-records.ts";
import { ProvisionedLeases } from "./provisioner/provisioned-leases.ts";
import { ProvisionedSandboxes } from "./provisioner/provisioned-sandboxes.ts";
import { Provisioner } from "./provisioner/provisioner.ts";
import { RecordSweep } from "./provisioner/record-sweep.ts";
import { sandboxBase } from "./provisioner/sandbox-url.ts";
import type { RegisteredRoute } from "./registered-route.ts";
import { createServer } from "./server.ts";
import { Streams } from "./streams/streams.ts";
import { ThreadUse } from "./thread-use.ts";
import { readCertificate } from "./tls.ts";
import { WorkspaceAccess } from "./workspace-access.ts";
import { budgetedWorkspaces } from "./workspace-budgets.ts";

/** Compares engine and store; returns the differences. */
export type FleetAudit = () => Promise<readonly AuditFinding[]>;

export interface GatewayOptions {
  readonly fleet: Fleet;
  /** `$SANDLOT_HOME`: keys, the operator's key, the audit log, the secret of preview links. */
  readonly home: string;
  readonly settings?: GatewayConfig;
  readonly world: World;
  /** The store's entries, where several hosts share it: keys and links are then the same at each of its gateways. */
  readonly entries?: SharedEntries | null;
  /** For metrics of a store on the network. */
  readonly storeSteps?: StoreSteps;
  readonly logger?: GatewayLogger;
  /** Workspaces on this host's disk: uploads and artifacts then need no sandbox. */
  readonly hostWorkspaces?: HostWorkspaces;
  /** Their disk budgets then also apply to uploads and artifacts. */
  readonly blueprints?: Settings["blueprints"];
  readonly audit?: FleetAudit;
  /** For the dashboard's pages of operators. */
  readonly about?: GatewayAbout;
}

export interface Gateway {
  readonly url: string;
  /** Base URL of previews, with any host name below the preview domain. */
  readonly previewUrl: string;
  readonly keys: ApiKeys;
  /** A link that opens the dashboard once, with the rights of this key. */
  dashboardLink(keyId: string): string;
  /** Whether this start created the first operator key. */
  readonly madeOperatorKey: boolean;
  readonly settings: GatewaySettings;
  /** Streams that are open now. */
  openStreams(): number;
  /** For tests: the registered routes. */
  readonly routes: readonly RegisteredRoute[];
  /** Stops accepting requests, lets running ones finish within `drainMs`, ends streams with a marker. Idempotent. */
  close(): Promise<void>;
}

const IDLE_CHECK_MS = 25;
/** How long handlers whose connection was cut may take to release what they hold. */
const LAST_LEASES_MS = 2_000;

export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const { fleet, home, world } = options;
  const settings = resolveGatewaySettings(options.settings);
  const logger = (options.logger ?? pino({ level: "silent" })) as FastifyBaseLogger;
  const certificates = await certificatesOf(settings);
  const entries = options.entries ?? null;
  const keys = await ApiKeys.open(home, world, entries);
  const { made } = await ensureOperatorKey(keys, home, world);
  const inFiles = await keys.importableCount();
  if (inFiles > 0)
    logger.warn(
      { count: inFiles },
      "this home has keys in files, which the shared store does not: sandlot keys import",
    );
  const audit = await AuditLog.open(home, world, (error) =>
    logger.error({ err: error }, "the audit log cannot be written"),
  );
  const streams = new Streams(settings);
  const threads = new ThreadUse(fleet, world, settings);
  const draining = new AbortController();
  const links = await PreviewLinks.open(home, world, entries);
  const provisioned = await ProvisionedSandboxes.open(home, links, world, entries);
  const aioLinks = await AioLinks.open(home, links, world, entries, provisioned);
  const sessions = await DashboardSessions.open(home, { links, keys, world }, entries);
  const rates = new RateLimits(world, settings);
  const kept = new ProvisionedLeases({
    ...{ fleet, threads, world, logger, draining: draining.signal, ttlMs: settings.provisioner.leaseMs },
  });
  const previews = new PreviewServer({
    ...{ links, aioLinks, rates, keys, threads, world, settings, logger },
    certificate: certificates.previews,
    onProvisionedUse: (record) => kept.renew(record),
  });
  const credential = entries === null ? null : await PeerCredential.open(entries);
  const events = new EventLog(fleet.events, world);
  const { heartbeatMs, advertise: ownAddress = null } = settings;
  const dashboard = new Dashboard({
    ...{ sessions, fleet, world, home, credential, ownAddress, about: options.about ?? null },
  });
  const peerEvents =
    credential === null
      ? null
      : new PeerEvents({ world, log: events, credential, ownAddress, heartbeatMs, peers: () => fleet.peers() });
  let previewPort = 0;
  const addressOf = (label: string) => previewAddress(settings, label, previewPort);
  const living = new LivingRecords({ fleet, keys });
  const swept = { fleet, threads, living, world, records: provisioned, draining: draining.signal };
  const sweep = new RecordSweep(swept);
  const parts = { ...swept, aioLinks, leases: kept, sweep };
  const context: GatewayContext = {
    ...{ fleet, world, settings, threads, audit, keys, streams, links, aioLinks, events, peerEvents, dashboard },
    previewAddress: addressOf,
    provisioner: settings.provisioner.enabled ? new Provisioner({ ...parts, settings: settings.provisioner }) : null,
    sandboxUrl: (request, record) =>
      `${sandboxBase(settings, links, addressOf, record, request)}${provisioned.pathOf(record, keyIdOf(request))}`,
    workspaces: new WorkspaceAccess(threads, world, hostWorkspacesOf(options, threads)),
    converter: new Converter(settings, world),
    auditFleet: options.audit ?? null,
    metrics: new Metrics(fleet, world, streams, options.storeSteps),
    draining: draining.signal,
  };
  const isPeer: AuthenticationParts["isPeer"] = (text, purpose) =>
    credential?.isValid(text, fleet.instanceId, purpose) === true;
  const callers = { keys, rates, isPeer, sessions };
  let port = settings.port;
  const { app, registered } = await createServer(context, callers, logger, () => port, certificates.gateway);
  const onProblem = (error: unknown) =>
    logger.warn(
      { err: error },
      "the store does not take this gateway's rates; rate limits are each gateway's own meanwhile",
    );
  const exchange =
    entries === null
      ? null
      : new RateExchange({ world, entries, instance: fleet.instanceId, buckets: rates.shared, onProblem });
  const unused = unusedConnections(app.server);
  let forget = async () => {};
  const giveUp = async () => {
    for (const socket of unused()) socket.destroy();
    peerEvents?.close();
    events.close();
    context.metrics.close();
    dashboard.close();
    await Promise.all([app.close(), previews.close()]);
    await Promise.all([audit.close(), exchange?.close()]);
    await forget();
  };
  try {
    // Fastify does not know that its server is HTTPS, and would log the wrong scheme.
    const listenTextResolver = (address: string) =>
      `Server listening at ${certificates.gateway === null ? address : address.replace(/^http:/, "https:")}`;
    await app
      .listen({ host: settings.host, port: settings.port, listenTextResolver })
      .catch(listenProblem("gateway.port", settings));
    port = (app.server.address() as AddressInfo).port;
    previewPort = await listenForPreviews(previews.server, settings, port).catch(
      listenProblem("gateway.preview.port", { ...settings, port: settings.preview.port ?? 0 }),
    );
    forget = await writeOwnAddress(home, urlOf(settings, port), world);
  } catch (error) {
    await giveUp();
    await threads.close();
    throw error;
  }

  if (settings.provisioner.enabled) sweep.begin();

  let closing: Promise<void> | null = null;
  const close = async () => {
    draining.abort(new SandlotError("fleet_closed", { operation: "request" }));
    const givenBack = threads.close();
    const closed = new AbortController();
    const late = sleep(world, settings.drainMs, closed.signal).then(
      () => app.server.closeAllConnections(),
      () => undefined,
    );
    const tidying = closeIdle(app.server, world, closed.signal);
    await streams.settled();
    await giveUp();
    closed.abort();
    await Promise.all([late, tidying]);
    // Requests that were cut off release their leases a moment later.
    await Promise.race([givenBack, sleep(world, LAST_LEASES_MS, undefined, { background: true })]);
  };
  return {
    url: urlOf(settings, port),
    previewUrl: urlOf({ host: settings.host, tls: previewTls(settings)?.files }, previewPort),
    keys,
    dashboardLink: (keyId) => `${urlOf(settings, port)}${dashboard.linkPath(keyId).path}`,
    madeOperatorKey: made,
    settings,
    openStreams: () => streams.openCount,
    routes: registered,
    close: () => (closing ??= close()),
  };
}

async function certificatesOf(settings: GatewaySettings) {
  const forPreviews = previewTls(settings);
  return {
    gateway: settings.tls === undefined ? null : await readCertificate(settings.tls, "gateway.tls"),
    previews: forPreviews === null ? null : await readCertificate(forPreviews.files, forPreviews.path),
  };
}

function hostWorkspacesOf(options: GatewayOptions, threads: ThreadUse): HostWorkspaces | null {
  const { hostWorkspaces, blueprints, entries, fleet } = options;
  if (hostWorkspaces === undefined) return null;
  const budgeted =
    blueprints === undefined
      ? hostWorkspaces
      : budgetedWorkspaces(hostWorkspaces, blueprints, (key) => threads.find(key));
  return (entries ?? null) === null ? budgeted : placedWorkspaces(budgeted, fleet, threads);
}

/** Closes connections after their response; the server itself would keep them for the next request. */
async function closeIdle(server: HttpServer, world: World, closed: AbortSignal): Promise<void> {
  while (!closed.aborted) {
    server.closeIdleConnections();
    await sleep(world, IDLE_CHECK_MS, closed).catch(() => undefined);
  }
}

/** The configured port, otherwise the one after the gateway's; where that is taken, any. */
async function listenForPreviews(server: HttpServer, { host, preview }: GatewaySettings, gatewayPort: number) {
  const listen = (port: number) =>
    new Promise<number>((resolve, reject) => {
      server.once("error", reject);
      server.listen(port, host, () => {
        server.off("error", reject);
        resolve((server.address() as AddressInfo).port);
      });
    });
  if (preview.port !== undefined) return listen(preview.port);
  return listen(gatewayPort + 1 > 65_535 ? 0 : gatewayPort + 1).catch(() => listen(0));
}

/** Connections without any request: the server does not count them as idle, and they would keep it open. */
function unusedConnections(server: HttpServer): () => readonly Socket[] {
  const open = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    open.add(socket);
    socket.once("close", () => open.delete(socket));
  });
  return () => [...open].filter(({ bytesRead }) => bytesRead === 0);
}

function previewAddress(settings: GatewaySettings, label: string, port: number): string {
  const { domain, publicPort } = settings.preview;
  return `${previewScheme(settings)}://${label}.${domain}:${publicPort ?? port}`;
}

function urlOf({ host, tls }: Pick<GatewaySettings, "host" | "tls">, port: number): string {
  const shown = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
  return `${tls === undefined ? "http" : "https"}://${shown.includes(":") ? `[${shown}]` : shown}:${port}`;
}

function listenProblem(path: string, { host, port }: GatewaySettings): (error: unknown) => never {
  return (error) => {
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    const problem = LISTEN_PROBLEMS[code]?.(`${host}:${port}`);
    if (problem === undefined) throw error;
    const isAboutHost = code === "EADDRNOTAVAIL" || code === "ENOTFOUND";
    throw new SandlotError("config_invalid", { path: isAboutHost ? "gateway.host" : path, problem }, { cause: error });
  };
}

const LISTEN_PROBLEMS: Readonly<Record<string, (address: string) => string>> = {
  EADDRINUSE: (address) => `${address} is taken by another program, maybe a gateway; choose another port, or 0 for any`,
  EACCES: (address) => `this account may not listen on ${address}; ports below 1024 are root's`,
  EADDRNOTAVAIL: (address) => `${address} is no address of this machine`,
  ENOTFOUND: (address) => `${address} is no address that this machine can find`,
};
