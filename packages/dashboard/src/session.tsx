/** Who is signed in, and for whom the pages show threads. */

import type { ApiKeyInfo, DashboardSession, SandlotClient } from "@sandlot/client";
import { createContext, useContext, useMemo, useState } from "react";
import { gateway } from "./api.ts";

interface SessionState {
  readonly key: ApiKeyInfo;
  readonly isOperator: boolean;
  /** Whose threads a platform's key shows; `null` until it was said. */
  readonly actingUser: string | null;
  actFor(user: string | null): void;
  /** For lists: everything that the key may see. */
  readonly client: SandlotClient;
  /** For the threads of one user. */
  clientOf(user: string): SandlotClient;
}

const Context = createContext<SessionState | null>(null);
const ACTING_NAME = "sandlot-user";

export function SessionProvider({
  session,
  children,
}: {
  readonly session: DashboardSession;
  readonly children: React.ReactNode;
}) {
  const { key } = session;
  const [actingUser, setActingUser] = useState(() => sessionStorage.getItem(ACTING_NAME));
  const { scope, user: own } = key;
  const state = useMemo<SessionState>(() => {
    const acting = scope === "platform" ? actingUser : null;
    return {
      key,
      isOperator: scope === "operator",
      actingUser: acting,
      actFor(user) {
        if (user === null) sessionStorage.removeItem(ACTING_NAME);
        else sessionStorage.setItem(ACTING_NAME, user);
        setActingUser(user);
      },
      client: acting === null ? gateway : gateway.actingFor(acting),
      clientOf: (user) => (scope === "user" && user === own ? gateway : gateway.actingFor(user)),
    };
  }, [key, scope, own, actingUser]);
  return <Context value={state}>{children}</Context>;
}

export function useSession(): SessionState {
  const state = useContext(Context);
  if (state === null) throw new Error("this page is outside of the session");
  return state;
}
