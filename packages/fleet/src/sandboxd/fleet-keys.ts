/**
 * The keys of a fleet: one secret of 32 bytes, from which every sandbox's own keys are derived. Nothing derived is
 * stored by the fleet. A sandbox has its own keys only, and learns nothing about others from them.
 *
 *   key       HKDF-SHA-256(fleet key, purpose + sandbox id + blueprint hash)
 *   identity  <id of the fleet key>.<purpose>.<sandbox id>.<blueprint hash>
 *
 * A rotation adds a second fleet key: the first of the list makes new sandboxes, all of them are accepted. The old one
 * can be removed once no sandbox of it is left.
 *
 * Invariant: a peer is known by the key that it proves. Its identity only says which key that has to be.
 */

import { hkdfSync } from "node:crypto";
import { type PresharedKey, PSK_IDENTITY_MAX_BYTES, SandlotError } from "@sandlot/contract";
import type { DaemonKeys } from "./dial.ts";

/**
 * `daemon`: a fleet to a sandbox. `egress`: a sandbox to its proxy. `authority`: never used in TLS, the seed of the
 * certificate authority that a sandbox trusts. `refusals`: a fleet to a proxy.
 */
export type KeyPurpose = "daemon" | "egress" | "authority" | "refusals";

export interface FleetKey {
  readonly id: string;
  readonly bytes: Buffer;
}

/** The sandbox that a key belongs to. */
export interface KeyOwner {
  readonly sandboxId: string;
  readonly blueprintHash: string;
}

/** What an identity names, and the key that its peer has to prove. */
export interface NamedKey extends KeyOwner {
  readonly purpose: KeyPurpose;
  readonly psk: PresharedKey;
}

const KEY_BYTES = 32;
const KEYS_MAX = 2;
const PURPOSES: ReadonlySet<string> = new Set<KeyPurpose>(["daemon", "egress", "authority", "refusals"]);
const PART = "[A-Za-z0-9_-]{1,64}";
const IDENTITY = new RegExp(`^(${PART})\\.(${PART})\\.(${PART})\\.(${PART})$`);
const LINE = new RegExp(`^(${PART}):([A-Za-z0-9+/]{43}=)$`);
/** The owner of a fleet's own key. */
const FLEET: KeyOwner = { sandboxId: "fleet", blueprintHash: "fleet" };

export class FleetKeys {
  readonly #keys: readonly [FleetKey, ...FleetKey[]];

  constructor(keys: readonly [FleetKey, ...FleetKey[]]) {
    this.#keys = keys;
  }

  /**
   * Reads one or two lines `id:base64 of 32 bytes`. The first line makes new keys. Throws `config_invalid`; `path` names
   * the key of the configuration, or the file.
   */
  static parse(text: string, path: string): FleetKeys {
    const lines = text.split("\n").flatMap((line) => (line.trim() === "" ? [] : [line.trim()]));
    const keys = lines.map((line, index) => parseLine(line, `${path}, line ${index + 1}`));
    const [first, ...more] = keys;
    if (first === undefined || keys.length > KEYS_MAX)
      throw invalid(path, `has ${keys.length} keys; one is needed, and a second one during a rotation`);
    if (new Set(keys.map(({ id }) => id)).size !== keys.length) throw invalid(path, "has two keys with one id");
    return new FleetKeys([first, ...more]);
  }

  /** The key that a new sandbox gets. */
  issue(purpose: KeyPurpose, owner: KeyOwner): PresharedKey {
    return derive(this.#keys[0], purpose, owner);
  }

  /** All keys that the sandbox may have: for `DaemonAddress.keys`. */
  accepted(purpose: KeyPurpose, owner: KeyOwner): DaemonKeys {
    const [first, ...more] = this.#keys;
    return [derive(first, purpose, owner), ...more.map((key) => derive(key, purpose, owner))];
  }

  /** The key that a fleet proves to its own proxies. */
  ofFleet(purpose: "refusals"): DaemonKeys {
    return this.accepted(purpose, FLEET);
  }

  /** What a client names, or `null` when it is none of ours. The client has to prove `psk`. */
  named(identity: string): NamedKey | null {
    const [, keyId, purpose = "", sandboxId = "", blueprintHash = ""] = IDENTITY.exec(identity) ?? [];
    const key = this.#keys.find(({ id }) => id === keyId);
    if (key === undefined || !PURPOSES.has(purpose)) return null;
    const owner = { sandboxId, blueprintHash };
    return { ...owner, purpose: purpose as KeyPurpose, psk: derive(key, purpose as KeyPurpose, owner) };
  }

  /** The key of the same owner for another purpose, from the same fleet key as the named one. */
  related(identity: string, purpose: KeyPurpose): PresharedKey | null {
    const named = this.named(identity);
    return named === null
      ? null
      : (this.named([identity.split(".")[0], purpose, named.sandboxId, named.blueprintHash].join("."))?.psk ?? null);
  }
}

function derive({ id, bytes }: FleetKey, purpose: KeyPurpose, { sandboxId, blueprintHash }: KeyOwner): PresharedKey {
  const identity = [id, purpose, sandboxId, blueprintHash].join(".");
  if (!IDENTITY.test(identity) || identity.length > PSK_IDENTITY_MAX_BYTES)
    throw new SandlotError("internal", { problem: `${JSON.stringify(identity)} cannot name a key` });
  const context = ["sandlot key 1", purpose, sandboxId, blueprintHash].join("\0");
  return { identity, key: Buffer.from(hkdfSync("sha256", bytes, "", context, KEY_BYTES)).toString("hex") };
}

function parseLine(line: string, path: string): FleetKey {
  const [, id, encoded] = LINE.exec(line) ?? [];
  // The line is not repeated: it may be most of a key.
  if (id === undefined || encoded === undefined) throw invalid(path, "is not `id:base64 of 32 bytes`");
  return { id, bytes: Buffer.from(encoded, "base64") };
}

function invalid(path: string, problem: string): SandlotError {
  return new SandlotError("config_invalid", { path, problem });
}
