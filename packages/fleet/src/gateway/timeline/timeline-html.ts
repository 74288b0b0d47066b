/**
 * A timeline as one page that needs nothing else: no script, no address, no font. It opens from a disk, years later.
 *
 * Every text of an entry is hostile. It is escaped, and control and direction characters appear as what they are.
 */

import type { TimelineEntry, TimelinePage } from "@sandlot/contract";
import { factTexts, isoTime, summaryOf } from "@sandlot/contract";

import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";

export interface ExportAbout {
  readonly user: string;
  readonly thread: string;
  readonly exportedAt: number;
}

const STYLE = `:root{color-scheme:light dark;font:15px/1.45 system-ui,sans-serif}body{max-width:70rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}ol{list-style:none;padding:0}li{border-top:1px solid #8886;padding:.4rem 0}summary{cursor:pointer;overflow-wrap:anywhere}
time{font-variant-numeric:tabular-nums;opacity:.75;margin-right:.6rem}.kind{display:inline-block;min-width:6rem;font-weight:600}
.bad .kind{color:#b3261e}@media(prefers-color-scheme:dark){.bad .kind{color:#ff8f86}}dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem .8rem;margin:.5rem 0 .5rem 1rem}
dt{opacity:.75}dd{margin:0;overflow-wrap:anywhere;white-space:pre-wrap;font-family:ui-monospace,monospace}`;
/** Entries between two looks at other work. */
const AT_ONCE = 500;

/** The text of a file with the whole timeline. */
export async function timelineFile(
  format: "html" | "json",
  page: TimelinePage,
  about: ExportAbout,
  world: World,
): Promise<string> {
  const { entries, isWhole } = page;
  return format === "html" ? timelineHtml(page, about, world) : JSON.stringify({ ...about, isWhole, entries });
}

async function timelineHtml({ entries, isWhole }: TimelinePage, about: ExportAbout, world: World): Promise<string> {
  const title = `Timeline of ${escaped(about.user)}/${escaped(about.thread)}`;
  const note = isWhole ? "" : "<p>The log was full: its oldest entries were dropped.</p>";
  const parts = [
    `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">`,
    `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">`,
    `<meta name="referrer" content="no-referrer"><title>${title}</title><style>${STYLE}</style></head><body><main>`,
    `<h1>${title}</h1><p>${entries.length} entries, exported ${isoTime(about.exportedAt)}.</p>${note}<ol>`,
  ];
  for (const [index, entry] of entries.entries()) {
    parts.push(item(entry));
    if (index % AT_ONCE === AT_ONCE - 1) await sleep(world, 0);
  }
  parts.push("</ol></main></body></html>\n");
  return parts.join("");
}

function item(entry: TimelineEntry): string {
  const { at, kind, instance, sandboxId, generation } = entry;
  const facts: readonly (readonly [string, string])[] = [
    ...factTexts(entry),
    ["instance", instance],
    ...(sandboxId === null ? [] : [["sandbox", sandboxId] as const]),
    ...(generation === null ? [] : [["generation", String(generation)] as const]),
  ];
  const rows = facts.map(([name, value]) => `<dt>${escaped(name)}</dt><dd>${escaped(value)}</dd>`).join("");
  const bad = isBad(entry) ? ' class="bad"' : "";
  return (
    `<li${bad}><details><summary><time>${isoTime(at)}</time><span class="kind">${escaped(kind)}</span> ` +
    `${escaped(summaryOf(entry))}</summary><dl>${rows}</dl></details></li>\n`
  );
}

function isBad({ kind, facts }: TimelineEntry): boolean {
  if (["crash", "limit", "refused", "lost"].includes(kind)) return true;
  return kind === "command" && typeof facts.exitCode === "number" && facts.exitCode !== 0;
}

const MARKUP: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** Line breaks and tabs stay; what would hide or turn text is written as its number. */
function escaped(text: string): string {
  return text
    .replace(/[&<>"']/g, (mark) => MARKUP[mark] ?? mark)
    .replace(/[^\P{C}\n\t]|[\u2028\u2029]/gu, (mark) => `\\u{${(mark.codePointAt(0) ?? 0).toString(16)}}`);
}
