/** What every page has: its navigation, who is signed in, and whether the gateway answers. */

import { Link } from "@tanstack/react-router";
import { useState, useSyncExternalStore } from "react";
import { connection, dashboard } from "./api.ts";
import { LiveProvider, useLive } from "./live.tsx";
import { ErrorNotice, Notice } from "./parts/notice.tsx";
import { useSession } from "./session.tsx";
import { texts } from "./texts.ts";
import { chooseTheme, chosenTheme, THEMES, type Theme } from "./theme.ts";

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
          <Top />
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

function Top() {
  const { key, isOperator, actingUser, actFor } = useSession();
  const [theme, setTheme] = useState<Theme>(chosenTheme);
  const [error, setError] = useState<unknown>(null);
  const { user, label, scope, id } = key;
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
            setTheme(chosen);
          }}
        >
          {THEMES.map((one) => (
            <option key={one} value={one}>
              {texts.nav.themes[one]}
            </option>
          ))}
        </select>
        <button
          type="button"
          onClick={() => dashboard.signOut().then(() => connection.saw({ isEnded: true }), setError)}
        >
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
  if (isBroken) return <Notice kind="warn">{texts.connection.broken}</Notice>;
  return missing.length === 0 ? null : <Notice kind="warn">{texts.connection.partial(missing.length)}</Notice>;
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
