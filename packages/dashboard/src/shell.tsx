/** What every page has: its navigation, who is signed in, and whether the gateway answers. */

import { Link } from "@tanstack/react-router";
import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from "react";
import { connection, dashboard } from "./api.ts";
import { LiveProvider, useLive } from "./live.tsx";
import { Palette } from "./palette.tsx";
import { ErrorNotice, Notice } from "./parts/notice.tsx";
import { useSession } from "./session.tsx";
import { texts } from "./texts.ts";
import { chooseTheme, chosenTheme, onThemeChosen, THEMES, type Theme } from "./theme.ts";

/** How long the page says that the gateway is back. */
const SAID_MS = 5_000;

export function Shell({ children }: { readonly children: React.ReactNode }) {
  const { key, actingUser } = useSession();
  const needsUser = key.scope === "platform" && actingUser === null;
  return (
    <>
      <a className="skip" href="#content">
        {texts.skip}
      </a>
      {needsUser ? (
        <>
          <Top needsUser />
          <ChooseUser />
        </>
      ) : (
        <LiveProvider>
          <Top />
          <main id="content" tabIndex={-1}>
            <Connection />
            {children}
          </main>
        </LiveProvider>
      )}
    </>
  );
}

function Top({ needsUser = false }: { readonly needsUser?: boolean }) {
  const { key, isOperator, actingUser, actFor } = useSession();
  const theme = useSyncExternalStore<Theme>(onThemeChosen, chosenTheme);
  const [error, setError] = useState<unknown>(null);
  const { user, label, scope, id } = key;
  const signOut = useCallback(() => {
    dashboard.signOut().then(() => connection.saw({ isEnded: true }), setError);
  }, []);
  return (
    <header className="top">
      <span className="brand">
        <span aria-hidden="true">▣</span> {texts.product}
      </span>
      <nav aria-label={texts.nav.label}>
        <Link to="/" activeOptions={{ exact: true }}>
          {texts.nav.overview}
        </Link>
        <Link to="/sandboxes">{texts.nav.sandboxes}</Link>
        <Link to="/threads">{texts.nav.threads}</Link>
        {isOperator && <Link to="/administration">{texts.nav.administration}</Link>}
        <a href="/docs/">{texts.nav.docs}</a>
      </nav>
      <div className="who">
        {!needsUser && <Palette onSignOut={signOut} />}
        <span title={id}>
          {user ?? label ?? scope} <span className="badge">{scope}</span>
        </span>
        {actingUser !== null && (
          <button type="button" onClick={() => actFor(null)}>
            {actingUser}: {texts.user.change}
          </button>
        )}
        <select
          aria-label={texts.nav.theme}
          value={theme}
          onChange={(event) => {
            const chosen = THEMES.find((one) => one === event.target.value) ?? "system";
            chooseTheme(chosen);
          }}
        >
          {THEMES.map((one) => (
            <option key={one} value={one}>
              {texts.nav.themes[one]}
            </option>
          ))}
        </select>
        <button type="button" onClick={signOut}>
          {texts.nav.signOut}
        </button>
      </div>
      {error !== null && <ErrorNotice error={error} />}
    </header>
  );
}

function Connection() {
  const isBroken = useSyncExternalStore(connection.subscribe, () => connection.isBroken);
  const { missing } = useLive();
  const isBack = useIsBack(isBroken);
  if (isBack) return <Notice kind="good">{texts.connection.back}</Notice>;
  if (isBroken) return <Notice kind="warn">{texts.connection.broken}</Notice>;
  return missing.length === 0 ? null : <Notice kind="warn">{texts.connection.partial(missing.length)}</Notice>;
}

/** For a while after the gateway began to answer again. */
function useIsBack(isBroken: boolean): boolean {
  const wasBroken = useRef(false);
  const [isBack, setBack] = useState(false);
  useEffect(() => {
    const justBack = wasBroken.current && !isBroken;
    wasBroken.current = isBroken;
    setBack(justBack);
    if (!justBack) return undefined;
    const timer = setTimeout(() => setBack(false), SAID_MS);
    return () => clearTimeout(timer);
  }, [isBroken]);
  return isBack;
}

function ChooseUser() {
  const { actFor } = useSession();
  const [user, setUser] = useState("");
  return (
    <main className="sign-in" id="content" tabIndex={-1}>
      <form
        className="card"
        onSubmit={(event) => {
          event.preventDefault();
          actFor(user.trim());
        }}
      >
        <h1>{texts.user.title}</h1>
        <p className="soft">{texts.user.hint}</p>
        <div className="field">
          <label htmlFor="user">{texts.user.label}</label>
          <input
            id="user"
            required
            pattern="[A-Za-z0-9_\-]{1,128}"
            value={user}
            onChange={(event) => setUser(event.target.value)}
          />
        </div>
        <button type="submit" className="main">
          {texts.user.button}
        </button>
      </form>
    </main>
  );
}
