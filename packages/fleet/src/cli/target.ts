/**
 * What a command works on: a gateway (`--url`, `$SANDLOT_URL`), or without one a fleet of its own for the length of the
 * command. Nothing keeps running that was not there before.
 */

import { SandlotClient } from "@sandlot/client";
import {
  type AuditFinding,
  DEFAULT_USER,
  type ExplanationReply,
  explanationSchema,
  isSandlotError,
  type Recovery,
  type Sandbox,
  type SandboxSummary,
  SandlotError,
} from "@sandlot/contract";
import { resolveSettings } from "../config/resolve-settings.ts";
import type { FleetConfig } from "../config/schema.ts";
import type { DestroyOutcome } from "../fleet.ts";
import { readOperatorKey } from "../gateway/keys/operator-key.ts";
import { livingSandboxes } from "../observe/living.ts";
import { openFleet } from "../open-fleet.ts";
import { systemWorld } from "../world/system-world.ts";
import { loadSettings } from "./load-settings.ts";
import type { Terminal } from "./terminal.ts";
import { makeUsable } from "./usable-home.ts";

export interface TargetOptions {
  /** The configuration file; without one, what the environment names. */
  readonly config?: string | undefined;
  /** The gateway to ask. */
  readonly url?: string | undefined;
}

export interface ThreadName {
  readonly thread: string;
  readonly user?: string | undefined;
}

export interface TargetLease extends AsyncDisposable {
  readonly sandbox: Sandbox;
  readonly recovery: Recovery;
}

export interface Target {
  acquire(
    name: ThreadName & { readonly blueprint?: string | undefined },
    purpose: string,
    signal: AbortSignal,
  ): Promise<TargetLease>;
  list(): Promise<readonly SandboxSummary[]>;
  destroy(name: ThreadName, options: DestroyWish, signal: AbortSignal): Promise<DestroyOutcome>;
  explain(sandboxId: string): Promise<ExplanationReply>;
  audit(): Promise<readonly AuditFinding[] | null>;
}

export interface DestroyWish {
  readonly force: boolean;
  readonly purge: boolean;
}

/** Opens the target, and closes it whatever happens. Sandboxes stay for the next command. */
export async function withTarget<T>(
  terminal: Terminal,
  options: TargetOptions,
  work: (target: Target) => Promise<T>,
): Promise<T> {
  const { gateway, config } = await findGateway(terminal, options);
  if (gateway !== null) return work(gatewayTarget(gateway));
  await makeUsable(resolveSettings(config, terminal.environment).home);
  // Blanks that are made ready for others would only make this one command wait.
  await using fleet = await openFleet({ ...config, pool: {} });
  return await work({
    acquire: ({ thread, user, blueprint }, purpose, signal) =>
      fleet.acquire({ thread, purpose, signal, ...(user && { user }), ...(blueprint && { blueprint }) }),
    list: () => livingSandboxes(fleet, systemWorld()),
    destroy: ({ thread, user }, wish, signal) => fleet.destroy({ thread, ...(user && { user }) }, { ...wish, signal }),
    explain: async (sandboxId) => explanationSchema.parse(await fleet.explain(sandboxId)),
    audit: () => fleet.audit(),
  });
}

/** The gateway that is to be asked, with a key where there is one; `null` when a fleet of one's own is meant. */
export async function findGateway(
  { environment }: Terminal,
  options: TargetOptions,
): Promise<{ readonly gateway: SandlotClient | null; readonly config: FleetConfig }> {
  const { config } = await loadSettings(options.config, environment);
  // An empty variable is an unset one, as shells have it.
  const url = options.url ?? (environment.SANDLOT_URL || undefined);
  if (url === undefined) return { gateway: null, config };
  checkUrl(url, options.url === undefined ? "SANDLOT_URL" : "--url");
  const { home } = resolveSettings(config, environment);
  const apiKey = environment.SANDLOT_API_KEY || (await readOperatorKey(home)) || undefined;
  return { gateway: new SandlotClient(apiKey === undefined ? { url } : { url, apiKey }), config };
}

/** Otherwise it would be a gateway that does not answer, and trying again would be the advice. */
function checkUrl(url: string, field: string): void {
  const isAddress = URL.canParse(url) && /^https?:$/.test(new URL(url).protocol);
  if (isAddress) return;
  const problem = `${url} is not the address of a gateway, such as http://127.0.0.1:8750`;
  throw new SandlotError("invalid_request", { field, problem });
}

function gatewayTarget(gateway: SandlotClient): Target {
  const actingFor = (user: string | undefined) => (user === undefined ? gateway : gateway.actingFor(user));
  return {
    acquire: ({ thread, user, blueprint }, purpose, signal) =>
      actingFor(user).acquire({ thread, purpose, signal, ...(blueprint && { blueprint }) }),
    list: () => gateway.listSandboxes(),
    destroy: async ({ thread, user }, { force, purge }) => {
      if (purge) return (await actingFor(user).deleteThread(thread, { force })).outcome;
      // A thread of the same name may be somebody else's.
      const found = (await gateway.listSandboxes()).find(
        (sandbox) => sandbox.thread === thread && sandbox.user === (user ?? DEFAULT_USER),
      );
      if (found === undefined) return "absent";
      try {
        return (await gateway.destroySandbox(found.sandboxId, { force })).outcome;
      } catch (error) {
        if (isSandlotError(error, "sandbox_not_found")) return "absent";
        throw error;
      }
    },
    explain: (sandboxId) => gateway.explain(sandboxId),
    audit: async () => {
      const { consistent, findings } = await gateway.audit();
      return consistent === null ? null : findings;
    },
  };
}
