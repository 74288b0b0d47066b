/** How long a lease of a remote caller lives without being renewed. A file of its own: clients use it without loading a schema. */

/** Shorter ones would expire between two renewals over a slow network; longer ones keep what a dead caller held. */
export const LEASE_TTL_MIN_MS = 1_000;
export const LEASE_TTL_MAX_MS = 3_600_000;
export const LEASE_TTL_DEFAULT_MS = 60_000;
