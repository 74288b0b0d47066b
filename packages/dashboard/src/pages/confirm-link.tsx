/** A link that was opened while a session runs: a page elsewhere may have led to it, so it is used only when confirmed. */

import type { DashboardSession } from "@sandlot/client";
import { useState } from "react";
import { dashboard } from "../api.ts";
import { ErrorNotice } from "../parts/notice.tsx";
import { texts } from "../texts.ts";

export function ConfirmLink({
  session,
  token,
  onSession,
  onKeep,
}: {
  readonly session: DashboardSession;
  readonly token: string;
  onSession(session: DashboardSession): void;
  onKeep(): void;
}) {
  const [error, setError] = useState<unknown>(null);
  const { scope, user, label, id } = session.key;
  return (
    <main className="sign-in">
      <div className="card">
        <h1>{texts.product}</h1>
        {error !== null && <ErrorNotice error={error} title={texts.signIn.linkFailed} />}
        <p>{texts.signIn.switching(user ?? label ?? `${scope} ${id}`)}</p>
        <div className="actions">
          <button type="button" className="main" onClick={() => dashboard.redeemLink(token).then(onSession, setError)}>
            {texts.signIn.useLink}
          </button>
          <button type="button" onClick={onKeep}>
            {texts.signIn.keepSession}
          </button>
        </div>
      </div>
    </main>
  );
}
