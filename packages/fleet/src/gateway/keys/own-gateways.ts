/**
 * The addresses of a home's gateways: one file each in `$SANDLOT_HOME/gateways`, written when the gateway listens and
 * removed when it stops. The command line sends the home's operator key only to these addresses.
 *
 * Invariants
 * - An address is valid only while the process that wrote it runs: after a kill its port may be another process's.
 * - Files are 0600 in a directory that is 0700, and appear complete. A starting gateway removes those of dead ones.
 */

import { mkdir, readdir, readFile, rename, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isMissing } from "../../world/disk-trouble.ts";
import type { ProcessIdentity, World } from "../../world/world.ts";

type AddressWorld = Pick<World, "identity" | "processLiveness" | "randomHex">;

interface Written {
  readonly url: string;
  readonly process: ProcessIdentity;
}

const FILE_PATTERN = /^[0-9a-f]{16}\.json$/;

/** Resolves with a function that removes the address. */
export async function writeOwnAddress(home: string, url: string, world: AddressWorld): Promise<() => Promise<void>> {
  const directory = directoryOf(home);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  for (const { path, written } of await readAll(home))
    if (written === null || world.processLiveness(written.process) === "dead") await removed(path);
  const id = world.randomHex(8);
  const staged = join(directory, `.${id}.part`);
  const written: Written = { url, process: world.identity };
  await writeFile(staged, `${JSON.stringify(written)}\n`, { mode: 0o600, flag: "wx" });
  const path = join(directory, `${id}.json`);
  await rename(staged, path);
  return () => removed(path);
}

/** The addresses of the gateways of this home that run on this machine. */
export async function ownAddresses(home: string, world: AddressWorld): Promise<readonly string[]> {
  const all = (await readAll(home)).flatMap(({ written }) => (written === null ? [] : [written]));
  return all.filter(({ process }) => isRunning(world, process)).map(({ url }) => url);
}

function isRunning(world: AddressWorld, process: ProcessIdentity): boolean {
  const liveness = world.processLiveness(process);
  // Where the system cannot identify processes, the file alone decides.
  return liveness === "alive" || (liveness === "unknown" && world.identity.bootId === "" && process.bootId === "");
}

async function readAll(home: string): Promise<{ readonly path: string; readonly written: Written | null }[]> {
  const names = await readdir(directoryOf(home)).catch(noneWhereMissing<string[]>([]));
  const paths = names.filter((name) => FILE_PATTERN.test(name)).map((name) => join(directoryOf(home), name));
  const texts = await Promise.all(paths.map((path) => readFile(path, "utf8").catch(noneWhereMissing(""))));
  return paths.map((path, at) => ({ path, written: parsed(texts[at] ?? "") }));
}

function parsed(text: string): Written | null {
  try {
    const { url, process } = JSON.parse(text) as Partial<Written>;
    return typeof url === "string" && typeof process?.pid === "number" ? { url, process } : null;
  } catch {
    return null;
  }
}

function directoryOf(home: string): string {
  return join(home, "gateways");
}

async function removed(path: string): Promise<void> {
  await unlink(path).catch(noneWhereMissing(undefined));
}

function noneWhereMissing<T>(none: T): (error: unknown) => T {
  return (error) => {
    if (isMissing(error)) return none;
    throw error;
  };
}
