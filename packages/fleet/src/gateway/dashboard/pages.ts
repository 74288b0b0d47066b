/**
 * The dashboard's files: one page for every address of it, and its scripts and styles. They are the same for all, and
 * say nothing about the fleet, so they need no key.
 *
 * Invariants
 * - Scripts and styles come from this gateway only, and no script stands in the page.
 * - A file is served only if it was there when the gateway started; nothing of a request becomes a path.
 */

import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { SandlotError } from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import { dashboardFolder } from "../../package-files.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";

/**
 * Frames: previews, which are other origins, and a PDF that the page has read. Styles: the terminal and dialogs make
 * style elements. `require-trusted-types-for` refuses text as HTML or as a script
 * also where a library would use it so.
 */
const policy = (previews: string) =>
  "default-src 'none';script-src 'self';style-src 'self' 'unsafe-inline';img-src 'self' blob: data:;font-src 'self';" +
  `connect-src 'self';frame-src blob: ${previews};base-uri 'none';form-action 'none';frame-ancestors 'none';` +
  "require-trusted-types-for 'script';trusted-types 'none'";
const HEADERS = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=()",
  "referrer-policy": "no-referrer",
  "x-frame-options": "DENY",
} as const;
const TYPES: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".svg": "image/svg+xml",
};
/** The names of assets hold a hash of their content. */
const FOREVER = "public, max-age=31536000, immutable";
const ADDRESSES = [
  ...["/", "/sandboxes", "/threads", "/threads/:user/:thread"],
  ...["/administration", "/administration/:section"],
];
const NOT_BUILT = "<!doctype html><title>Sandlot</title><p>The dashboard is not built. Run: npm run build\n";

interface Asset {
  readonly type: string;
  readonly bytes: Buffer;
  readonly etag: string;
  zipped: Promise<Buffer> | null;
}

const assetParamsSchema = z.strictObject({ name: z.string().max(200) });

export function dashboardPages(app: GatewayApp, { previewAddress }: Pick<GatewayContext, "previewAddress">): void {
  const folder = dashboardFolder();
  // The previews' port is known when requests come.
  const send = (request: FastifyRequest, reply: FastifyReply, asset: Asset, caching: string) =>
    sendAsset(request, reply, asset, {
      "cache-control": caching,
      "content-security-policy": policy(previewAddress("*")),
    });
  const page = readAsset(join(folder, "index.html")) ?? assetOf(Buffer.from(NOT_BUILT), ".html");
  const assets = readAssets(join(folder, "assets"));
  const options = { config: { access: "open", page: true }, schema: { hide: true }, logLevel: "warn" } as const;
  for (const address of ADDRESSES)
    app.get(address, options, (request, reply) => send(request, reply, page, "no-cache"));
  app.get(
    "/assets/:name",
    { ...options, schema: { hide: true, params: assetParamsSchema } },
    async (request, reply) => {
      const asset = assets.get(request.params.name);
      if (asset === undefined)
        throw new SandlotError("route_not_found", { method: "GET", path: `/assets/${request.params.name}` });
      return send(request, reply, asset, FOREVER);
    },
  );
}

async function sendAsset(
  request: FastifyRequest,
  reply: FastifyReply,
  asset: Asset,
  headers: Readonly<Record<string, string>>,
) {
  reply.headers({ ...HEADERS, ...headers, etag: asset.etag, vary: "accept-encoding" });
  if (request.headers["if-none-match"] === asset.etag) return reply.code(304).send();
  reply.header("content-type", asset.type);
  if (!/\bgzip\b/.test(request.headers["accept-encoding"] ?? "")) return reply.send(asset.bytes);
  asset.zipped ??= promisify(gzip)(asset.bytes);
  return reply.header("content-encoding", "gzip").send(await asset.zipped);
}

function readAssets(folder: string): ReadonlyMap<string, Asset> {
  const names = existsSync(folder) ? readdirSync(folder) : [];
  return new Map(
    names.flatMap((name) => {
      const asset = readAsset(join(folder, name));
      return asset === null ? [] : [[name, asset] as const];
    }),
  );
}

function readAsset(path: string): Asset | null {
  return existsSync(path) && extname(path) in TYPES ? assetOf(readFileSync(path), extname(path)) : null;
}

function assetOf(bytes: Buffer, extension: string): Asset {
  const etag = `"${createHash("sha256").update(bytes).digest("hex").slice(0, 32)}"`;
  return { type: TYPES[extension] ?? "application/octet-stream", bytes, etag, zipped: null };
}
