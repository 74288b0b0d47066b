/**
 * The one connection that a holder keeps: its close is how a death is learned, without asking.
 */

import type { IncomingMessage } from "node:http";
import { SandlotError } from "@sandlot/contract";
import { ConnectionLost } from "./connections.ts";
import { holdGreetingSchema } from "./replies.ts";
import type { Wire } from "./wire.ts";

export interface Hold {
  /** The daemon's pid, in its own namespace. */
  readonly daemonPid: number;
  /** Which run of the daemon it is. */
  readonly run: string;
  /** Resolves when the connection ended, for whatever reason. */
  readonly closed: Promise<void>;
  /** `here`: we have closed it. `there`: the daemon has, or the network between. */
  ended(): "no" | "here" | "there";
  close(): void;
}

const GREETING_MAX_BYTES = 4_096;

export async function openHold(wire: Wire, signal?: AbortSignal): Promise<Hold> {
  const call = { method: "GET", path: "/sandlot/hold", repeatable: true, ...(signal && { signal }) } as const;
  return holdBy(await wire.open(call), wire.target.generation);
}

/** The hold that an answer is: it greets, and does not end. */
export async function holdBy(response: IncomingMessage, generation: number): Promise<Hold> {
  let ended: ReturnType<Hold["ended"]> = "no";
  const closed = new Promise<void>((resolve) => {
    response.once("close", () => {
      if (ended === "no") ended = "there";
      resolve();
    });
  });
  response.on("error", () => {});
  const greeting = await firstLine(response);
  const parsed = holdGreetingSchema.safeParse(greeting);
  if (!parsed.success || parsed.data.generation !== generation) {
    response.destroy();
    throw new SandlotError("internal", { problem: "the daemon greeted with something else than its generation" });
  }
  response.resume();
  const close = (): void => {
    if (ended === "no") ended = "here";
    response.destroy();
  };
  return { daemonPid: parsed.data.pid, run: parsed.data.run, closed, ended: () => ended, close };
}

async function firstLine(response: NodeJS.ReadableStream): Promise<unknown> {
  return new Promise((resolve, reject) => {
    let text = "";
    const onData = (chunk: Buffer): void => {
      text += chunk.toString("utf8");
      if (!text.includes("\n") && text.length < GREETING_MAX_BYTES) return;
      response.off("data", onData);
      response.off("close", onClose);
      resolve(tryJson(text.split("\n", 1)[0] ?? ""));
    };
    const onClose = (): void => reject(new ConnectionLost("the daemon ended before it greeted"));
    response.on("data", onData);
    response.on("close", onClose);
  });
}

function tryJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
