/** The details of one entry; of a command its output, a part at a time, while its sandbox still remembers it. */

import { factTexts, type SandboxSummary, type SandlotClient, summaryOf, type TimelineEntry } from "@sandlot/client";
import { useEffect, useRef, useState } from "react";
import { dateTime, visible } from "../format.ts";
import { ErrorNotice } from "../parts/notice.tsx";
import { texts } from "../texts.ts";

const t = texts.timeline;
const PART_BYTES = 64 * 1024;

interface DetailsProps {
  readonly client: SandlotClient;
  readonly thread: string;
  readonly sandbox: SandboxSummary | null;
  readonly entry: TimelineEntry;
}

export function EntryDetails({ onClose, ...props }: DetailsProps & { onClose(): void }) {
  const { entry } = props;
  const { at, kind, facts, instance, sandboxId, generation } = entry;
  const box = useRef<HTMLElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another entry is looked at
  useEffect(() => {
    // Newer browsers answer with a promise, which is no clean-up.
    void box.current?.scrollIntoView({ block: "nearest" });
  }, [entry.offset]);
  const more: readonly (readonly [string, string])[] = [
    [t.when, dateTime(at)],
    ...factTexts(entry).filter(([name]) => name !== "allow"),
    ["instance", instance],
    ...(sandboxId === null ? [] : [["sandbox", sandboxId] as const]),
    ...(generation === null ? [] : [["generation", String(generation)] as const]),
  ];
  return (
    <section className="card wide details" ref={box} aria-label={t.details}>
      <div className="head">
        <h3>{visible(summaryOf(entry)).slice(0, 2_500)}</h3>
        <button type="button" className="push" onClick={onClose}>
          {t.close}
        </button>
      </div>
      <dl className="facts">
        {more.map(([name, text]) => (
          <div key={name} style={{ display: "contents" }}>
            <dt>{visible(name)}</dt>
            <dd>{shown(text)}</dd>
          </div>
        ))}
      </dl>
      {kind === "refused" && typeof facts.allow === "string" && <Rule text={facts.allow} />}
      {kind === "command" && <Output {...props} key={entry.offset} />}
    </section>
  );
}

/** What would allow a refused connection, ready to copy. */
function Rule({ text }: { readonly text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  return (
    <div className="rule">
      <p>{t.rule}</p>
      <pre>{visible(text)}</pre>
      <button type="button" onClick={() => void copy()}>
        {isCopied ? t.copied : t.copy}
      </button>
    </div>
  );
}

interface Read {
  readonly text: string;
  readonly next: number;
  readonly total: number;
  /** Bytes before the text that are no longer held. */
  readonly dropped: number;
}

const NOTHING: Read = { text: "", next: 0, total: 0, dropped: 0 };

function Output({ client, thread, sandbox, entry }: DetailsProps) {
  const [read, setRead] = useState<{ readonly stdout: Read; readonly stderr: Read } | null>(null);
  const [state, setState] = useState<"busy" | { readonly error: unknown } | null>(null);
  const { execId, way } = entry.facts;
  if (way === "terminal") return <p className="soft">{t.inTerminal}</p>;
  if (typeof execId !== "string") return <p className="soft">{t.notKept}</p>;
  // Asking for it would start another sandbox, which knows nothing of it.
  if (sandbox === null || sandbox.generation !== entry.generation) return <p className="soft">{t.outputGone}</p>;
  const more = async () => {
    setState("busy");
    try {
      await using lease = await client.acquire({ thread, purpose: "dashboard: output" });
      const { stdout = NOTHING, stderr = NOTHING } = read ?? {};
      const from = { stdout: stdout.next, stderr: stderr.next };
      const output = await lease.sandbox.execs.output(execId, { from, maxBytes: PART_BYTES });
      setRead({ stdout: grown(stdout, output.stdout), stderr: grown(stderr, output.stderr) });
      setState(null);
    } catch (error) {
      setState({ error });
    }
  };
  const isAll = read !== null && read.stdout.next >= read.stdout.total && read.stderr.next >= read.stderr.total;
  return (
    <>
      {read !== null &&
        (["stdout", "stderr"] as const).map((stream) => {
          const { text, next, total, dropped } = read[stream];
          if (total === 0) return null;
          return (
            <figure key={stream}>
              <figcaption className="soft">{t.output(stream, next, total, dropped)}</figcaption>
              {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached with the keyboard */}
              <section tabIndex={0} aria-label={stream}>
                <pre>{shown(text)}</pre>
              </section>
            </figure>
          );
        })}
      {read !== null && isAll && read.stdout.total + read.stderr.total === 0 && <p className="soft">{t.noOutput}</p>}
      {state !== null && state !== "busy" && <ErrorNotice error={state.error} />}
      {!isAll && (
        <button type="button" disabled={state === "busy"} onClick={() => void more()}>
          {read === null ? t.showOutput : t.moreOutput}
        </button>
      )}
    </>
  );
}

function grown(
  before: Read,
  part: { readonly text: string; readonly offset: number; readonly nextOffset: number; readonly totalBytes: number },
): Read {
  return {
    ...{ text: before.text + part.text, next: part.nextOffset, total: part.totalBytes },
    dropped: before.dropped + Math.max(0, part.offset - before.next),
  };
}

/** Line breaks and tabs stay. */
function shown(text: string): string {
  return text
    .split(/([\n\t])/)
    .map((piece) => (piece === "\n" || piece === "\t" ? piece : visible(piece)))
    .join("");
}
