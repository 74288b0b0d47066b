/**
 * A terminal in the thread's sandbox. What it shows comes from the sandbox, and is hostile:
 * - links in the output lead nowhere, its titles change nothing of the page, and nothing reaches the clipboard;
 * - the client acknowledges what was shown, so that a flood waits in the sandbox and not here.
 */

import type { Terminal as RemoteTerminal, Sandbox } from "@sandlot/client";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Screen } from "@xterm/xterm";
import { useCallback, useEffect, useRef, useState } from "react";
import { short } from "../format.ts";
import { ErrorNotice, Notice } from "../parts/notice.tsx";
import { texts } from "../texts.ts";
import { Leased } from "./leased.tsx";

const t = texts.terminal;
const SCROLLBACK_LINES = 5_000;
const THEME = { background: "#16140f", foreground: "#f0ece3", cursor: "#e6b565", selectionBackground: "#5a4a2a" };

interface Wish {
  readonly serial: number;
  /** An open terminal; absent: a new one. */
  readonly terminalId?: string;
  readonly isWatching: boolean;
}

type End = { readonly code: number | null } | "broken";

export function TerminalPanel({ user, thread }: { readonly user: string; readonly thread: string }) {
  return (
    <Leased user={user} thread={thread} purpose="dashboard terminal" opening={t.opening}>
      {({ sandbox }) => <Terminals sandbox={sandbox} thread={thread} />}
    </Leased>
  );
}

/** A new terminal where there is none. Where some are open, the user chooses: a shell outlives the page that began it. */
function Terminals({ sandbox, thread }: { readonly sandbox: Sandbox; readonly thread: string }) {
  const [wish, setWish] = useState<Wish | null>(null);
  const [open, setOpen] = useState<readonly string[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    let isOver = false;
    sandbox.terminals.list().then(
      (all) => {
        if (isOver) return;
        setOpen(all.map(({ terminalId }) => terminalId));
        if (all.length === 0) setWish({ serial: 0, isWatching: false });
      },
      (problem) => !isOver && setError(problem),
    );
    return () => {
      isOver = true;
    };
  }, [sandbox]);
  const choose = (next: Omit<Wish, "serial">) => setWish({ ...next, serial: (wish?.serial ?? 0) + 1 });
  if (error !== null) return <ErrorNotice error={error} />;
  if (open === null) return <p className="empty">{t.opening}</p>;
  return (
    <>
      <div className="filters">
        <button type="button" className={wish === null ? "main" : ""} onClick={() => choose({ isWatching: false })}>
          {t.open}
        </button>
        {open.length > 0 && <span className="soft">{t.others}:</span>}
        {open.slice(0, 20).map((terminalId) => (
          <span key={terminalId} className="actions">
            <code>{short(terminalId, 16)}</code>
            <button type="button" onClick={() => choose({ terminalId, isWatching: false })}>
              {t.attach}
            </button>
            <button type="button" onClick={() => choose({ terminalId, isWatching: true })}>
              {t.watch}
            </button>
          </span>
        ))}
      </div>
      {wish?.isWatching === true && <Notice>{t.watching}</Notice>}
      {wish !== null && (
        <OneTerminal
          key={wish.serial}
          sandbox={sandbox}
          wish={wish}
          label={t.label(thread)}
          onAgain={(terminalId) => choose({ isWatching: wish.isWatching, ...(terminalId !== null && { terminalId }) })}
          onNew={() => choose({ isWatching: false })}
        />
      )}
    </>
  );
}

function OneTerminal({
  sandbox,
  wish: { terminalId, isWatching },
  label,
  onAgain,
  onNew,
}: {
  readonly sandbox: Sandbox;
  readonly wish: Wish;
  readonly label: string;
  onAgain(terminalId: string | null): void;
  onNew(): void;
}) {
  const place = useRef<HTMLDivElement>(null);
  const [end, setEnd] = useState<End | null>(null);
  const [error, setError] = useState<unknown>(null);
  const openId = useRef<string | null>(terminalId ?? null);

  const run = useCallback(
    async (screen: Screen, signal: AbortSignal) => {
      const size = { columns: screen.cols, rows: screen.rows };
      const remote: RemoteTerminal =
        terminalId === undefined
          ? await sandbox.terminals.open(size)
          : await sandbox.terminals.attach(terminalId, { fromOffset: 0 });
      openId.current = remote.terminalId;
      if (signal.aborted) {
        await remote.detach();
        // Left before it was shown: a shell that no page has seen would stay for nothing.
        if (terminalId === undefined) await sandbox.terminals.close(remote.terminalId);
        return;
      }
      signal.addEventListener("abort", () => void remote.detach(), { once: true });
      if (!isWatching) {
        remote.resize(size.columns, size.rows);
        screen.onData((text) => remote.write(text));
        screen.onResize(({ cols, rows }) => remote.resize(cols, rows));
        screen.focus();
      }
      // Bytes are acknowledged when they were shown.
      for await (const { bytes } of remote.output) await new Promise<void>((shown) => screen.write(bytes, shown));
      const ended = await remote.ended;
      if (!signal.aborted) setEnd(ended === null ? "broken" : { code: ended.exitCode });
    },
    [sandbox, terminalId, isWatching],
  );

  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const over = new AbortController();
    const screen = new Screen({
      ...{ theme: THEME, scrollback: SCROLLBACK_LINES, fontSize: 14, disableStdin: isWatching },
      fontFamily: 'ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", monospace',
      linkHandler: { activate: () => undefined },
    });
    const fit = new FitAddon();
    screen.loadAddon(fit);
    screen.open(element);
    screen.textarea?.setAttribute("aria-label", label);
    fit.fit();
    const sizes = new ResizeObserver(() => fit.fit());
    sizes.observe(element);
    run(screen, over.signal).catch((problem: unknown) => !over.signal.aborted && setError(problem));
    return () => {
      over.abort();
      sizes.disconnect();
      screen.dispose();
    };
  }, [run, isWatching, label]);

  return (
    <>
      {error !== null && <ErrorNotice error={error} retry={() => onAgain(null)} />}
      {end !== null && (
        <Notice kind={end === "broken" ? "warn" : "info"}>
          {end === "broken" ? t.broken : t.ended(end.code)}
          <button type="button" onClick={() => (end === "broken" ? onAgain(openId.current) : onNew())}>
            {end === "broken" ? t.resume : t.again}
          </button>
        </Notice>
      )}
      <div className="terminal-place" ref={place} />
    </>
  );
}
