/** For operators: keys, the configuration, what doctor finds, the audit log, versions. */

import * as Tabs from "@radix-ui/react-tabs";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { Keys } from "../administration/keys.tsx";
import { LogLines } from "../administration/log-lines.tsx";
import { dashboard } from "../api.ts";
import { dateTime, short } from "../format.ts";
import { ErrorNotice, Notice } from "../parts/notice.tsx";
import { useSession } from "../session.tsx";
import { texts } from "../texts.ts";

const t = texts.administration;
const SECTIONS = ["keys", "configuration", "doctor", "log", "lines", "versions"];

export function AdministrationPage() {
  const { section } = useParams({ strict: false });
  const { isOperator } = useSession();
  const navigate = useNavigate();
  // For others this page does not exist.
  if (!isOperator) return <p className="empty">{texts.notFound}</p>;
  const shown = SECTIONS.find((one) => one === section) ?? "keys";
  return (
    <>
      <div className="head">
        <h1>{t.title}</h1>
      </div>
      <Tabs.Root
        value={shown}
        activationMode="manual"
        onValueChange={(next) => void navigate({ to: "/administration/$section", params: { section: next } })}
      >
        <Tabs.List aria-label={t.title}>
          {SECTIONS.map((one) => (
            <Tabs.Trigger key={one} value={one}>
              {t.sections[one]}
            </Tabs.Trigger>
          ))}
        </Tabs.List>
        <Tabs.Content value="keys" tabIndex={-1}>
          <Keys />
        </Tabs.Content>
        <Tabs.Content value="configuration" tabIndex={-1}>
          <Configuration />
        </Tabs.Content>
        <Tabs.Content value="doctor" tabIndex={-1}>
          <Doctor />
        </Tabs.Content>
        <Tabs.Content value="log" tabIndex={-1}>
          <AuditLog />
        </Tabs.Content>
        <Tabs.Content value="lines" tabIndex={-1}>
          <LogLines />
        </Tabs.Content>
        <Tabs.Content value="versions" tabIndex={-1}>
          <Versions />
        </Tabs.Content>
      </Tabs.Root>
    </>
  );
}

const useConfiguration = () =>
  useQuery({ queryKey: ["configuration"], queryFn: () => dashboard.configuration(), staleTime: 60_000 });

function Configuration() {
  const { data, error, refetch } = useConfiguration();
  const [filter, setFilter] = useState("");
  if (error !== null) return <ErrorNotice error={error} retry={refetch} />;
  if (data === undefined) return <p className="empty">{texts.loading}</p>;
  const { file, values } = data;
  if (values === null) return <Notice>{t.configuration.unknown}</Notice>;
  const shown = values.filter(({ path }) => path.toLowerCase().includes(filter.toLowerCase()));
  return (
    <>
      <p>{t.configuration.file(file)}</p>
      <search className="filters">
        <div className="field">
          <label htmlFor="filter">{t.configuration.filter}</label>
          <input id="filter" type="search" value={filter} onChange={(event) => setFilter(event.target.value)} />
        </div>
      </search>
      <div className="card scroll">
        <table className="plain">
          <thead>
            <tr>
              <th>{t.configuration.columns.path}</th>
              <th>{t.configuration.columns.value}</th>
              <th>{t.configuration.columns.origin}</th>
            </tr>
          </thead>
          <tbody>
            {shown.map(({ path, value, origin }) => (
              <tr key={path}>
                <td>
                  <code>{path}</code>
                </td>
                <td>
                  <code>{short(value, 500)}</code>
                </td>
                <td>
                  <span className={origin === "default" ? "badge" : "badge info"}>
                    {t.configuration.origins[origin] ?? origin}
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

const SIGNS: Readonly<Record<string, string>> = { ok: "good", warn: "warn", fail: "bad" };

function Doctor() {
  const { data, error, refetch, isFetching } = useQuery({
    queryKey: ["doctor"],
    queryFn: () => dashboard.doctor(),
    staleTime: 60_000,
  });
  if (error !== null) return <ErrorNotice error={error} retry={refetch} />;
  if (data === undefined) return <p className="empty">{t.doctor.looking}</p>;
  if (data.findings === null) return <Notice>{t.doctor.unknown}</Notice>;
  return (
    <>
      <div className="head">
        {data.findings.every(({ status }) => status !== "fail") && <span className="badge good">{t.doctor.ready}</span>}
        <div className="push">
          <button type="button" disabled={isFetching} onClick={() => void refetch()}>
            {isFetching ? t.doctor.looking : t.doctor.run}
          </button>
        </div>
      </div>
      <div className="card scroll">
        <table className="plain">
          <tbody>
            {data.findings.map(({ name, status, detail, fix }) => (
              <tr key={name}>
                <td>
                  <span className={`badge ${SIGNS[status] ?? ""}`}>{status}</span>
                </td>
                <th scope="row">{name}</th>
                <td>
                  {short(detail, 2_000)}
                  {fix !== undefined && status !== "ok" && (
                    <div className="soft">
                      {t.doctor.fix} {short(fix, 2_000)}
                    </div>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function AuditLog() {
  const { client } = useSession();
  const { data, error, refetch } = useQuery({ queryKey: ["audit"], queryFn: () => client.audit() });
  if (error !== null) return <ErrorNotice error={error} retry={refetch} />;
  if (data === undefined) return <p className="empty">{texts.loading}</p>;
  if (data.entries.length === 0) return <p className="empty">{t.log.empty}</p>;
  const { columns } = t.log;
  return (
    <>
      <p className="soft">{t.log.hint}</p>
      <div className="card scroll">
        <table className="plain">
          <thead>
            <tr>
              <th>{columns.at}</th>
              <th>{columns.who}</th>
              <th>{columns.user}</th>
              <th>{columns.what}</th>
              <th>{columns.status}</th>
              <th>{columns.from}</th>
            </tr>
          </thead>
          <tbody>
            {data.entries.map((entry) => (
              <tr key={entry.requestId}>
                <td>{dateTime(entry.at)}</td>
                <td>
                  <code>{entry.keyId ?? t.log.noKey}</code>
                </td>
                <td>
                  {entry.user ?? "–"}
                  {entry.thread !== null && ` / ${short(entry.thread, 64)}`}
                </td>
                <td>
                  <code>
                    {entry.method} {short(entry.route, 200)}
                  </code>
                </td>
                <td>
                  <span className={`badge ${entry.status >= 400 ? "bad" : "good"}`}>
                    {entry.status} {entry.code ?? ""}
                  </span>
                </td>
                <td>{entry.remoteAddress}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function Versions() {
  const { data, error, refetch } = useConfiguration();
  if (error !== null) return <ErrorNotice error={error} retry={refetch} />;
  if (data === undefined) return <p className="empty">{texts.loading}</p>;
  return (
    <div className="card">
      <table className="plain">
        <thead>
          <tr>
            <th>{t.versions.columns.part}</th>
            <th>{t.versions.columns.version}</th>
          </tr>
        </thead>
        <tbody>
          {Object.entries(data.versions).map(([part, version]) => (
            <tr key={part}>
              <td>{part}</td>
              <td>
                <code>{version}</code>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
