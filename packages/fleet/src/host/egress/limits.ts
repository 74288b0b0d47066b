/** Limits of one sandbox's use of the proxy. Each number states its trade. */

export interface EgressLimits {
  /** Open connections of one sandbox. Package managers open some tens; more would exhaust the host's ports. */
  readonly connectionsMax: number;
  /** The head of one request. Cookies and tokens fit; more is an attempt to fill memory. */
  readonly headBytesMax: number;
  /** From the first byte of a request to the end of its head, and for a TLS handshake. */
  readonly headTimeoutMs: number;
  /** Resolving a name and connecting, all addresses together. */
  readonly dialTimeoutMs: number;
  /** Per address. Short enough to try the next one before people give up. */
  readonly addressTimeoutMs: number;
  /** Addresses tried per name. */
  readonly addressesMax: number;
  /** No byte in either direction. Long enough for a model that thinks for minutes before it answers. */
  readonly idleTimeoutMs: number;
  /** No byte after one side has ended. The other side may still be sending, but not forever. */
  readonly halfOpenTimeoutMs: number;
  /** A kept-alive connection without a request, on either side. */
  readonly keepAliveTimeoutMs: number;
  /** Refusals kept for the status page. */
  readonly refusalsKept: number;
  /** Refusals reported to the fleet. A loop inside must not flood the listeners; the rest is counted. */
  readonly refusalsToldPerSecond: number;
}

export const EGRESS_LIMITS: EgressLimits = {
  connectionsMax: 256,
  headBytesMax: 32 * 1_024,
  headTimeoutMs: 20_000,
  dialTimeoutMs: 30_000,
  addressTimeoutMs: 8_000,
  addressesMax: 6,
  idleTimeoutMs: 600_000,
  halfOpenTimeoutMs: 60_000,
  keepAliveTimeoutMs: 30_000,
  refusalsKept: 20,
  refusalsToldPerSecond: 20,
};
