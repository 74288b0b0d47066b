/**
 * Labels: every object of a backend carries them, so that a fleet can find it after a loss of all other state. They
 * hold hashes and random ids only, never a user's input.
 */

import { hash } from "node:crypto";
import type {
  BlueprintHash,
  FleetId,
  Generation,
  Immutable,
  SandboxId,
  ThreadId,
  ThreadKey,
  Token,
  UserId,
} from "@sandlot/contract";
import { z } from "zod";

/** The labels as a backend writes them beside an object, and reads them again. */
export const labelsSchema = z.object({
  fleet: branded<FleetId>(z.string()),
  sandboxId: branded<SandboxId>(z.string()),
  /** The generation it was made as. Binding gives a blank a later one, which only its marker and daemon know. */
  generation: branded<Generation>(z.int()),
  threadKey: branded<ThreadKey>(z.string()).nullable(),
  blueprintHash: branded<BlueprintHash>(z.string()),
  /** The engine that made it (`Backend.engineId`). Objects of earlier versions have none. */
  engine: z.string().optional(),
});

export type Labels = Immutable<z.infer<typeof labelsSchema>>;

/** Brands exist at compile time only. */
function branded<Id>(schema: z.ZodType): z.ZodType<Id> {
  return schema as z.ZodType<Id>;
}

/**
 * A backend writes it beside a sandbox, outside every mount, before it makes a thread's sandbox or binds a blank. After
 * a loss of the store it is the only proof of which thread a sandbox belongs to. It holds the token, so only the
 * fleet's own account can read it.
 */
export interface Marker {
  readonly sandboxId: SandboxId;
  readonly user: UserId;
  readonly thread: ThreadId;
  readonly generation: Generation;
  readonly token: Token;
  readonly blueprint: string;
  readonly blueprintHash: BlueprintHash;
}

/** The separator cannot occur in a user id, so two different pairs never give one text. */
export function threadKeyOf(user: UserId, thread: ThreadId): ThreadKey {
  return hash("sha256", `${user}\n${thread}`).slice(0, 32) as ThreadKey;
}
