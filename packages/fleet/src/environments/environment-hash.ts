/**
 * What an environment is: its name and a hash over everything that its build depends on.
 *
 * Setup, contents of its files, variables of the blueprint, architecture, and the digest of the image or the versions
 * of the host's interpreters. After an upgrade of those the hash differs, because compiled packages of the earlier
 * version would not load.
 */

import { createHash } from "node:crypto";
import { type BigIntStats, readFileSync, statSync } from "node:fs";
import { SandlotError } from "@sandlot/contract";
import type { Blueprint, NamedBlueprint } from "../backend/blueprint.ts";

export interface EnvironmentPlan {
  readonly blueprint: NamedBlueprint;
  /** `name@hash`. */
  readonly id: string;
  /** Reads a file of the setup again. Throws where it is no longer the one that the hash names. */
  readonly files: readonly { readonly name: string; read(): Buffer }[];
}

/** The text that stands for the programs a setup finds: versions of interpreters, or a digest of an image. */
export type Basis = (blueprint: Blueprint, signal: AbortSignal) => Promise<string>;

const FORMAT = 1;
const FILES_MAX_BYTES = 16 * 1_024 * 1_024;

/** `null` for a blueprint without a setup. */
export async function planOf(
  named: NamedBlueprint,
  basis: Basis,
  sums: FileSums,
  signal: AbortSignal,
): Promise<EnvironmentPlan | null> {
  const { name, blueprint } = named;
  const { setup } = blueprint;
  if (setup === undefined) return null;
  const files = Object.entries(setup.files).map(([file, path]) => {
    const place = { key: `blueprints.${name}.setup.files.${file}`, path };
    return { name: file, place, sum: sums.of(place) };
  });
  const { secrets = [], ...network } = setup.network;
  const headers = secrets.map(({ value: _, ...rest }) => rest);
  const told = [
    ...[FORMAT, setup.script, files.map((file) => [file.name, file.sum]), network, headers],
    ...[Object.entries(blueprint.environment).sort(), process.arch, await basis(blueprint, signal)],
  ];
  const hash = createHash("sha256").update(JSON.stringify(told)).digest("hex").slice(0, 16);
  return {
    blueprint: named,
    id: `${name}@${hash}`,
    files: files.map((file) => ({ name: file.name, read: () => readAgain(file.place, file.sum) })),
  };
}

interface Place {
  readonly key: string;
  readonly path: string;
}

/** Sums of files, read again only where the file has changed: every create asks for them. */
export class FileSums {
  readonly #known = new Map<string, { readonly file: string; readonly sum: string }>();

  of(place: Place): string {
    const { path } = place;
    const file = identityOf(stat(place));
    const known = this.#known.get(path);
    if (known?.file === file) return known.sum;
    const sum = sumOf(read(place));
    this.#known.set(path, { file, sum });
    return sum;
  }
}

function readAgain(place: Place, sum: string): Buffer {
  const content = read(place);
  if (sumOf(content) === sum) return content;
  throw invalid(place, "has changed while its environment was about to be built");
}

function identityOf({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join();
}

function stat(place: Place): BigIntStats {
  try {
    return statSync(place.path, { bigint: true });
  } catch (error) {
    throw unreadable(place, error);
  }
}

function read(place: Place): Buffer {
  const found = stat(place);
  if (!found.isFile()) throw invalid(place, "is no file");
  if (found.size > FILES_MAX_BYTES) throw invalid(place, `is larger than ${FILES_MAX_BYTES} bytes`);
  try {
    return readFileSync(place.path);
  } catch (error) {
    throw unreadable(place, error);
  }
}

function sumOf(content: Buffer): string {
  return createHash("sha256").update(content).digest("hex");
}

function unreadable(place: Place, error: unknown): SandlotError {
  return invalid(place, `cannot be read: ${(error as Error).message}`);
}

function invalid({ key, path }: Place, problem: string): SandlotError {
  return new SandlotError("config_invalid", { path: key, problem: `${path} ${problem}` });
}
