/**
 * One file: text, also formatted, an image or a PDF. Nothing of a file is ever read as a page: text is text, also where
 * it is HTML, and an image is decoded as an image, in which no script runs.
 */

import { type FileStat, isSandlotError, type Sandbox } from "@sandlot/client";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import { bytes, short } from "../format.ts";
import { ErrorNotice, Notice } from "../parts/notice.tsx";
import { texts } from "../texts.ts";
import { BlobView } from "../viewer/blob-view.tsx";
import { readContent } from "../viewer/content.ts";

const Code = lazy(async () => ({ default: (await import("../viewer/code.tsx")).Code }));
const MarkdownView = lazy(async () => ({ default: (await import("../viewer/markdown-view.tsx")).MarkdownView }));
const DelimitedTable = lazy(async () => ({ default: (await import("../viewer/delimited-table.tsx")).DelimitedTable }));
const t = texts.files;

export function Viewer({
  sandbox,
  stat,
  onClose,
  onSaved,
  onDownload,
}: {
  readonly sandbox: Sandbox;
  readonly stat: FileStat;
  onClose(): void;
  onSaved(): Promise<void>;
  onDownload(): void;
}) {
  const name = stat.path.slice(stat.path.lastIndexOf("/") + 1);
  const [draft, setDraft] = useState<string | null>(null);
  const [isSource, setSource] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const content = useQuery({
    queryKey: ["file", sandbox.id, stat.path, stat.version],
    queryFn: ({ signal }) => readContent(sandbox, stat, signal),
    gcTime: 0,
  });
  const data = content.data;
  /** Only over the version that was read, or that was named since: a change from inside is not lost unseen. */
  const save = async (ifVersion: string) => {
    setError(null);
    try {
      await sandbox.files.write(stat.path, draft ?? "", { ifVersion });
      setDraft(null);
      await onSaved();
    } catch (problem) {
      setError(problem);
    }
  };
  const saveOver = async () => {
    try {
      await save((await sandbox.files.stat(stat.path)).version);
    } catch (problem) {
      setError(problem);
    }
  };
  const formatted = data?.kind === "text" && draft === null && !isSource ? data.formatted : null;
  return (
    <section className="card viewer" aria-label={t.viewer(short(name))}>
      <div className="head">
        <h2>
          <bdi>{short(name)}</bdi> <span className="soft">{bytes(stat.sizeBytes)}</span>
        </h2>
        <div className="push">
          {data?.kind === "text" && data.formatted !== null && draft === null && (
            <button type="button" aria-pressed={isSource} onClick={() => setSource(!isSource)}>
              {t.source}
            </button>
          )}
          {data?.kind === "text" && !data.isCut && draft === null && (
            <button type="button" onClick={() => setDraft(data.text)}>
              {t.edit}
            </button>
          )}
          {draft !== null && (
            <>
              <button type="button" className="main" onClick={() => void save(stat.version)}>
                {t.save}
              </button>
              <button type="button" onClick={() => setDraft(null)}>
                {texts.cancel}
              </button>
            </>
          )}
          <button type="button" onClick={onClose}>
            {texts.close}
          </button>
        </div>
      </div>
      {isSandlotError(error, "file_changed") ? (
        <div className="notice warn" role="alert">
          <span>{t.conflict}</span>
          <button type="button" onClick={() => void onSaved()}>
            {t.loadPresent}
          </button>
          <button type="button" className="danger" onClick={() => void saveOver()}>
            {t.saveOver}
          </button>
        </div>
      ) : (
        error !== null && <ErrorNotice error={error} />
      )}
      {content.error !== null && <ErrorNotice error={content.error} retry={content.refetch} />}
      {data === undefined && content.error === null && <p className="soft">{texts.loading}</p>}
      {data?.kind === "binary" && (
        <Notice>
          {t.binary}
          <button type="button" onClick={onDownload}>
            {t.download}
          </button>
        </Notice>
      )}
      {(data?.kind === "image" || data?.kind === "pdf") && <BlobView kind={data.kind} blob={data.blob} name={name} />}
      {data?.kind === "text" && draft !== null && (
        <textarea aria-label={t.viewer(short(name))} value={draft} onChange={(event) => setDraft(event.target.value)} />
      )}
      {data?.kind === "text" && draft === null && (
        <Suspense fallback={<p className="soft">{texts.loading}</p>}>
          {data.isCut && <Notice kind="warn">{t.tooLarge(bytes(stat.sizeBytes))}</Notice>}
          {formatted === "markdown" ? (
            <MarkdownView name={name} text={data.text} />
          ) : formatted === "table" ? (
            <DelimitedTable name={name} text={data.text} />
          ) : (
            <Code name={name} text={data.text} />
          )}
        </Suspense>
      )}
    </section>
  );
}
