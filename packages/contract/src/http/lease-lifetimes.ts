/** How long a remote lease lives without a renewal. A separate file, so that clients load no schema for it. */

/** Shorter ones would expire between two renewals over a slow network; longer ones keep a dead caller's sandbox. */
export const LEASE_TTL_MIN_MS = 1_000;
export const LEASE_TTL_MAX_MS = 3_600_000;
export const LEASE_TTL_DEFAULT_MS = 60_000;
