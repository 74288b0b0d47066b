/**
 * What Apple's `container` does not tell by itself, found by looking again and again, and told as Docker would: events, and what a
 * container says.
 *
 * Invariant: a death is told when a look has shown it, a second after it at the latest. A look that fails ends the stream, and whoever
 * listens looks for himself.
 */

import { Readable } from "node:stream";
import { sleep } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import type { ListedContainer } from "../engine/engine.ts";

/** A look is a process of its own, some tens of milliseconds: more often costs a processor, less often is heard late. */
const EVENT_LOOK_MS = 1_000;
const OUTPUT_LOOK_MS = 150;

const DEAD: ReadonlySet<string> = new Set(["exited"]);

/** Lines of JSON, as Docker's `/events`. */
export function polledEvents(
  list: () => Promise<readonly ListedContainer[]>,
  world: World,
  signal: AbortSignal,
): NodeJS.ReadableStream {
  async function* events(): AsyncGenerator<string> {
    let before = byId(await list());
    for (;;) {
      await sleep(world, EVENT_LOOK_MS, signal, { background: true });
      const now = byId(await list());
      for (const [id, was] of before) if (!now.has(id)) yield event("destroy", was, world);
      // Also one that was made and has died between two looks.
      for (const [id, is] of now)
        if (DEAD.has(is.State) && !DEAD.has(before.get(id)?.State ?? "")) yield event("die", is, world);
      before = now;
    }
  }
  return Readable.from(events());
}

/** What it has said so far, and then what comes. The program that follows a log ends at once when the log is still empty. */
export function polledOutput(read: () => Promise<string>, world: World, signal: AbortSignal): NodeJS.ReadableStream {
  async function* output(): AsyncGenerator<string> {
    let seen = 0;
    for (;;) {
      // The program ends with a newline of its own, also when nothing was said yet.
      const said = (await read()).replace(/\n$/, "");
      if (said.length > seen) yield said.slice(seen);
      seen = Math.max(seen, said.length);
      await sleep(world, OUTPUT_LOOK_MS, signal);
    }
  }
  return Readable.from(output());
}

function byId(containers: readonly ListedContainer[]): Map<string, ListedContainer> {
  return new Map(containers.map((container) => [container.Id, container]));
}

function event(Action: string, { Id, Labels }: ListedContainer, world: World): string {
  const time = Math.floor(world.wallMs() / 1_000);
  return `${JSON.stringify({ Action, time, Actor: { ID: Id, Attributes: Labels } })}\n`;
}
