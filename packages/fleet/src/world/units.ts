/**
 * Durations and sizes with units: `500ms`, `5s`, `10m`, `2h`, `1d`; `64KiB`, `2GiB`, `500MB`. A number without a unit
 * is milliseconds or bytes. Pure, and free of imports: the command line parses options with it before anything loads.
 */

const MS_PER: Readonly<Record<string, number>> = { "": 1, ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const BYTES_PER: Readonly<Record<string, number>> = {
  "": 1,
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
  kib: 1024,
  mib: 1024 ** 2,
  gib: 1024 ** 3,
  tib: 1024 ** 4,
};

export const DURATION_PATTERN = "^\\d+(\\.\\d+)? ?(ms|s|m|h|d)?$";
export const SIZE_PATTERN = "^\\d+(\\.\\d+)? ?([kKmMgGtT]i?)?[bB]?$";

/** Milliseconds, or `null` when it is no duration. */
export function parseDuration(text: string): number | null {
  return new RegExp(DURATION_PATTERN).test(text) ? amount(text, MS_PER) : null;
}

/** Bytes, or `null` when it is no size. `2G` and `2Gi` mean `2GB` and `2GiB`. */
export function parseSize(text: string): number | null {
  if (!new RegExp(SIZE_PATTERN).test(text)) return null;
  const spelled = /[kmgt]i?$/i.test(text) ? `${text}b` : text;
  return amount(spelled.toLowerCase(), BYTES_PER);
}

function amount(text: string, units: Readonly<Record<string, number>>): number | null {
  const [, digits = "", unit = ""] = /^([\d.]+) ?([a-z]*)$/.exec(text) ?? [];
  const factor = units[unit];
  const value = factor === undefined ? Number.NaN : Number(digits) * factor;
  // 1.5 s is 1,500 ms; a fraction of a millisecond is rounded.
  return Number.isFinite(value) ? Math.round(value) : null;
}

/** `90000` as `1m 30s`. */
export function showDuration(ms: number): string {
  if (ms < 1_000) return `${ms}ms`;
  const seconds = Math.round(ms / 1_000);
  const parts = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3_600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "m"],
    [seconds % 60, "s"],
  ] as const;
  return parts.flatMap(([count, unit]) => (count === 0 ? [] : [`${count}${unit}`])).join(" ");
}

/** `2147483648` as `2GiB`. */
export function showSize(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let [value, unit] = [bytes, 0];
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${unit === 0 || Number.isInteger(value) ? value : value.toFixed(1)}${units[unit]}`;
}
