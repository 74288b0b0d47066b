/**
 * Polls what Apple's `container` does not push, and delivers it as Docker would: events, and the output of a container.
 *
 * Invariant: a death is reported when a poll has shown it, at most a second later. A failed poll ends the stream, and
 * listeners must list again.
 */

import { Readable } from "node:stream";
import { sleep } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import type { ListedContainer } from "../engine/engine.ts";

/** A poll is a process of some tens of milliseconds: more often costs processor time, less often delays events. */
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
      // Also one that was made and has died between two polls.
      for (const [id, is] of now)
        if (DEAD.has(is.State) && !DEAD.has(before.get(id)?.State ?? "")) yield event("die", is, world);
      before = now;
    }
  }
  return Readable.from(events());
}

/** The output so far, then new output. The program that follows a log ends at once while the log is empty. */
export function polledOutput(read: () => Promise<string>, world: World, signal: AbortSignal): NodeJS.ReadableStream {
  async function* output(): AsyncGenerator<string> {
    let seen = 0;
    for (;;) {
      // The program adds a newline at the end, also to an empty log.
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
