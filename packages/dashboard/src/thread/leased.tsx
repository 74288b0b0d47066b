/** What needs the thread's sandbox: shown while this page holds a lease, and in words when it gets none or has lost it. */

import type { ClientLease } from "@sandlot/client";
import type { ReactNode } from "react";
import { short } from "../format.ts";
import { ErrorNotice, Notice } from "../parts/notice.tsx";
import { texts } from "../texts.ts";
import { useLease } from "./use-lease.ts";

export function Leased({
  user,
  thread,
  purpose,
  opening = texts.loading,
  children,
}: {
  readonly user: string;
  readonly thread: string;
  readonly purpose: string;
  readonly opening?: string;
  readonly children: (lease: ClientLease) => ReactNode;
}) {
  const { lease, error, lost, again } = useLease(user, thread, purpose);
  if (error !== null) return <ErrorNotice error={error} retry={again} />;
  if (lost !== null)
    return (
      <Notice kind="bad">
        {texts.thread.lost(short(lost))}
        <button type="button" onClick={again}>
          {texts.thread.reopen}
        </button>
      </Notice>
    );
  if (lease === null) return <p className="empty">{opening}</p>;
  return children(lease);
}
