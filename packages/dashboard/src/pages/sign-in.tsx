/** Signing in: with a key, or by a one-time link. */

import { type DashboardSession, isSandlotError } from "@sandlot/client";
import { useEffect, useRef, useState } from "react";
import { dashboard } from "../api.ts";
import { ErrorNotice } from "../parts/notice.tsx";
import { texts } from "../texts.ts";

export function SignIn({
  token,
  isEnded,
  onSession,
}: {
  readonly token: string | null;
  readonly isEnded: boolean;
  onSession(session: DashboardSession): void;
}) {
  const [key, setKey] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const used = useRef(false);

  const begin = async (ask: () => Promise<DashboardSession>) => {
    setBusy(true);
    setError(null);
    try {
      onSession(await ask());
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: the link is used once, whatever changes
  useEffect(() => {
    if (token === null || used.current) return;
    used.current = true;
    void begin(() => dashboard.redeemLink(token));
  }, [token]);

  return (
    <main className="sign-in">
      <form
        className="card"
        onSubmit={(event) => {
          event.preventDefault();
          void begin(() => dashboard.signIn(key.trim()));
        }}
      >
        <h1>
          {texts.product}: {texts.signIn.title}
        </h1>
        {isEnded && error === null && (
          <p className="notice warn" role="status">
            {texts.signIn.ended}
          </p>
        )}
        {error !== null && (
          <ErrorNotice error={error} title={isSandlotError(error) && token !== null ? texts.signIn.linkFailed : null} />
        )}
        <div className="field">
          <label htmlFor="key">{texts.signIn.key}</label>
          <input
            id="key"
            type="password"
            autoComplete="current-password"
            required
            value={key}
            onChange={(event) => setKey(event.target.value)}
          />
        </div>
        <p className="soft">{texts.signIn.hint}</p>
        <button type="submit" className="main" disabled={isBusy}>
          {isBusy ? texts.signIn.busy : texts.signIn.button}
        </button>
      </form>
    </main>
  );
}
