/**
 * The options of a command that travel unchanged, listed once: the client and the fleet send them with these functions,
 * the gateway forwards them, the daemon takes no others. The rest differs per hop: stdin is bytes, signals stay local.
 */

import type { ExecOptions, SpawnOptions } from "./sandbox.ts";

const SHARED = ["execId", "cwd", "env", "timeoutMs"] as const satisfies readonly (keyof ExecOptions &
  keyof SpawnOptions)[];
const EXEC_ONLY = ["outputMaxBytes"] as const satisfies readonly (keyof ExecOptions)[];
const SPAWN_ONLY = ["keepStdinOpen", "output"] as const satisfies readonly (keyof SpawnOptions)[];

export type ExecOptionName = (typeof SHARED)[number] | (typeof EXEC_ONLY)[number];
export type SpawnOptionName = (typeof SHARED)[number] | (typeof SPAWN_ONLY)[number];

/** The options of `exec` and `spawn` together. */
export const COMMAND_OPTION_NAMES: readonly (ExecOptionName | SpawnOptionName)[] = [
  ...SHARED,
  ...EXEC_ONLY,
  ...SPAWN_ONLY,
];

/** Anything that has some of these options, absent or `undefined`. */
type Given<Name extends string, Options> = { readonly [One in Name & keyof Options]?: Options[One] | undefined };

/** Picks the given options of `exec` from options or from a request. */
export function pickExecOptions(given: Given<ExecOptionName, ExecOptions>): Pick<ExecOptions, ExecOptionName> {
  return pick(given, [...SHARED, ...EXEC_ONLY]);
}

/** Picks the given options of `spawn`. */
export function pickSpawnOptions(given: Given<SpawnOptionName, SpawnOptions>): Pick<SpawnOptions, SpawnOptionName> {
  return pick(given, [...SHARED, ...SPAWN_ONLY]);
}

function pick<Options extends object>(given: object, names: readonly (keyof Options & string)[]): Options {
  const picked: Record<string, unknown> = {};
  for (const name of names) {
    const value = (given as Readonly<Record<string, unknown>>)[name];
    if (value !== undefined) picked[name] = value;
  }
  return picked as Options;
}
