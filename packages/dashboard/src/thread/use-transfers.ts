/** Uploads and downloads of a folder's page: one at a time, with their progress, until cancelled or the page is left. */

import { useEffect, useRef, useState } from "react";
import { dashboard } from "../api.ts";
import { bytes, short } from "../format.ts";
import { watchSending } from "../sending.ts";
import { texts } from "../texts.ts";
import type { ChosenFile } from "./dropped-files.ts";
import { collect, saveAs } from "./save-as.ts";

const t = texts.files;

export interface Progress {
  readonly text: string;
  /** Of 1; `null`: how much there will be is unknown. */
  readonly share: number | null;
}

export interface Transfers {
  readonly progress: Progress | null;
  readonly done: string | null;
  readonly error: unknown;
  /** Resolves when all are there, or one failed. */
  upload(folder: string, files: Promise<readonly ChosenFile[]>): Promise<void>;
  download(
    name: string,
    sizeBytes: number | null,
    open: (signal: AbortSignal) => AsyncIterable<Uint8Array>,
  ): Promise<void>;
  /** Anything else with a result in words. */
  run(work: () => Promise<string | null>): Promise<void>;
  cancel(): void;
}

export function useTransfers(user: string, thread: string): Transfers {
  const [progress, setProgress] = useState<Progress | null>(null);
  const [done, setDone] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);

  const run = async (work: (signal: AbortSignal) => Promise<string | null>) => {
    running.current?.abort();
    const own = new AbortController();
    running.current = own;
    setError(null);
    setDone(null);
    try {
      const text = await work(own.signal);
      if (running.current === own) setDone(text);
    } catch (problem) {
      if (running.current === own) {
        if (own.signal.aborted) setDone(t.cancelled);
        else setError(problem);
      }
    }
    if (running.current === own) setProgress(null);
  };

  const upload = (folder: string, choosing: Promise<readonly ChosenFile[]>) =>
    run(async (signal) => {
      const files = await choosing;
      const allBytes = files.reduce((sum, { file }) => sum + file.size, 0);
      let before = 0;
      for (const [at, { path, file }] of files.entries()) {
        const show = (sent: number) =>
          setProgress({
            text: t.uploading(short(path), at + 1, files.length, bytes(before + sent), bytes(allBytes)),
            share: allBytes === 0 ? 1 : Math.min(1, (before + sent) / allBytes),
          });
        show(0);
        watchSending(file, show);
        await dashboard.upload(file, { user, thread, path: `${folder === "/" ? "" : folder}/${path}` }, signal);
        before += file.size;
      }
      return t.uploaded(files.length);
    });

  const download: Transfers["download"] = (name, sizeBytes, open) =>
    run(async (signal) => {
      let shownAt = 0;
      const blob = await collect(open(signal), (size) => {
        signal.throwIfAborted();
        if (performance.now() - shownAt < 100) return;
        shownAt = performance.now();
        const share = sizeBytes === null || sizeBytes === 0 ? null : Math.min(1, size / sizeBytes);
        setProgress({ text: t.downloading(short(name), bytes(size)), share });
      });
      saveAs(name, blob);
      return null;
    });

  return { progress, done, error, upload, download, run: (work) => run(work), cancel: () => running.current?.abort() };
}
