/**
 * A certificate authority for one sandbox, created and removed with the sandbox.
 *
 * The sandbox trusts it, the host does not. It is constrained to the names that secrets are bound to, so even its key
 * cannot impersonate any other host. Keys are ECDSA on P-256; Node signs, `der.ts` encodes.
 */

import {
  createECDH,
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
} from "node:crypto";
import {
  bitString,
  boolean,
  context,
  contextPrimitive,
  integer,
  objectIdentifier,
  octetString,
  sequence,
  set,
  time,
  utf8String,
} from "./der.ts";

export interface Authority {
  readonly certificatePem: string;
  readonly keyPem: string;
}

export interface IssuedCertificate {
  /** The certificate alone; the verifier has the authority's. */
  readonly certificatePem: string;
  readonly keyPem: string;
}

const DAY_MS = 86_400_000;
/** Longer than any sandbox should live. */
const AUTHORITY_LIFETIME_MS = 5 * 365 * DAY_MS;
export const LEAF_LIFETIME_MS = 30 * DAY_MS;
/** Inside and outside share one clock, but a machine that wakes up may step it. */
const BACKDATED_MS = DAY_MS;

const OID = {
  commonName: "2.5.4.3",
  subjectKeyIdentifier: "2.5.29.14",
  keyUsage: "2.5.29.15",
  subjectAltName: "2.5.29.17",
  basicConstraints: "2.5.29.19",
  nameConstraints: "2.5.29.30",
  authorityKeyIdentifier: "2.5.29.35",
  extendedKeyUsage: "2.5.29.37",
  serverAuth: "1.3.6.1.5.5.7.3.1",
  ecdsaWithSha256: "1.2.840.10045.4.3.2",
} as const;

const AUTHORITY_NAME = "Sandlot egress authority";
const SIGNATURE_ALGORITHM = sequence(objectIdentifier(OID.ecdsaWithSha256));
const DNS_NAME = 2;
const IP_ADDRESS = 7;

/** An authority constrained to these hosts and their subdomains. */
export function createAuthority(hosts: readonly string[], nowMs: number): Authority {
  return authorityWith(newKeys(), hosts, nowMs);
}

/**
 * The same with a key that follows from a secret seed: a process that knows the seed issues certificates which another
 * one's sandbox trusts, without a file between them. Only dates and serial numbers of the two authorities differ.
 */
export function deriveAuthority(seed: Buffer, hosts: readonly string[], nowMs: number): Authority {
  return authorityWith(derivedKeys(seed), hosts, nowMs);
}

function authorityWith({ privateKey, publicKey }: Keys, hosts: readonly string[], nowMs: number): Authority {
  const certificate = certify({
    subject: AUTHORITY_NAME,
    publicKey,
    signer: privateKey,
    nowMs,
    lifetimeMs: AUTHORITY_LIFETIME_MS,
    extensions: [
      extension(OID.basicConstraints, true, sequence(boolean(true), integer(Buffer.from([0])))),
      extension(OID.keyUsage, true, bitString(Buffer.from([0b0000_0110]), 1)), // keyCertSign, cRLSign
      extension(OID.subjectKeyIdentifier, false, octetString(keyIdentifier(publicKey))),
      extension(OID.nameConstraints, true, nameConstraints(hosts)),
    ],
  });
  return { certificatePem: pem("CERTIFICATE", certificate), keyPem: keyPem(privateKey) };
}

/** A certificate for one host with one or more names; the first is its subject. */
export function issueCertificate(
  authority: Authority,
  host: string,
  nowMs: number,
  names: readonly string[] = [host],
): IssuedCertificate {
  const signer = createPrivateKey(authority.keyPem);
  const { privateKey, publicKey } = newKeys();
  const certificate = certify({
    subject: host.length <= 64 ? host : "sandlot",
    publicKey,
    signer,
    nowMs,
    lifetimeMs: LEAF_LIFETIME_MS,
    extensions: [
      extension(OID.basicConstraints, true, sequence()),
      extension(OID.keyUsage, true, bitString(Buffer.from([0b1000_0000]), 7)), // digitalSignature
      extension(OID.extendedKeyUsage, false, sequence(objectIdentifier(OID.serverAuth))),
      extension(OID.subjectAltName, false, sequence(...names.map(dnsName))),
      extension(OID.subjectKeyIdentifier, false, octetString(keyIdentifier(publicKey))),
      extension(
        OID.authorityKeyIdentifier,
        false,
        sequence(contextPrimitive(0, keyIdentifier(createPublicKey(signer)))),
      ),
    ],
  });
  return { certificatePem: pem("CERTIFICATE", certificate), keyPem: keyPem(privateKey) };
}

interface Certificate {
  readonly subject: string;
  readonly publicKey: KeyObject;
  readonly signer: KeyObject;
  readonly nowMs: number;
  readonly lifetimeMs: number;
  readonly extensions: readonly Buffer[];
}

function certify({ subject, publicKey, signer, nowMs, lifetimeMs, extensions }: Certificate): Buffer {
  const toBeSigned = sequence(
    context(0, integer(Buffer.from([2]))), // version 3
    integer(serialNumber()),
    SIGNATURE_ALGORITHM,
    name(AUTHORITY_NAME),
    sequence(time(nowMs - BACKDATED_MS), time(nowMs + lifetimeMs)),
    name(subject),
    publicKey.export({ type: "spki", format: "der" }),
    context(3, sequence(...extensions)),
  );
  return sequence(toBeSigned, SIGNATURE_ALGORITHM, bitString(sign("sha256", toBeSigned, signer)));
}

function nameConstraints(hosts: readonly string[]): Buffer {
  const permitted = hosts.map((host) => sequence(dnsName(host)));
  // Permitted names do not constrain names of another kind: IP addresses have to be excluded, by network and mask.
  const excluded = [8, 32].map((size) => sequence(contextPrimitive(IP_ADDRESS, Buffer.alloc(size))));
  return sequence(context(0, ...permitted), context(1, ...excluded));
}

function dnsName(host: string): Buffer {
  return contextPrimitive(DNS_NAME, Buffer.from(host, "ascii"));
}

function extension(identifier: string, critical: boolean, value: Buffer): Buffer {
  return sequence(objectIdentifier(identifier), ...(critical ? [boolean(true)] : []), octetString(value));
}

function name(commonName: string): Buffer {
  return sequence(set(sequence(objectIdentifier(OID.commonName), utf8String(commonName))));
}

function keyIdentifier(publicKey: KeyObject): Buffer {
  return createHash("sha1")
    .update(publicKey.export({ type: "spki", format: "der" }))
    .digest();
}

/** Positive, and at most 20 bytes. */
function serialNumber(): Buffer {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40;
  return bytes;
}

interface Keys {
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
}

function newKeys(): Keys {
  return generateKeyPairSync("ec", { namedCurve: "P-256" });
}

/** The first hash of the seed that is a private key of the curve: nearly every number of 32 bytes is. */
function derivedKeys(seed: Buffer): Keys {
  for (let round = 0; ; round++) {
    const secret = createHash("sha256").update(`sandlot authority ${round}\n`).update(seed).digest();
    const curve = createECDH("prime256v1");
    try {
      curve.setPrivateKey(secret);
    } catch {
      continue;
    }
    const point = curve.getPublicKey();
    const part = (from: number): string => point.subarray(from, from + 32).toString("base64url");
    const key = { kty: "EC", crv: "P-256", d: secret.toString("base64url"), x: part(1), y: part(33) };
    const privateKey = createPrivateKey({ key, format: "jwk" });
    return { privateKey, publicKey: createPublicKey(privateKey) };
  }
}

function keyPem(key: KeyObject): string {
  return key.export({ type: "pkcs8", format: "pem" }).toString();
}

function pem(label: string, der: Buffer): string {
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join("\n")}\n-----END ${label}-----\n`;
}
