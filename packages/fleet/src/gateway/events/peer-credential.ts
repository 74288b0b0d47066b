/**
 * How one gateway of a store proves to another that it is one: by the store's own secret, which only gateways read.
 *
 * Invariants
 * - The secret never leaves the store's gateways. What travels is derived from it for the gateway that is asked, so that
 *   it is worth nothing at another.
 * - It opens one thing of that gateway, its events or its overview, and nothing else.
 */

import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { SharedEntries } from "../../fleet.ts";
import { sharedText } from "../named-texts/shared-texts.ts";

const PREFIX = "slf_";

/** What a gateway may read of another one. */
export type PeerPurpose = "events" | "overview";

export class PeerCredential {
  readonly #secret: string;

  private constructor(secret: string) {
    this.#secret = secret;
  }

  static async open(entries: SharedEntries): Promise<PeerCredential> {
    return new PeerCredential(await sharedText(entries, "fleet/secret", () => randomBytes(32).toString("hex")));
  }

  /** The text to send to the gateway of this instance. */
  for(instance: string, purpose: PeerPurpose): string {
    return PREFIX + createHmac("sha256", this.#secret).update(`${purpose}\n${instance}`).digest("hex");
  }

  /** Whether a text was made for this instance and purpose. */
  isValid(text: string, instance: string, purpose: PeerPurpose): boolean {
    const [given, expected] = [Buffer.from(text), Buffer.from(this.for(instance, purpose))];
    return given.byteLength === expected.byteLength && timingSafeEqual(given, expected);
  }
}
