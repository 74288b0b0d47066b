/** Values as people read them. */

/** Control and direction characters as escapes: a name from a sandbox must not change how the page reads. */
export function visible(text: string): string {
  return text.replaceAll(
    /[\p{Cc}\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu,
    (letter) => `\\u${(letter.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`,
  );
}

/** As `visible`, at most this long. */
export function short(text: string, max = 200): string {
  const shown = visible(text.slice(0, max));
  return text.length > max ? `${shown}…` : shown;
}

export function ageOf(since: number, now: number): string {
  const seconds = Math.max(0, Math.round((now - since) / 1_000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3_600)} h`;
}

/** In the past or to come. */
export function moment(at: number, now: number): string {
  return at <= now ? `${ageOf(at, now)} ago` : `in ${ageOf(now, at)}`;
}

export function clock(at: number): string {
  return new Date(at).toLocaleTimeString("en-GB");
}

export function dateTime(at: number): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? String(at) : `${date.toLocaleDateString("en-CA")} ${clock(at)}`;
}

export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count;
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit += 1) value /= 1024;
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function duration(ms: number): string {
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 100) return `${ms.toFixed(1)} ms`;
  return ms < 10_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;
}
