/** The tail of the gateway's log. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { dashboard } from "../api.ts";
import { dateTime, short } from "../format.ts";
import { ErrorNotice, Notice } from "../parts/notice.tsx";
import { texts } from "../texts.ts";

const t = texts.administration.lines;
const AGAIN_MS = 2_000;
const KINDS: Readonly<Record<string, string>> = { warn: "warn", error: "bad", fatal: "bad", info: "info" };

export function LogLines() {
  const { data, error, refetch } = useQuery({
    queryKey: ["log-lines"],
    queryFn: () => dashboard.log(),
    refetchInterval: AGAIN_MS,
  });
  const [filter, setFilter] = useState("");
  if (error !== null) return <ErrorNotice error={error} retry={refetch} />;
  if (data === undefined) return <p className="empty">{texts.loading}</p>;
  if (data.lines === null) return <Notice>{t.unknown}</Notice>;
  const wanted = filter.toLowerCase();
  const shown = data.lines.filter(({ text, level }) => `${level} ${text}`.toLowerCase().includes(wanted)).reverse();
  return (
    <>
      <p className="soft">{t.hint}</p>
      <search className="filters">
        <div className="field">
          <label htmlFor="line-filter">{t.filter}</label>
          <input id="line-filter" type="search" value={filter} onChange={(event) => setFilter(event.target.value)} />
        </div>
      </search>
      {shown.length === 0 ? (
        <p className="empty">{t.empty}</p>
      ) : (
        <div className="card scroll">
          <table className="plain">
            <thead>
              <tr>
                <th>{t.columns.at}</th>
                <th>{t.columns.level}</th>
                <th>{t.columns.text}</th>
              </tr>
            </thead>
            <tbody>
              {shown.map(({ number, at, level, text }) => (
                <tr key={number}>
                  <td>{at === null ? "" : dateTime(at)}</td>
                  <td>
                    <span className={`badge ${KINDS[level] ?? ""}`}>{level}</span>
                  </td>
                  <td>
                    <code>{short(text, 2_000)}</code>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
