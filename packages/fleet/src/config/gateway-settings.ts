/**
 * The gateway's configuration: one strict, described schema, with every default and its trade.
 *
 * Invariants
 * - Loopback by default. Beyond loopback either `tls` or `behindProxy` is required: a key must never cross a network in
 *   the clear because of an omission.
 * - Previews have their own listener, and so their own origin.
 */

import { GATEWAY_DEFAULT_HOST, GATEWAY_DEFAULT_PORT, SANDBOX_LIMITS, SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { durationOrOff, durationOverZero, size } from "../backend/config/amounts.ts";
import { problemsOf, refuse } from "./problems.ts";

const MEBIBYTE = 1024 * 1024;
const bytes = size;
const port = z.int().min(0, "must be a port, 0 to 65535").max(65_535, "must be a port, 0 to 65535");
const duration = durationOverZero("nothing is done in no time");
const count = z.int().min(1).max(1_000_000);
/** A stop at another gateway waits as long. */
const KEEP_LEASES_MAX_MS = 10_000;

const uploadsSchema = z
  .strictObject({
    maxFiles: count.default(10).describe("Files in one request."),
    maxFileBytes: bytes.default(50 * MEBIBYTE).describe("Bytes of one of them."),
    maxTotalBytes: bytes.default(100 * MEBIBYTE).describe("Bytes of all of them together."),
    convertDocuments: z
      .boolean()
      .default(false)
      .describe("Make Markdown of documents also when a request does not ask for it."),
    conversionTimeoutMs: duration.default(30_000).describe("How long one document may take."),
    conversionMemoryBytes: bytes.default(512 * MEBIBYTE).describe("Heap of the process that reads a document."),
    conversionMaxUncompressedBytes: bytes
      .default(64 * MEBIBYTE)
      .describe("A document that unpacks to more than this is refused."),
    conversionMaxCount: count.default(2).describe("Documents read at the same time; others wait."),
  })
  .prefault({})
  .describe("What may be uploaded.");

/** Eight callers of one agent send some hundred requests a second; the limits are for a runaway caller. */
const rateSchema = z
  .strictObject({
    perKeyPerSecond: count.default(5_000).describe("Requests of one key, on average."),
    perUserPerSecond: count.default(2_000).describe("Requests for one user, on average."),
    burst: count.default(4_000).describe("How many may come at once before the average counts."),
    perAddressFailuresPerMinute: count.default(120).describe("Refused keys from one address."),
  })
  .prefault({})
  .describe(
    "How many requests one caller may send. Too small slows agents that work in parallel; too large slows other callers.",
  );

const tlsSchema = z.strictObject({
  certFile: z.string().min(1).describe("The certificate with its chain, as PEM."),
  keyFile: z.string().min(1).describe("Its private key, as PEM."),
});

const provisionerSchema = z
  .strictObject({
    enabled: z
      .boolean()
      .default(true)
      .describe("Whether the routes `/health`, `/api/capabilities` and `/api/sandboxes` are served."),
    blueprint: z.string().min(1).default("default").describe("What its sandboxes are made from."),
    leaseMs: duration
      .default(900_000)
      .describe(
        "How long a sandbox is kept for its client after the last request that names, lists or uses it. " +
          "Then it is like any other without a lease: `idleTimeoutMs` ends it.",
      ),
    hostBasePath: z
      .string()
      .startsWith("/", "must be an absolute path")
      .optional()
      .describe(
        "DeerFlow's state directory on this host: its clients may mount directories below it (`extra_mounts`). Default: none may.",
      ),
    sandboxUrl: z
      .url({ protocol: /^https?$/, error: "must be an http or https URL" })
      .optional()
      .describe(
        "Where its clients reach the previews' listener, such as http://sandlot:8751. " +
          "Default: the host name that the request came to, or one below `preview.domain` where that is set.",
      ),
  })
  .prefault({})
  .describe(
    "DeerFlow's provisioner contract: the gateway as its `provisioner_url`. It has the same keys and gives no rights that other routes do not.",
  );

export const gatewayConfigSchema = z
  .strictObject({
    host: z.string().min(1).default(GATEWAY_DEFAULT_HOST).describe("Where to listen. Loopback by default."),
    port: port.default(GATEWAY_DEFAULT_PORT).describe("0: any free port."),
    tls: tlsSchema.optional().describe("Serve HTTPS with this certificate."),
    behindProxy: z
      .boolean()
      .default(false)
      .describe("A proxy in front terminates TLS. Needed to listen beyond loopback without `tls`."),
    advertise: z
      .url({ protocol: /^https?$/, error: "must be an http or https URL" })
      .optional()
      .describe(
        "The URL at which clients and the other gateways of a shared store reach this gateway. " +
          "Default: none, so that threads on this host's engine are reached through this gateway's own address only.",
      ),
    allowedHosts: z
      .array(z.string().min(1))
      .default([])
      .describe("Host names that requests may use, beside the gateway's own address; with or without a port."),
    allowedOrigins: z
      .array(z.url())
      .default([])
      .describe("Web pages that may call the gateway. None by default: CORS is off."),
    preview: z
      .strictObject({
        port: port
          .optional()
          .describe("The listener for previews. Default: the port after the gateway's, or any free."),
        domain: z
          .string()
          .min(1)
          .default("localhost")
          .describe("Previews are at `{port}--{id}.` below this name, each an origin of its own."),
        tls: tlsSchema
          .optional()
          .describe("A certificate for every name below the domain. Default: the gateway's, where it has one."),
        publicPort: port.optional().describe("The port that links name, when a proxy is in front."),
        publicScheme: z.enum(["http", "https"]).optional().describe("The scheme that links name."),
      })
      .prefault({})
      .describe("Previews of the servers that agents run."),
    provisioner: provisionerSchema,
    uploads: uploadsSchema,
    rate: rateSchema,
    execResultMaxBytes: bytes
      .default(SANDBOX_LIMITS.execResultMaxBytes)
      .describe("How much of the end of each stream the response to a command may hold. The rest is at `…/output`."),
    jsonMaxBytes: bytes.default(4 * MEBIBYTE).describe("Body of a request that is JSON."),
    fileMaxBytes: bytes.default(1024 * MEBIBYTE).describe("Body of a request that is a file."),
    headerMaxBytes: bytes.default(16 * 1024).describe("Headers of a request."),
    headersTimeoutMs: duration.default(10_000).describe("How long a client may take to send its headers."),
    bodyStallMs: duration.default(30_000).describe("How long a client may send or read nothing in the middle."),
    heldStallMs: duration
      .default(3_600_000)
      .describe(
        "The same for a reader that a command waits for (`output: hold`): it may lose output when it is cut off.",
      ),
    idleConnectionMs: duration.default(60_000).describe("How long an unused connection is kept open."),
    connectionsMax: count.default(10_000).describe("Connections at once. Further ones are refused."),
    streamsPerUserMax: count.default(2_000).describe("Open streams and terminals of one user."),
    keepLeasesMs: durationOrOff("that none is kept", KEEP_LEASES_MAX_MS)
      .default(1_000)
      .describe(
        "How long a thread's lease is kept after its last request: the next request then needs neither a hold nor a connection. " +
          "Meanwhile a stop by another gateway waits, and `sandlot rm` without a gateway is refused. 0: none is kept.",
      ),
    heartbeatMs: duration.default(15_000).describe("How often an idle stream sends a heartbeat."),
    drainMs: duration.default(10_000).describe("How long requests may go on when the gateway is stopped."),
  })
  .describe("The gateway: Sandlot over HTTP.");

export type GatewayConfig = z.input<typeof gatewayConfigSchema>;
export type GatewaySettings = z.output<typeof gatewayConfigSchema>;

/** Completes and checks the configuration. Rejects an unsafe one with `config_invalid`. */
export function resolveGatewaySettings(config: GatewayConfig = {}): GatewaySettings {
  const parsed = gatewayConfigSchema.safeParse(config);
  if (!parsed.success) {
    const problems = problemsOf(parsed.error.issues, gatewayConfigSchema, config);
    refuse(problems.map((problem) => ({ ...problem, path: `gateway${problem.path && `.${problem.path}`}` })));
    throw parsed.error;
  }
  const settings = parsed.data;
  if (!isLoopback(settings.host) && settings.tls === undefined && !settings.behindProxy) {
    throw new SandlotError("config_invalid", {
      path: "gateway.host",
      problem: `${settings.host} is beyond loopback, where keys would travel in the clear; give \`tls\`, or say with \`behindProxy\` that a proxy terminates it`,
    });
  }
  const problem = advertiseProblem(settings);
  if (problem !== null) throw new SandlotError("config_invalid", { path: "gateway.advertise", problem });
  return settings;
}

/** Keys are sent to this address, and nothing but a base URL can be put before a path. */
function advertiseProblem({ advertise, behindProxy }: GatewaySettings): string | null {
  if (advertise === undefined) return null;
  const { protocol, hostname, username, password, search, hash } = new URL(advertise);
  if (username !== "" || password !== "" || search !== "" || hash !== "")
    return "it has a user, a query or a fragment; give only scheme, host, port and path";
  if (protocol === "https:" || isLoopback(hostname.replace(/^\[|\]$/g, "")) || behindProxy) return null;
  return `${advertise} sends keys beyond loopback in the clear; give an https URL, or say with \`behindProxy\` that the network in between is protected`;
}

export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

/** The certificate of the previews' listener, and its configuration key. */
export function previewTls({ tls, preview }: GatewaySettings) {
  if (preview.tls !== undefined) return { files: preview.tls, path: "gateway.preview.tls" };
  return tls === undefined ? null : { files: tls, path: "gateway.tls" };
}

/** The scheme in links, as a browser sees it. */
export function previewScheme(settings: GatewaySettings): "http" | "https" {
  return settings.preview.publicScheme ?? (previewTls(settings) === null ? "http" : "https");
}
