/**
 * The gateway, as this page asks it: with the session's cookie, which the browser keeps and no script can read.
 *
 * Invariants
 * - Every request carries the dashboard's header. It proves that the page of this origin sent it.
 * - A refused session is told once, wherever it was noticed; so is a gateway that does not answer.
 */

import { DashboardClient, GATEWAY_HEADERS, SandlotClient } from "@sandlot/client";
import { sendFile } from "./sending.ts";

type Listener = () => void;

/** What requests showed last. */
class Connection {
  isBroken = false;
  isEnded = false;
  readonly #listeners = new Set<Listener>();

  subscribe = (listener: Listener): Listener => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  saw(change: { readonly isBroken?: boolean; readonly isEnded?: boolean }): void {
    const { isBroken = this.isBroken, isEnded = this.isEnded } = change;
    if (isBroken === this.isBroken && isEnded === this.isEnded) return;
    this.isBroken = isBroken;
    this.isEnded = isEnded;
    for (const listener of this.#listeners) listener();
  }
}

export const connection = new Connection();

const ask: typeof fetch = async (address, init) => {
  const headers = new Headers(init?.headers);
  headers.set(GATEWAY_HEADERS.dashboard, "1");
  let response: Response;
  try {
    response =
      init?.body instanceof Blob
        ? await sendFile(String(address), init, headers, init.body)
        : await fetch(address, { ...init, headers, credentials: "same-origin" });
  } catch (error) {
    if (init?.signal?.aborted !== true) connection.saw({ isBroken: true });
    throw error;
  }
  const isSigningIn = init?.method === "POST" && String(address).includes("/v1/dashboard/");
  connection.saw({ isBroken: false, ...(response.status === 401 && !isSigningIn && { isEnded: true }) });
  return response;
};

/** Keys never go to another origin, and neither does a page: a thread of another gateway is an error that names it. */
const options = { url: location.origin, fetch: ask, follow: false } as const;

export const dashboard = new DashboardClient({ ...options, retriesMax: 1 });
export const gateway = new SandlotClient({ ...options, retriesMax: 2 });
