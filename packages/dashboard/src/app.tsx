/**
 * Signed in or not. A one-time link arrives in the part of the address that browsers do not send; it is taken out of
 * the address before anything else happens.
 */

import { type DashboardSession, isSandlotError } from "@sandlot/client";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { useEffect, useState, useSyncExternalStore } from "react";
import { connection, dashboard } from "./api.ts";
import { ConfirmLink } from "./pages/confirm-link.tsx";
import { SignIn } from "./pages/sign-in.tsx";
import { ErrorNotice } from "./parts/notice.tsx";
import { router } from "./router.tsx";
import { SessionProvider } from "./session.tsx";
import { texts } from "./texts.ts";

const SESSION_CHECK_MS = 5_000;

function takeLink(): string | null {
  const [, token = null] = /^#link=([\w.-]+)$/.exec(location.hash) ?? [];
  if (token !== null) history.replaceState(null, "", location.pathname + location.search);
  return token;
}
/** At load: effects run twice in development. */
const linkAtLoad = takeLink();

export function App() {
  const queries = useQueryClient();
  const isEnded = useSyncExternalStore(connection.subscribe, () => connection.isEnded);
  const [wasSignedIn, setWasSignedIn] = useState(false);
  const [link, setLink] = useState(linkAtLoad);
  const session = useQuery<DashboardSession | null>({
    queryKey: ["session"],
    queryFn: async () => {
      try {
        return await dashboard.session();
      } catch (error) {
        if (isSandlotError(error, "unauthorized")) return null;
        throw error;
      }
    },
    // A revoked key is noticed also by a page that asks nothing else.
    refetchInterval: (query) => (query.state.data === null ? false : SESSION_CHECK_MS),
  });
  const present = isEnded ? null : session.data;

  useEffect(() => {
    // What one key could see is not shown to the next.
    if (present === null) queries.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== "session" });
    else if (present !== undefined) setWasSignedIn(true);
  }, [present, queries]);

  const begin = (next: DashboardSession) => {
    queries.clear();
    queries.setQueryData(["session"], next);
    connection.saw({ isEnded: false });
    setLink(null);
  };
  if (present === undefined) {
    return session.error === null ? (
      <p className="empty">{texts.loading}</p>
    ) : (
      <main>
        <ErrorNotice error={session.error} retry={() => session.refetch()} />
      </main>
    );
  }
  if (link !== null && present !== null)
    return <ConfirmLink session={present} token={link} onSession={begin} onKeep={() => setLink(null)} />;
  if (present === null) return <SignIn token={link} isEnded={wasSignedIn} onSession={begin} />;
  return (
    <SessionProvider key={present.key.id} session={present}>
      <RouterProvider router={router} />
    </SessionProvider>
  );
}
