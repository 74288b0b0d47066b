/**
 * Times as dates. A time may come from inside a sandbox, which can say any number: a number beyond the range of dates becomes the nearest
 * date, so printing one never throws.
 */

/** The last moment that a date can have; the first one is its negative (ECMA-262, 21.4.1.1). */
const DATE_MAX_MS = 8.64e15;
/** HTTP has four digits for a year. */
const HTTP_DATE_END_MS = 253_402_300_800_000;

/** The date of a number of milliseconds since 1970. No number at all is 1970. */
export function dateOf(ms: number): Date {
  return new Date(Number.isNaN(ms) ? 0 : Math.max(-DATE_MAX_MS, Math.min(DATE_MAX_MS, ms)));
}

/** Such as `2026-01-31T12:00:00.000Z`. */
export function isoTime(ms: number): string {
  return dateOf(ms).toISOString();
}

/** For a header such as `Last-Modified`; `null` for a time that HTTP cannot write. */
export function httpTime(ms: number): string | null {
  return ms >= 0 && ms < HTTP_DATE_END_MS ? dateOf(ms).toUTCString() : null;
}
