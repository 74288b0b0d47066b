/**
 * Servers inside a sandbox, shown in a frame. The frame has an origin of its own, and its cookie is partitioned: it
 * reaches nothing of this page, and no other page can show it with this link.
 */

import type { Sandbox, SandlotClient } from "@sandlot/client";
import { isSandlotError } from "@sandlot/client";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { ErrorNotice, Notice } from "../parts/notice.tsx";
import { useSession } from "../session.tsx";
import { texts } from "../texts.ts";
import { Leased } from "./leased.tsx";

const t = texts.previews;
const LOOK_MS = 10_000;
/** It may do what pages do, and not lead this page elsewhere. */
const ALLOWED = "allow-scripts allow-same-origin allow-forms allow-popups allow-modals allow-downloads";

export function PreviewsPanel({ user, thread }: { readonly user: string; readonly thread: string }) {
  const { clientOf } = useSession();
  return (
    <Leased user={user} thread={thread} purpose="dashboard previews">
      {({ sandbox }) => <Ports client={clientOf(user)} thread={thread} sandbox={sandbox} />}
    </Leased>
  );
}

function Ports({
  client,
  thread,
  sandbox,
}: {
  readonly client: SandlotClient;
  readonly thread: string;
  readonly sandbox: Sandbox;
}) {
  const [port, setPort] = useState<number | null>(null);
  const [wanted, setWanted] = useState("");
  const ports = useQuery({
    queryKey: ["ports", sandbox.id, sandbox.generation],
    queryFn: () => sandbox.ports.list(),
    // Each look is a lease in the thread's history.
    refetchInterval: port === null ? LOOK_MS : false,
  });
  const listening = ports.data ?? [];
  return (
    <>
      <p className="soft">{t.hint}</p>
      {ports.error !== null && <ErrorNotice error={ports.error} retry={ports.refetch} />}
      <form
        className="filters"
        onSubmit={(event) => {
          event.preventDefault();
          setPort(Number(wanted));
        }}
      >
        {listening.slice(0, 50).map((one) => (
          <button
            key={one.port}
            type="button"
            className={port === one.port ? "main" : ""}
            onClick={() => setPort(one.port)}
          >
            {one.port}
          </button>
        ))}
        <div className="field">
          <label htmlFor="port">{t.port}</label>
          <input
            id="port"
            type="number"
            required
            min={1}
            max={65_535}
            value={wanted}
            onChange={(event) => setWanted(event.target.value)}
          />
        </div>
        <button type="submit">{t.show}</button>
        <button type="button" onClick={() => void ports.refetch()}>
          {t.refresh}
        </button>
      </form>
      {ports.data !== undefined && listening.length === 0 && port === null && <p className="empty">{t.none}</p>}
      {port !== null && <Preview key={port} client={client} thread={thread} port={port} />}
    </>
  );
}

function Preview({
  client,
  thread,
  port,
}: {
  readonly client: SandlotClient;
  readonly thread: string;
  readonly port: number;
}) {
  const link = useQuery({
    queryKey: ["preview", thread, port],
    queryFn: async () => {
      const tab = await client.linkPort(thread, port);
      try {
        return { tab, frame: await client.linkPort(thread, port, { frame: true }) };
      } catch (error) {
        // Refused where a frame could keep no cookie.
        if (isSandlotError(error, "invalid_request")) return { tab, frame: null };
        throw error;
      }
    },
    gcTime: 0,
    // A link that is in use is not replaced: the frame would begin anew.
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (link.error !== null) return <ErrorNotice error={link.error} retry={link.refetch} />;
  if (link.data === undefined) return <p className="empty">{texts.loading}</p>;
  const { tab, frame } = link.data;
  return (
    <>
      <div className="filters">
        <button type="button" onClick={() => void link.refetch()}>
          {t.reload}
        </button>
        <a className="button" href={tab.url} target="_blank" rel="noopener noreferrer">
          {t.openTab}
        </a>
      </div>
      {frame === null ? (
        <Notice>{t.noFrame}</Notice>
      ) : (
        <>
          <iframe
            key={frame.url}
            className="preview"
            src={frame.url}
            title={t.frame(port)}
            sandbox={ALLOWED}
            referrerPolicy="no-referrer"
          />
          <p className="soft">
            {t.unreached} <code>{new URL(frame.url).origin}</code>
          </p>
        </>
      )}
    </>
  );
}
