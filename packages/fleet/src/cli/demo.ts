/**
 * `sandlot demo`: two conversations, their sandboxes, a crash and a pause, narrated in plain sentences.
 *
 * Everything shown is real: the fleet is opened as any program opens it, the output is what came back, and a broken
 * promise ends the demonstration with an error. All state is in a temporary directory, which is removed at the end,
 * also after an interruption.
 */

import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { LossReason } from "@sandlot/contract";
import { SandlotError } from "@sandlot/contract";
import { MemoryEngine } from "../backends/memory/engine.ts";
import type { Fleet, Lease } from "../fleet.ts";
import { openFleet } from "../open-fleet.ts";
import { abortable } from "../world/waiting.ts";
import { Narrator } from "./narrator.ts";
import type { Terminal } from "./terminal.ts";

/** How long the report of a crash may take. It takes a millisecond; the bound is for a failed demonstration. */
const NEWS_TIMEOUT_MS = 5_000;

const NOTES = "/mnt/user-data/workspace/notes.txt";

interface Stage {
  readonly fleet: Fleet;
  readonly home: string;
  readonly tell: Narrator;
  readonly signal: AbortSignal;
}

export async function runDemo(terminal: Terminal, options: { json: boolean; signal: AbortSignal }): Promise<void> {
  const tell = new Narrator(terminal, options.json);
  tell.opening(
    "Sandlot gives every conversation of an AI agent a sandbox of its own:",
    "a private place with files and commands. This demonstration runs inside this",
    "process and touches nothing but a temporary directory.",
  );
  const home = await realpath(await mkdtemp(join(tmpdir(), "sandlot-demo-")));
  try {
    const fleet = await openFleet({ home, backend: "memory" });
    try {
      await play({ fleet, home, tell, signal: options.signal });
    } finally {
      await fleet.close({ destroy: true, drainMs: 0 });
    }
  } finally {
    await rm(home, { recursive: true, force: true });
  }
  tell.step("Everything is closed");
  tell.say("The sandboxes have ended and the temporary directory is gone.");
  tell.closing(
    "Where to read next:",
    "  README.md              what Sandlot is and how to use it in a program",
    "  docs/LIFECYCLE.md      the life of a sandbox, from asking for it to its end",
    "  sandlot --help         the other commands",
  );
}

async function play(stage: Stage): Promise<void> {
  const first = await twoConversations(stage);
  await separateFiles(stage, first);
  await sharing(stage, first.research);
  await crash(stage, first.research);
  await pause(stage, first);
}

interface Conversations {
  readonly research: Lease;
  readonly coding: Lease;
  /** How long the coding conversation waited: its sandbox was created anew, with everything else already running. */
  readonly coldMs: number;
}

async function twoConversations({ fleet, tell, signal }: Stage): Promise<Conversations> {
  tell.step("Two conversations ask for a sandbox");
  const research = await timed(() => fleet.acquire({ thread: "research", purpose: "demo", signal }));
  tell.say(`"research" gets sandbox ${shortId(research.value)}, made for it in ${research.ms}.`);
  const coding = await timed(() => fleet.acquire({ thread: "coding", purpose: "demo", signal }));
  tell.say(`"coding" gets sandbox ${shortId(coding.value)}, made for it in ${coding.ms}.`);
  expect(research.value.sandbox.id !== coding.value.sandbox.id, "two conversations got one sandbox");
  return { research: research.value, coding: coding.value, coldMs: coding.durationMs };
}

async function separateFiles({ tell, signal }: Stage, { research, coding }: Conversations): Promise<void> {
  tell.step("Each one has its own files");
  await research.sandbox.files.write(NOTES, "Sandlots are where games begin.\n");
  tell.say('"research" writes notes.txt and reads it back:');
  await show(tell, research, "cat notes.txt", signal);
  tell.say('"coding" looks for the same file. It is not there, and the failed command is an');
  tell.say("ordinary answer with an exit code, not an exception:");
  const { exitCode } = await show(tell, coding, "cat notes.txt", signal);
  expect(exitCode !== 0, "one conversation sees the other's file");
}

async function sharing({ fleet, tell, signal }: Stage, research: Lease): Promise<void> {
  tell.step("A helper joins a conversation");
  const helper = await timed(() => fleet.acquire({ thread: "research", purpose: "helper", signal }));
  expect(helper.value.sandbox.id === research.sandbox.id, "the helper got another sandbox");
  tell.say(`It asks for "research" too and shares that sandbox at once (${helper.ms}).`);
  await helper.value.sandbox.files.append(NOTES, "The helper was here.\n");
  await helper.value.release();
  tell.say("It adds a line and leaves. The sandbox stays, because it is still in use:");
  await show(tell, research, "cat notes.txt", signal);
}

async function crash({ home, tell, signal }: Stage, research: Lease): Promise<void> {
  tell.step("The sandbox crashes");
  await research.sandbox.files.write("/tmp/scratch.txt", "not worth keeping\n");
  const before = research.generation;
  const loss = new Promise<LossReason>((resolve) => {
    const stop = research.onLost(({ reason }) => {
      stop();
      resolve(reason);
    });
  });
  const ended = MemoryEngine.shared(home)
    .objects()
    .find(({ labels }) => labels.sandboxId === research.sandbox.id);
  if (ended === undefined) throw broken("the engine does not know the sandbox");
  MemoryEngine.shared(home).kill(ended.ref);
  const reason = await abortable(loss, AbortSignal.any([signal, AbortSignal.timeout(NEWS_TIMEOUT_MS)]));
  tell.say(`We end it from outside, in the middle of the work. "research" hears of it: ${reason}.`);
  tell.say("Its next command simply works, in a new sandbox:");
  const { exitCode } = await show(tell, research, "cat notes.txt", signal);
  const { kind, survived, lost } = research.recovery;
  expect(exitCode === 0 && kind === "restored", "the workspace did not survive the crash");
  expect(research.generation > before, "the sandbox is still the old one");
  tell.say(`Kept: ${survived.join(", ")}. Lost: ${lost.join(", ")}.`);
}

async function pause({ fleet, tell, signal }: Stage, { research, coding, coldMs }: Conversations): Promise<void> {
  tell.step("A pause, and the conversation goes on");
  const left = research.sandbox.id;
  await Promise.all([research.release(), coding.release()]);
  const states = (await fleet.list()).map(({ thread, state }) => `"${thread}" is ${state}`);
  tell.say("The sandboxes are not in use now. They stay for a while, each for its own conversation:");
  tell.say(`${states.join(", ")}.`);
  const again = await timed(() => fleet.acquire({ thread: "research", purpose: "demo", signal }));
  expect(again.value.sandbox.id === left, "the conversation did not get its own sandbox back");
  tell.say(`"research" comes back and has the same one after ${again.ms}; making one took ${inMs(coldMs)}:`);
  await show(tell, again.value, "wc -l notes.txt", signal);
  await again.value.release();
}

/** Runs a command and prints it as a terminal would, with its exit code. */
async function show(tell: Narrator, lease: Lease, command: string, signal: AbortSignal) {
  const result = await lease.sandbox.exec(command, { signal });
  tell.command(command, `${result.stdout}${result.stderr}`, result.exitCode);
  return result;
}

async function timed<T>(work: () => Promise<T>): Promise<{ value: T; ms: string; durationMs: number }> {
  const startedAt = performance.now();
  const value = await work();
  const durationMs = performance.now() - startedAt;
  return { value, ms: inMs(durationMs), durationMs };
}

function inMs(durationMs: number): string {
  return `${durationMs < 10 ? durationMs.toFixed(2) : Math.round(durationMs)} ms`;
}

/** Enough of an id to compare two by eye. */
function shortId(lease: Lease): string {
  return lease.sandbox.id.slice(0, 8);
}

function expect(holds: boolean, otherwise: string): void {
  if (!holds) throw broken(otherwise);
}

function broken(problem: string): SandlotError {
  return new SandlotError("internal", { problem: `the demonstration did not go as promised: ${problem}` });
}
