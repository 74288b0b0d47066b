/**
 * One file: text or an image. Nothing of a file is ever read as a page: text is text, also where it is HTML, and an
 * image is decoded as an image, in which no script runs.
 */

import type { FileStat, Sandbox } from "@sandlot/client";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { bytes, short } from "../format.ts";
import { ErrorNotice, Notice } from "../parts/notice.tsx";
import { texts } from "../texts.ts";

const t = texts.files;
/** More text than this makes a page slow, and is no longer read by a person. */
const TEXT_MAX_BYTES = 512 * 1024;
const IMAGE_MAX_BYTES = 20 * 1024 * 1024;
const IMAGES: Readonly<Record<string, string>> = {
  ...{ png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" },
  ...{ avif: "image/avif", svg: "image/svg+xml", bmp: "image/bmp", ico: "image/x-icon" },
};

type Content =
  | { readonly kind: "text"; readonly text: string; readonly isCut: boolean }
  | { readonly kind: "image"; readonly blob: Blob }
  | { readonly kind: "binary" };

export function Viewer({
  sandbox,
  stat,
  onClose,
  onSaved,
}: {
  readonly sandbox: Sandbox;
  readonly stat: FileStat;
  onClose(): void;
  onSaved(): Promise<void>;
}) {
  const name = stat.path.slice(stat.path.lastIndexOf("/") + 1);
  const [draft, setDraft] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const content = useQuery({
    queryKey: ["file", sandbox.id, stat.path, stat.version],
    queryFn: ({ signal }) => read(sandbox, stat, signal),
    gcTime: 0,
  });
  const data = content.data;
  const save = async () => {
    setError(null);
    try {
      // Only over the version that was read: a change from inside is not lost.
      await sandbox.files.write(stat.path, draft ?? "", { ifVersion: stat.version });
      setDraft(null);
      await onSaved();
    } catch (problem) {
      setError(problem);
    }
  };
  return (
    <section className="card viewer" aria-label={t.viewer(short(name))}>
      <div className="head">
        <h2>
          <bdi>{short(name)}</bdi> <span className="soft">{bytes(stat.sizeBytes)}</span>
        </h2>
        <div className="push">
          {data?.kind === "text" && !data.isCut && draft === null && (
            <button type="button" onClick={() => setDraft(data.text)}>
              {t.edit}
            </button>
          )}
          {draft !== null && (
            <>
              <button type="button" className="main" onClick={() => void save()}>
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
      {error !== null && <ErrorNotice error={error} />}
      {content.error !== null && <ErrorNotice error={content.error} retry={content.refetch} />}
      {data === undefined && content.error === null && <p className="soft">{texts.loading}</p>}
      {data?.kind === "binary" && <Notice>{t.binary}</Notice>}
      {data?.kind === "image" && <Image blob={data.blob} name={name} />}
      {data?.kind === "text" && draft !== null && (
        <textarea aria-label={t.viewer(short(name))} value={draft} onChange={(event) => setDraft(event.target.value)} />
      )}
      {data?.kind === "text" && draft === null && (
        <>
          {data.isCut && <Notice kind="warn">{t.tooLarge(bytes(stat.sizeBytes))}</Notice>}
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached with the keyboard */}
          <pre tabIndex={0}>{data.text}</pre>
        </>
      )}
    </section>
  );
}

function Image({ blob, name }: { readonly blob: Blob; readonly name: string }) {
  const [url, setUrl] = useState<string | null>(null);
  useEffect(() => {
    const made = URL.createObjectURL(blob);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [blob]);
  return url === null ? null : <img src={url} alt={short(name)} />;
}

async function read(sandbox: Sandbox, stat: FileStat, signal: AbortSignal): Promise<Content> {
  const extension = /\.([A-Za-z0-9]+)$/.exec(stat.path)?.[1]?.toLowerCase() ?? "";
  const type = IMAGES[extension];
  const max = type === undefined ? TEXT_MAX_BYTES : IMAGE_MAX_BYTES;
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  for await (const part of sandbox.files.download(stat.path, { length: max })) {
    signal.throwIfAborted();
    parts.push(part as Uint8Array<ArrayBuffer>);
    size += part.byteLength;
    // A link's target may be larger than was asked for.
    if (size >= max) break;
  }
  const blob = new Blob(parts, { type: type ?? "text/plain" });
  if (type !== undefined) return stat.sizeBytes > max ? { kind: "binary" } : { kind: "image", blob };
  const isCut = stat.sizeBytes > max || size > max;
  // A letter at the end may be cut.
  const content = new Uint8Array(await blob.arrayBuffer()).subarray(0, max);
  if (content.subarray(0, 8_192).includes(0)) return { kind: "binary" };
  try {
    return { kind: "text", text: new TextDecoder("utf-8", { fatal: !isCut }).decode(content), isCut };
  } catch {
    return { kind: "binary" };
  }
}

/** Gives a file to the browser, which keeps it under a name without any path. */
export function saveAs(name: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replaceAll(/[/\\\p{Cc}]/gu, "_");
  link.click();
  // The browser has begun by then.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
