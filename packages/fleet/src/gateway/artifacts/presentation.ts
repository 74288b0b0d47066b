/**
 * How an artifact is shown. A type that a browser would run (HTML, SVG, XML) is always a download, with a policy that
 * would run nothing if it were shown.
 */

import type { FastifyReply } from "fastify";
import { lookup } from "mrmime";

const ACTIVE = new Set([
  "text/html",
  "application/xhtml+xml",
  "image/svg+xml",
  "text/xml",
  "application/xml",
  "text/xsl",
  "application/xslt+xml",
  "application/mathml+xml",
  "text/javascript",
  "application/javascript",
  "application/wasm",
]);

export function presentArtifact(reply: FastifyReply, path: string, download: boolean): void {
  const name = path.slice(path.lastIndexOf("/") + 1);
  const type = lookup(name) ?? "application/octet-stream";
  const active = ACTIVE.has(type) || type.endsWith("+xml");
  const kind = download || active ? "attachment" : "inline";
  reply
    .header("content-type", type.startsWith("text/") ? `${type}; charset=utf-8` : type)
    .header("content-disposition", `${kind}; filename="${ascii(name)}"; filename*=UTF-8''${encodeRfc5987(name)}`)
    .header(
      "content-security-policy",
      active ? "sandbox; default-src 'none'" : "default-src 'none'; frame-ancestors 'none'",
    )
    .header("x-content-type-options", "nosniff");
}

function ascii(name: string): string {
  return name.replace(/[^\x20-\x7e]|["\\%]/g, "_");
}

function encodeRfc5987(name: string): string {
  return encodeURIComponent(name).replace(/['()*]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);
}
