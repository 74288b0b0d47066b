/** A sandbox's state as a word with a colour; the word says it all. */

import { texts } from "../texts.ts";

const KINDS: Readonly<Record<string, string>> = {
  creating: "info",
  leased: "good",
  parked: "",
  blank: "info",
  stopping: "warn",
};

export function StateBadge({ state }: { readonly state: string }) {
  return <span className={`badge ${KINDS[state] ?? ""}`}>{texts.states[state] ?? state}</span>;
}
