/**
 * Headers of every response: it may not be framed, embedded or sniffed cross-origin. Routes that show content set their
 * own policy over this one.
 */

import type { GatewaySettings } from "../../config/gateway-settings.ts";

const TWO_YEARS_S = 63_072_000;

export interface SecurityHeaders {
  readonly usual: Readonly<Record<string, string>>;
  /** For responses without a key, which monitors request many times a second and no page embeds. */
  readonly open: Readonly<Record<string, string>>;
}

export function securityHeaders({ tls }: GatewaySettings): SecurityHeaders {
  const open = Object.freeze({
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    ...(tls === undefined ? {} : { "strict-transport-security": `max-age=${TWO_YEARS_S}; includeSubDomains` }),
  });
  const usual = Object.freeze({
    ...open,
    "content-security-policy": "default-src 'none';frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
  });
  return { usual, open };
}
