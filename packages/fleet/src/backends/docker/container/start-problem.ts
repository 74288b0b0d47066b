/**
 * Why a container did not start: the message of the engine or of its first process, and a fix.
 */

import { SandlotError } from "@sandlot/contract";
import type { Binding } from "../../../host/mounts/mounts.ts";
import { createFailed, EngineRefusal } from "../engine/trouble.ts";
import { unusable } from "./images.ts";
import { NO_RUNTIME } from "./inside.ts";
import { runtimeUnknown } from "./isolation.ts";

/** The container has ended before it was ready. */
class EarlyEnd extends Error {
  override readonly name = "EarlyEnd";
}

interface EndState {
  readonly ExitCode?: number | undefined;
  readonly OOMKilled?: boolean | undefined;
  readonly Error?: string | undefined;
}

const SAID_MAX_CHARACTERS = 2_000;
/** The messages of engines before 23, of later ones, and of containerd when a runtime's program is missing. */
const UNKNOWN_RUNTIME =
  /(?:unknown runtime specified |unknown or invalid runtime name: |runtime "(?=[^"]+" binary not installed))([^\s"]+)/i;

export function explainExit(state: EndState | null, said: string): Error {
  if (state === null) return new EarlyEnd("it was removed before it was ready");
  if (state.OOMKilled === true) return new EarlyEnd("its memory limit is too small for the daemon to start");
  const words = [state.Error ?? "", said].map((text) => text.trim()).filter((text) => text !== "");
  return new EarlyEnd(words.join(": ").slice(-SAID_MAX_CHARACTERS) || `it ended with ${state.ExitCode ?? "no status"}`);
}

/** Turns a failed create into an error of the contract. */
export function explainCreate(error: unknown, image: string, mounts: readonly Binding[]): unknown {
  if (!(error instanceof EngineRefusal) && !(error instanceof EarlyEnd)) return error;
  const { message } = error;
  if (error instanceof EngineRefusal && error.status === 404 && /no such image/i.test(message))
    return unusable(image, "the engine does not have it", error);
  if (/"?\/bin\/sh"?.*(no such file|not found)/is.test(message)) return unusable(image, "it has no /bin/sh", error);
  if (/exec format error/i.test(message)) return unusable(image, "it is for another kind of processor", error);
  if (message.includes(NO_RUNTIME))
    return unusable(image, "it has no Node, and this machine's cannot run in it", error);
  const unknown = UNKNOWN_RUNTIME.exec(message)?.[1];
  if (unknown !== undefined) return runtimeUnknown(unknown, [], error);
  return missingSource(message, mounts) ?? createFailed(message, error);
}

/** The engine looks for the path where it runs, which may be another machine or another container. */
function missingSource(message: string, mounts: readonly Binding[]): SandlotError | null {
  const path = /bind source path does not exist: (\S+)/.exec(message)?.[1];
  const mount = mounts.find(({ from }) => from === path);
  if (mount === undefined) return null;
  const problem = "the engine does not see the host path: it runs on another machine, or in a container of its own";
  return new SandlotError("mount_refused", { hostPath: mount.from, sandboxPath: mount.to, problem });
}
