/** What can be done to a thread or its sandbox, each as a question that says what is lost before anything happens. */

import type { SandlotClient } from "@sandlot/client";
import { dashboard } from "../api.ts";
import { texts } from "../texts.ts";
import type { Question } from "./confirm.tsx";

export type ThreadAction = "warm" | "extend" | "stop" | "reset" | "purge";
/** Of those, what makes sense for a thread that has no sandbox. */
const WITHOUT_SANDBOX: readonly ThreadAction[] = ["warm", "reset", "purge"];
const WITH_SANDBOX: readonly ThreadAction[] = ["extend", "stop", "reset", "purge"];
const EXTENDED_MS = 3_600_000;

export function actionsOf(hasSandbox: boolean): readonly ThreadAction[] {
  return hasSandbox ? WITH_SANDBOX : WITHOUT_SANDBOX;
}

export function isDangerous(action: ThreadAction): boolean {
  return action === "reset" || action === "purge";
}

/** `client` acts for the user. */
export function questionOf(action: ThreadAction, client: SandlotClient, user: string, thread: string): Question {
  const { title, text, button } = texts.actions[action];
  const words = { title: title(thread), text, button };
  switch (action) {
    case "warm":
      return {
        ...words,
        isHarmless: true,
        act: async () => (await client.acquire({ thread, purpose: "dashboard" })).release(),
      };
    case "extend":
      return { ...words, isHarmless: true, act: () => dashboard.extend({ user, thread, ttlMs: EXTENDED_MS }) };
    case "stop":
      return { ...words, mayBeInUse: true, act: (force) => client.stopThread(thread, { force }) };
    case "reset":
      return { ...words, mayBeInUse: true, act: (force) => client.resetHome(thread, { force }) };
    case "purge":
      return { ...words, mayBeInUse: true, act: (force) => client.deleteThread(thread, { force }) };
  }
}
