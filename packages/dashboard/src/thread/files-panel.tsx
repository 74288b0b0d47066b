/**
 * The files of a thread's sandbox: folders, upload, download, removal. Names come from the sandbox: they are shown with
 * their control characters visible, and never become a part of a page.
 */

import type { FileStat, Sandbox } from "@sandlot/client";
import { useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { dashboard } from "../api.ts";
import { bytes, dateTime, short, visible } from "../format.ts";
import { Confirm, type Question } from "../parts/confirm.tsx";
import { ErrorNotice, Notice } from "../parts/notice.tsx";
import { texts } from "../texts.ts";
import { chosenFiles, droppedFiles } from "./dropped-files.ts";
import { Leased } from "./leased.tsx";
import { type Transfers, useTransfers } from "./use-transfers.ts";
import { Viewer } from "./viewer.tsx";

const t = texts.files;
const START = "/mnt/user-data";
const ENTRIES_MAX = 2_000;
/** The folder that is open, as an entry. */
const FOLDER = { kind: "directory", sizeBytes: 0, mode: 0o755, modifiedAt: 0, version: "" } as const;

export function FilesPanel({
  user,
  thread,
  path,
  onPath,
}: {
  readonly user: string;
  readonly thread: string;
  readonly path: string | undefined;
  onPath(path: string): void;
}) {
  return (
    <Leased user={user} thread={thread} purpose="dashboard files">
      {(lease) => (
        <Folder
          key={`${user}/${thread}`}
          user={user}
          thread={thread}
          sandbox={lease.sandbox}
          path={path ?? START}
          onPath={onPath}
        />
      )}
    </Leased>
  );
}

function Folder({
  user,
  thread,
  sandbox,
  path,
  onPath,
}: {
  readonly user: string;
  readonly thread: string;
  readonly sandbox: Sandbox;
  readonly path: string;
  onPath(path: string): void;
}) {
  const [shown, setShown] = useState<FileStat | null>(null);
  const transfers = useTransfers(user, thread);
  const [question, setQuestion] = useState<Question | null>(null);
  const [isOver, setOver] = useState(false);
  const chooser = useRef<HTMLInputElement>(null);
  const listing = useQuery({
    queryKey: ["files", sandbox.id, sandbox.generation, path],
    queryFn: () => sandbox.files.list(path, { depth: 1, maxResults: ENTRIES_MAX }),
  });
  const entries = [...(listing.data?.entries ?? [])].sort(
    (a, b) => Number(b.kind === "directory") - Number(a.kind === "directory") || (a.path < b.path ? -1 : 1),
  );
  const upload = async (files: Parameters<typeof transfers.upload>[1]) => {
    await transfers.upload(path, files);
    await listing.refetch();
  };
  const download = ({ path, kind, sizeBytes }: FileStat) =>
    kind === "directory"
      ? transfers.download(`${nameOf(path) || "files"}.tar`, null, (signal) =>
          dashboard.downloadFolder({ user, thread, path }, signal),
        )
      : transfers.download(nameOf(path), kind === "file" ? sizeBytes : null, () => sandbox.files.download(path));
  const remove = (stat: FileStat) =>
    setQuestion({
      title: t.removeTitle(short(nameOf(stat.path))),
      text: t.removeText,
      button: t.remove,
      act: async () => {
        await sandbox.files.remove(stat.path, { recursive: stat.kind === "directory" });
        if (shown?.path === stat.path) setShown(null);
        await transfers.run(async () => t.removed);
        await listing.refetch();
      },
    });

  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the button “Upload” does the same
    <div
      className={isOver ? "drop over" : "drop"}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void upload(droppedFiles(event.dataTransfer));
      }}
    >
      <div className="head">
        <Crumbs path={path} onPath={onPath} />
        <div className="push">
          <button type="button" onClick={() => void listing.refetch()}>
            {t.refresh}
          </button>
          <button type="button" onClick={() => void download({ ...FOLDER, path })}>
            {t.downloadFolder}
          </button>
          <button type="button" className="main" onClick={() => chooser.current?.click()}>
            {t.upload}
          </button>
          <input
            ref={chooser}
            type="file"
            multiple
            hidden
            aria-label={t.upload}
            onChange={(event) => {
              const files = chosenFiles(event.target.files);
              event.target.value = "";
              void upload(Promise.resolve(files));
            }}
          />
        </div>
      </div>
      <TransferNotice transfers={transfers} />
      {listing.error !== null && <ErrorNotice error={listing.error} retry={listing.refetch} />}
      <div className={shown === null ? "split" : "split two"}>
        <div className="card scroll">
          {listing.data?.truncated === true && <Notice kind="warn">{t.truncated}</Notice>}
          {listing.data === undefined ? (
            <p className="empty">{texts.loading}</p>
          ) : entries.length === 0 ? (
            <p className="empty">{t.empty}</p>
          ) : (
            <table className="plain">
              <thead>
                <tr>
                  <th>{t.columns.name}</th>
                  <th className="number">{t.columns.size}</th>
                  <th>{t.columns.modified}</th>
                  <th>{t.columns.actions}</th>
                </tr>
              </thead>
              <tbody>
                {entries.map((stat) => (
                  <Entry
                    key={stat.path}
                    stat={stat}
                    onOpen={() => (stat.kind === "directory" ? onPath(stat.path) : setShown(stat))}
                    onDownload={() => void download(stat)}
                    onRemove={() => remove(stat)}
                  />
                ))}
              </tbody>
            </table>
          )}
        </div>
        {shown !== null && (
          <Viewer
            key={`${shown.path} ${shown.version}`}
            sandbox={sandbox}
            stat={shown}
            onClose={() => setShown(null)}
            onDownload={() => void download(shown)}
            onSaved={async () => {
              await listing.refetch();
              setShown(await sandbox.files.stat(shown.path));
            }}
          />
        )}
      </div>
      <Confirm question={question} onDone={() => setQuestion(null)} />
    </div>
  );
}

function Entry({
  stat,
  onOpen,
  onDownload,
  onRemove,
}: {
  readonly stat: FileStat;
  onOpen(): void;
  onDownload(): void;
  onRemove(): void;
}) {
  const name = visible(nameOf(stat.path));
  return (
    <tr>
      <td>
        <button type="button" className="plain" onClick={onOpen}>
          <bdi>
            {name}
            {stat.kind === "directory" ? "/" : stat.kind === "symlink" ? " →" : ""}
          </bdi>
        </button>
      </td>
      <td className="number">{stat.kind === "file" ? bytes(stat.sizeBytes) : ""}</td>
      <td>{dateTime(stat.modifiedAt)}</td>
      <td>
        <span className="actions">
          {stat.kind !== "other" && (
            <button type="button" aria-label={`${t.download} ${name}`} onClick={onDownload}>
              {t.download}
            </button>
          )}
          <button type="button" className="danger" aria-label={`${t.remove} ${name}`} onClick={onRemove}>
            {t.remove}
          </button>
        </span>
      </td>
    </tr>
  );
}

function TransferNotice({ transfers }: { readonly transfers: Transfers }) {
  const { progress, done, error, cancel } = transfers;
  if (error !== null) return <ErrorNotice error={error} />;
  if (progress === null) return done === null ? null : <Notice kind="good">{done}</Notice>;
  const { text, share } = progress;
  return (
    <Notice>
      <span>{text}</span>
      <progress aria-label={text} {...(share !== null && { value: share })} />
      <button type="button" onClick={cancel}>
        {texts.cancel}
      </button>
    </Notice>
  );
}

function Crumbs({ path, onPath }: { readonly path: string; onPath(path: string): void }) {
  const parts = path.split("/").filter((part) => part !== "");
  return (
    <nav className="crumbs" aria-label={t.path}>
      <button type="button" className="plain" onClick={() => onPath("/")}>
        /
      </button>
      {parts.map((part, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a folder is its place in the path
        <span key={`${at} ${part}`}>
          <button
            type="button"
            className="plain"
            aria-current={at === parts.length - 1 ? "page" : undefined}
            onClick={() => onPath(`/${parts.slice(0, at + 1).join("/")}`)}
          >
            <bdi>{short(part, 60)}</bdi>
          </button>
          {at < parts.length - 1 && "/"}
        </span>
      ))}
    </nav>
  );
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}
