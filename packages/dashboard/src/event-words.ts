/** An event of the fleet in words. Every text in it may come from a sandbox. */

import { bytes, duration, short } from "./format.ts";

type Facts = Readonly<Record<string, unknown>>;

const WORDS: Readonly<Record<string, (event: Facts) => string>> = {
  "sandbox-created": (event) => `was made in ${ms(event.durationMs)}${event.blank === true ? ", blank" : ""}`,
  "sandbox-bound": () => "was bound to the thread: a blank one was ready",
  "sandbox-attached": (event) => `was taken over from another process in ${ms(event.durationMs)}`,
  "sandbox-parked": () => "is parked: nothing holds it",
  "sandbox-lost": (event) =>
    `was lost: ${word(event.reason)}${event.cause === undefined ? "" : ` (${word(event.cause)})`}`,
  "sandbox-stopping": (event) => `is being stopped: ${word(event.reason)}`,
  "sandbox-stopped": (event) => `was stopped: ${word(event.reason)}`,
  "sandbox-stop-failed": (event) => `could not be stopped (attempt ${word(event.attempt)}): ${word(event.problem)}`,
  "sandbox-adopted": () => "was found and adopted",
  "lease-acquired": (event) => `was leased for “${word(event.purpose)}” (${word(event.path)}, ${ms(event.durationMs)})`,
  "lease-released": (event) => `was released by “${word(event.purpose)}” after ${ms(event.heldMs)}`,
  "lease-lost": (event) => `lost its lease “${word(event.purpose)}”: ${word(event.reason)}`,
  "lease-leaked": (event) => `has a forgotten lease, unused for ${ms(event.unusedMs)}`,
  "egress-refused": (event) =>
    `may not reach ${word(event.host)}:${word(event.port)}: ${word(event.because)} (rule ${word(event.rule)})`,
  "limit-hit": (event) => `hit its limit of ${word(event.limit)}: ${word(event.because)}`,
  "image-pulling": (event) => `Image ${word(event.image)}: ${word(event.state)}${pulled(event)}`,
  "acquire-queued": (event) => `waits for room; ${word(event.queued)} wait`,
  "capacity-exceeded": (event) => `${word(event.count)} sandboxes, over the limit of ${word(event.max)}`,
  "instance-buried": (event) => `The instance ${word(event.peer)} is dead; others take over what it held`,
  "instance-doubted": (event) => `This instance doubts itself: ${word(event.problem)}`,
  "store-lost": (event) => `The store does not answer: ${word(event.problem)}`,
  "store-recovered": () => "The store answers again",
  "epoch-changed": (event) =>
    `The store was lost: ${word(event.restored)} sandboxes restored, ${word(event.lost)} lost`,
  "close-failed": (event) => `Closing ${word(event.what)} failed: ${word(event.problem)}`,
  "housekeeping-failed": (event) => `Housekeeping failed (${word(event.task)}): ${word(event.problem)}`,
};

export function eventText(event: Facts): string {
  const text = WORDS[word(event.type)]?.(event) ?? word(event.type);
  const about =
    typeof event.thread === "string" ? event.thread : typeof event.sandboxId === "string" ? event.sandboxId : null;
  return about === null ? text : `${short(about, 64)} ${text}`;
}

function word(value: unknown): string {
  return typeof value === "string"
    ? short(value, 300)
    : typeof value === "number"
      ? String(value)
      : JSON.stringify(value);
}

function ms(value: unknown): string {
  return typeof value === "number" ? duration(value) : word(value);
}

function pulled({ currentBytes, totalBytes }: Facts): string {
  return typeof currentBytes === "number" && typeof totalBytes === "number" && totalBytes > 0
    ? `, ${bytes(currentBytes)} of ${bytes(totalBytes)}`
    : "";
}
