/**
 * Keys of sandboxes that are reached over a network: each derived from one key of the fleet, so that nothing is stored
 * for a sandbox and every process of the fleet finds the same.
 *
 *   key       HKDF-SHA256(fleet key, sandbox id + blueprint hash + purpose)
 *   identity  <key id>.<sandbox id>.<blueprint hash>.<purpose>      not secret; names the key on the wire
 *
 * The fleet key has an id, and several may be valid at once: a sandbox keeps the one it was made with.
 */

import { hkdfSync } from "node:crypto";

/** `daemon`: a fleet reaches the sandbox. `egress`: the sandbox reaches its fleet's proxy. */
export type KeyPurpose = "daemon" | "egress";

export interface KeyOwner {
  readonly keyId: string;
  readonly sandboxId: string;
  readonly blueprintHash: string;
}

export interface DerivedKey {
  readonly identity: string;
  /** 32 bytes, in hexadecimal digits. */
  readonly key: string;
}

export const FLEET_KEY_BYTES = 32;
const SALT = "sandlot";

/** The fleet's keys by id. */
export class FleetKeys {
  readonly #keys: ReadonlyMap<string, Uint8Array>;
  /** The id of the key that new sandboxes get. */
  readonly current: string;

  constructor(current: string, keys: ReadonlyMap<string, Uint8Array>) {
    this.current = current;
    this.#keys = keys;
  }

  /** `null`: the fleet no longer has this key. */
  derive(owner: KeyOwner, purpose: KeyPurpose): DerivedKey | null {
    const { keyId, sandboxId, blueprintHash } = owner;
    const fleetKey = this.#keys.get(keyId);
    if (fleetKey === undefined) return null;
    const info = [sandboxId, blueprintHash, purpose].join("\n");
    const key = Buffer.from(hkdfSync("sha256", fleetKey, SALT, info, FLEET_KEY_BYTES)).toString("hex");
    return { identity: identityOf(owner, purpose), key };
  }
}

export function identityOf({ keyId, sandboxId, blueprintHash }: KeyOwner, purpose: KeyPurpose): string {
  return [keyId, sandboxId, blueprintHash, purpose].join(".");
}

const IDENTITY_PATTERN = /^([a-z0-9-]{1,16})\.([a-z0-9-]{1,40})\.([a-z0-9]{1,64})\.(daemon|egress)$/;

/** `null` for anything that is no identity: it comes from the network. */
export function parseIdentity(text: string): (KeyOwner & { readonly purpose: KeyPurpose }) | null {
  const [, keyId, sandboxId, blueprintHash, purpose] = IDENTITY_PATTERN.exec(text) ?? [];
  if (keyId === undefined || sandboxId === undefined || blueprintHash === undefined) return null;
  return { keyId, sandboxId, blueprintHash, purpose: purpose as KeyPurpose };
}
