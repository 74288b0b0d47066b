/**
 * The entry of the built command line: loads the parts that `bundle.mjs` made, and caches their compiled code.
 *
 * Node's own compile cache is written before a module runs, so it lacks every function that is compiled at its first
 * call. This one is written after they ran, which saves a command a fifth of its processor time. It is one file for
 * each build, `$XDG_CACHE_HOME/sandlot/compiled/BUILD`:
 *
 *   8 bytes   the length of the index, a decimal number
 *   index     { part: [offset, length, checksum] } as JSON, offsets from its end
 *   code      of each part
 *
 * Everything is aligned to eight bytes, as V8 requires. A new file replaces the old one when it is complete and on the
 * disk. Only this account can write its folder, because its content is executed. V8 refuses code of another version or
 * other flags. It would crash on damaged code, which the checksum finds; that part is then compiled anew.
 */

import {
  closeSync,
  fstatSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { createRequire } from "node:module";
import { isAbsolute, join } from "node:path";
import { pathToFileURL } from "node:url";
import { constants, Script } from "node:vm";
import { crc32 } from "node:zlib";

/** Defined by `bundle.mjs`: a hash of all parts, the entry part, and the exports of each. */
declare const BUILD: string;
declare const MAIN_PART: string;
declare const EXPORTS: Readonly<Record<string, readonly string[]>>;

const PARTS = join(import.meta.dirname, "parts");
const ALIGNMENT = 8;
/** Later V8 may have dropped the code of the start, and a gateway should not be paused. */
const START_MS = 3_000;
/** Age of files of builds that are no longer started. */
const LEFTOVER_MS = 30 * 24 * 3_600_000;

type Index = Readonly<Record<string, readonly [offset: number, length: number, checksum: number]>>;
type Require = (name: string) => unknown;
type Part = (require: Require, exports: object, part: (name: string) => Promise<unknown>, url: string) => void;

interface Cache {
  readonly names: readonly string[];
  read(name: string): Buffer | undefined;
}

const parts = new Map<string, object>();
const scripts = new Map<string, Script>();
const folder = cacheFolder();
const cache = folder === null ? null : openCache(join(folder, BUILD));
let isWorthKeeping = false;

const keeping = setTimeout(keepOnce, START_MS).unref();
process.once("exit", keepOnce);
run(MAIN_PART);

/** A part's exports. The part runs at the first use of one of them. */
function partOf(name: string): object {
  const known = parts.get(name);
  if (known !== undefined) return known;
  const exports: Record<string, unknown> = {};
  parts.set(name, exports);
  for (const exported of EXPORTS[name] ?? []) {
    const get = () => {
      run(name);
      return exports[exported];
    };
    Object.defineProperty(exports, exported, { get, enumerable: true, configurable: true });
  }
  return exports;
}

/** Runs a part once. It first replaces our getters by its exports. */
function run(name: string): object {
  const exports = partOf(name);
  if (scripts.has(name)) return exports;
  const file = join(PARTS, name);
  const url = pathToFileURL(file).href;
  const cachedData = cache?.read(name);
  const script = new Script(readFileSync(file, "latin1"), {
    filename: url,
    ...(cachedData !== undefined && { cachedData }),
    importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
  if (script.cachedDataRejected !== false) isWorthKeeping = true;
  scripts.set(name, script);
  const part = script.runInThisContext() as Part;
  part(requireFrom(url), exports, async (other) => run(other.slice(2)), url);
  return exports;
}

function requireFrom(url: string): Require {
  let fromPackages: NodeJS.Require | undefined;
  return (name) => {
    if (name.startsWith("./")) return partOf(name.slice(2));
    const builtin: unknown = process.getBuiltinModule(name);
    if (builtin !== undefined) return builtin;
    fromPackages ??= createRequire(url);
    return fromPackages(name);
  };
}

/** `null` where there is none, or others can write it; then Node compiles as usual. */
function cacheFolder(): string | null {
  const { XDG_CACHE_HOME, HOME, NODE_V8_COVERAGE } = process.env;
  const above = XDG_CACHE_HOME || (HOME && join(HOME, ".cache"));
  // Instrumented code is not cached.
  if (!above || !isAbsolute(above) || NODE_V8_COVERAGE) return null;
  const found = join(above, "sandlot", "compiled");
  try {
    mkdirSync(found, { recursive: true, mode: 0o700 });
    const about = lstatSync(found);
    const isOurs = about.isDirectory() && about.uid === process.getuid?.() && (about.mode & 0o22) === 0;
    return isOurs ? found : null;
  } catch {
    return null; // A home that cannot be written.
  }
}

/** `null` where there is none yet, or it is incomplete. */
function openCache(path: string): Cache | null {
  try {
    const file = openSync(path, "r");
    const codeAt = ALIGNMENT + Number(bytesAt(file, 0, ALIGNMENT).toString("latin1"));
    const index = JSON.parse(bytesAt(file, ALIGNMENT, codeAt - ALIGNMENT).toString("latin1")) as Index;
    const end = Math.max(...Object.values(index).map(([offset, length]) => aligned(codeAt + offset + length)));
    if (fstatSync(file).size !== end) return null;
    return {
      names: Object.keys(index),
      read(name) {
        const [offset, length, checksum] = index[name] ?? [0, 0, 0];
        const code = bytesAt(file, codeAt + offset, length);
        return length > 0 && crc32(code) === checksum ? code : undefined;
      },
    };
  } catch {
    return null;
  }
}

function bytesAt(file: number, position: number, length: number): Buffer {
  const bytes = Buffer.allocUnsafeSlow(length);
  if (readSync(file, bytes, 0, length, position) !== length) throw new Error("compiled code is cut off");
  return bytes;
}

function aligned(length: number): number {
  return length + (-length & (ALIGNMENT - 1));
}

function keepOnce(): void {
  clearTimeout(keeping);
  process.off("exit", keepOnce);
  if (folder !== null && isWorthKeeping) keep(folder);
}

/** Also keeps the cached code of parts that this command did not load. */
function keep(keepIn: string): void {
  const path = join(keepIn, BUILD);
  const unfinished = `${path}.${process.pid}`;
  try {
    const index: Record<string, [number, number, number]> = {};
    const pieces: Buffer[] = [];
    let end = 0;
    for (const name of new Set([...scripts.keys(), ...(cache?.names ?? [])])) {
      const code = scripts.get(name)?.createCachedData() ?? cache?.read(name);
      if (code === undefined) continue;
      index[name] = [end, code.length, crc32(code)];
      pieces.push(code, Buffer.alloc(aligned(code.length) - code.length));
      end += aligned(code.length);
    }
    const text = JSON.stringify(index);
    const head = String(aligned(text.length)).padStart(ALIGNMENT) + text.padEnd(aligned(text.length));
    const file = openSync(unfinished, "wx", 0o600);
    try {
      for (const piece of [Buffer.from(head, "latin1"), ...pieces]) writeWhole(file, piece);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(unfinished, path);
    removeLeftovers(keepIn);
  } catch {
    // Without it, only the next start takes longer.
    rmSync(unfinished, { force: true, recursive: true });
  }
}

function writeWhole(file: number, bytes: Buffer): void {
  for (let written = 0; written < bytes.length; ) written += writeSync(file, bytes, written);
}

function removeLeftovers(keepIn: string): void {
  const oldest = Date.now() - LEFTOVER_MS;
  for (const name of readdirSync(keepIn)) {
    const path = join(keepIn, name);
    if (name !== BUILD && statSync(path).mtimeMs < oldest) rmSync(path, { recursive: true, force: true });
  }
}
