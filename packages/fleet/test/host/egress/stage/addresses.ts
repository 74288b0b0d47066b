/**
 * The addresses of a stage's outside. The public ones belong to no part of this repository: they exist only in network
 * namespaces of the test, and lead nowhere else.
 */

export const OUTSIDE = {
  public: "93.184.216.34",
  publicToo: "93.184.216.35",
  publicV6: "2606:2800:220:1::34",
  private: "10.20.30.40",
  metadata: "169.254.169.254",
  carrier: "100.100.100.200",
  privateV6: "fd00:ec2::254",
} as const;

/** The proxy's own machine, as the outside sees it. It has its own server there. */
export const OWN = { v4: "93.184.216.1", v6: "2606:2800:220:1::1" } as const;

/** No response comes from there, not even an error. */
export const SILENT = "93.184.216.99";

export const PORTS = { http: 80, https: 443, echo: 7_000, afterEnd: 7_001, silentHttp: 8_081, names: 53 } as const;

/** The names of the outside's name server. */
export const NAMES: Readonly<Record<string, string>> = {
  "public.example": OUTSIDE.public,
  "private.example": OUTSIDE.private,
  "api.example.com": OUTSIDE.public,
};
