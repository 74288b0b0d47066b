/** One thread: its state and why, its terminal, its files. Looking at it starts nothing. */

import * as Tabs from "@radix-ui/react-tabs";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useMemo, useRef, useState } from "react";
import { short } from "../format.ts";
import { useLive } from "../live.tsx";
import { Confirm, type Question } from "../parts/confirm.tsx";
import { ErrorNotice, Notice } from "../parts/notice.tsx";
import { StateBadge } from "../parts/state-badge.tsx";
import { actionsOf, isDangerous, questionOf, type ThreadAction } from "../parts/thread-actions.ts";
import { useSession } from "../session.tsx";
import { texts } from "../texts.ts";
import { FilesPanel } from "../thread/files-panel.tsx";
import { PreviewsPanel } from "../thread/previews-panel.tsx";
import { StatePanel } from "../thread/state-panel.tsx";
import { TimelinePanel } from "../timeline/timeline-panel.tsx";

const TerminalPanel = lazy(async () => ({ default: (await import("../thread/terminal-panel.tsx")).TerminalPanel }));
const t = texts.thread;
const TABS = ["state", "timeline", "terminal", "files", "previews"] as const;
/** They hold a lease while they are open. */
const LEASING = ["terminal", "files", "previews"] as const;

export function ThreadPage() {
  const { user, thread } = useParams({ from: "/threads/$user/$thread" });
  const { tab: wanted, path } = useSearch({ from: "/threads/$user/$thread" });
  const { clientOf } = useSession();
  const client = useMemo(() => clientOf(user), [clientOf, user]);
  const navigate = useNavigate();
  const [question, setQuestion] = useState<Question | null>(null);
  const [starting, setStarting] = useState<{ readonly error: unknown } | "busy" | null>(null);
  const summary = useQuery({ queryKey: ["thread", user, thread], queryFn: () => client.findThread(thread) });
  const lost = useLoss(user, thread);
  const tab = TABS.find((one) => one === wanted) ?? "state";
  const sandbox = summary.data?.sandbox ?? null;
  const show = (search: { tab?: string; path?: string }) =>
    void navigate({ to: "/threads/$user/$thread", params: { user, thread }, search, replace: true });

  const ask = (action: ThreadAction) => {
    const question = questionOf(action, client, user, thread);
    const act = async (force: boolean) => {
      await question.act(force);
      if (action === "purge") await navigate({ to: "/threads" });
    };
    setQuestion({ ...question, act });
  };
  const start = async () => {
    setStarting("busy");
    try {
      await (await client.acquire({ thread, purpose: "dashboard" })).release();
      setStarting(null);
    } catch (error) {
      setStarting({ error });
    }
    await summary.refetch();
  };

  if (summary.error !== null) return <ErrorNotice error={summary.error} retry={summary.refetch} />;
  if (summary.data === undefined) return <p className="empty">{texts.loading}</p>;
  return (
    <>
      <div className="head">
        <h1>
          {short(thread, 64)} <small className="soft">{t.of(short(user, 128))}</small>
        </h1>
        <StateBadge state={sandbox?.state ?? "none"} />
        <div className="push">
          {summary.data !== null &&
            actionsOf(sandbox !== null).map((action) => (
              <button
                key={action}
                type="button"
                className={isDangerous(action) ? "danger" : ""}
                onClick={() => ask(action)}
              >
                {texts.actions[action].button}
              </button>
            ))}
        </div>
      </div>
      {lost !== null && <Notice kind="bad">{t.lost(short(lost))}</Notice>}
      {summary.data === null ? (
        <p className="empty">{t.missing}</p>
      ) : (
        <Tabs.Root value={tab} onValueChange={(next) => show({ tab: next })} activationMode="manual">
          <Tabs.List aria-label={thread}>
            {TABS.map((one) => (
              <Tabs.Trigger key={one} value={one}>
                {t.tabs[one]}
              </Tabs.Trigger>
            ))}
          </Tabs.List>
          <Tabs.Content value="state" tabIndex={-1}>
            <StatePanel client={client} user={user} thread={thread} sandbox={sandbox} />
          </Tabs.Content>
          <Tabs.Content value="timeline" tabIndex={-1}>
            <TimelinePanel client={client} thread={thread} sandbox={sandbox} />
          </Tabs.Content>
          {LEASING.map((one) => (
            <Tabs.Content key={one} value={one} tabIndex={-1}>
              {sandbox === null && tab === one ? (
                <div className="empty">
                  <p>{t.noSandbox}</p>
                  <p>{t.noSandboxHint}</p>
                  {starting !== null && starting !== "busy" && <ErrorNotice error={starting.error} />}
                  <button type="button" className="main" disabled={starting === "busy"} onClick={() => void start()}>
                    {starting === "busy" ? t.starting : t.start}
                  </button>
                </div>
              ) : one === "terminal" ? (
                <Suspense fallback={<p className="empty">{texts.loading}</p>}>
                  <TerminalPanel user={user} thread={thread} />
                </Suspense>
              ) : one === "previews" ? (
                <PreviewsPanel user={user} thread={thread} />
              ) : (
                <FilesPanel
                  user={user}
                  thread={thread}
                  path={path}
                  onPath={(next) => show({ tab: "files", path: next })}
                />
              )}
            </Tabs.Content>
          ))}
        </Tabs.Root>
      )}
      <Confirm
        question={question}
        onDone={(happened) => {
          setQuestion(null);
          if (happened) void summary.refetch();
        }}
      />
    </>
  );
}

/** Why the thread's sandbox was lost, since this page was opened and until there is another one. */
function useLoss(user: string, thread: string): string | null {
  const { events } = useLive();
  const opened = useRef(Date.now());
  const [lost, setLost] = useState<string | null>(null);
  useEffect(() => {
    const own = events.find(
      ({ event }) =>
        "thread" in event &&
        event.thread === thread &&
        event.user === user &&
        ["sandbox-lost", "sandbox-created", "sandbox-bound", "sandbox-stopped"].includes(event.type),
    )?.event;
    if (own === undefined || own.at < opened.current - 5_000) return;
    if (own.type === "sandbox-lost") setLost(own.cause === undefined ? own.reason : `${own.reason} (${own.cause})`);
    else if (own.type === "sandbox-stopped") {
      if (own.reason === "crashed") setLost(own.reason);
    } else setLost(null);
  }, [events, user, thread]);
  return lost;
}
