/** Hosts that egress refused, each with the rule that would allow it, ready to copy. Names come from the sandbox. */

import { useState } from "react";
import { short, visible } from "../format.ts";
import { texts } from "../texts.ts";

const t = texts.overview;

export interface RefusedHost {
  readonly host: string;
  readonly port: number;
  readonly rule: string;
  readonly count: number;
}

export function RefusedHosts({ hosts, empty }: { readonly hosts: readonly RefusedHost[]; readonly empty: string }) {
  const [copied, setCopied] = useState<string | null>(null);
  return (
    <section className="card">
      <h2>{t.refusals}</h2>
      {hosts.length === 0 ? (
        <p className="soft">{empty}</p>
      ) : (
        <>
          <p className="soft">{t.rule}</p>
          <ul className="feed">
            {hosts.map(({ host, port, rule, count }) => {
              const allowing = `- { host: ${JSON.stringify(visible(host))}, ports: [${port}] }`;
              return (
                <li key={`${host}:${port} ${rule}`}>
                  <span>
                    {t.refusal(short(host), port, count)}
                    <br />
                    <code>{short(allowing, 400)}</code>
                  </span>
                  <button
                    type="button"
                    className="push"
                    aria-label={t.copyRule(short(host))}
                    onClick={() => navigator.clipboard.writeText(allowing).then(() => setCopied(allowing))}
                  >
                    {copied === allowing ? texts.copied : texts.copy}
                  </button>
                </li>
              );
            })}
          </ul>
        </>
      )}
    </section>
  );
}

/** Of a thread's events, the newest first, each host and port once. */
export function refusedIn(events: readonly Readonly<Record<string, unknown>>[]): readonly RefusedHost[] {
  const found = new Map<string, RefusedHost>();
  for (const { type, host, port, rule } of events) {
    if (type !== "egress-refused" || typeof host !== "string" || typeof port !== "number") continue;
    const name = `${host}:${port}`;
    const count = (found.get(name)?.count ?? 0) + 1;
    found.delete(name);
    found.set(name, { host, port, rule: typeof rule === "string" ? rule : "", count });
  }
  return [...found.values()].reverse();
}
