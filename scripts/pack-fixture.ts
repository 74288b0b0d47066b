/**
 * Packs this version as a fixture, so that later versions are tested against it:
 *
 *   npm run pack:fixture [-- <file>]      default: tests/versions/fixtures/<version>.tar.br
 *
 * In it are the daemon, and two programs with the gateway, the fleet and the client inside (tests/versions/programs). Not in
 * it: native parts (terminals, posix_spawn), which a test takes from the present checkout; the supervisor; the page at `/docs`;
 * the Docker client and optional peers. The same sources give the same bytes.
 */

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants } from "node:zlib";
import { build } from "esbuild";
import { pack } from "tar-stream";
import { bundle } from "../packages/sandboxd/bundle.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const PROGRAMS = join(ROOT, "tests", "versions", "programs");
const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { version: string };
const FIXTURE_FILE = join(ROOT, "tests", "versions", "fixtures", `${version}.tar.br`);

/** What only some fleets load, when they use it. */
const LEFT_OUT = ["dockerode", "@larksuiteoapi/node-sdk", "officeparser", "read-excel-file", "node-pty", "koffi"];
const REQUIRE =
  'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);';

/** The parts of the fixture by their name. */
async function parts(folder: string): Promise<Readonly<Record<string, Buffer>>> {
  await bundle(join(folder, "sandboxd.cjs"));
  await build({
    ...{ absWorkingDir: ROOT, bundle: true, platform: "node", target: "node22.18", format: "esm", minify: true },
    entryPoints: [join(PROGRAMS, "gateway.ts"), join(PROGRAMS, "calls.ts")],
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    conditions: ["sandlot-source"],
    external: [...LEFT_OUT, "bufferutil", "utf-8-validate"],
    banner: { js: REQUIRE },
    legalComments: "none",
    logLevel: "error",
  });
  // Where the fleet finds its own name and version.
  const { name, version: fleet } = JSON.parse(readFileSync(join(ROOT, "packages", "fleet", "package.json"), "utf8"));
  writeFileSync(join(folder, "package.json"), JSON.stringify({ name, version: fleet, type: "module" }));
  const names = ["calls.mjs", "gateway.mjs", "package.json", "sandboxd.cjs"];
  return Object.fromEntries(names.map((name) => [name, readFileSync(join(folder, name))]));
}

/** `quick` packs for a test that unpacks it at once: ten times as fast, and larger. */
export async function packFixture(file = FIXTURE_FILE, { quick = false } = {}): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), "sandlot-fixture-"));
  try {
    const tar = pack();
    for (const [name, content] of Object.entries(await parts(folder)))
      tar.entry({ name, size: content.length, mode: 0o644, mtime: new Date(0), uid: 0, gid: 0 }, content);
    tar.finalize();
    const chunks: Buffer[] = [];
    for await (const chunk of tar) chunks.push(chunk as Buffer);
    const params = { [constants.BROTLI_PARAM_QUALITY]: quick ? 1 : 11, [constants.BROTLI_PARAM_LGWIN]: 24 };
    const packed = brotliCompressSync(Buffer.concat(chunks), { params });
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, packed);
    return packed.length;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const file = process.argv[2] === undefined ? FIXTURE_FILE : resolve(process.argv[2]);
  const sizeBytes = await packFixture(file);
  console.log(`${file}: ${(sizeBytes / 1024).toFixed(0)} KiB`);
}
