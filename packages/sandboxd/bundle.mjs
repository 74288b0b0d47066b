/**
 * Makes `dist/sandboxd.cjs`: the daemon and everything it needs, in one file for Node 20 and newer.
 *
 *   node bundle.mjs [output]
 */

import { fileURLToPath } from "node:url";
import { build } from "esbuild";

/** The daemon is in every sandbox, so its size is paid for often. */
const MAX_BYTES = 150 * 1024;
const HERE = fileURLToPath(new URL(".", import.meta.url));

export async function bundle(outfile = `${HERE}dist/sandboxd.cjs`) {
  const { metafile } = await build({
    absWorkingDir: HERE,
    entryPoints: ["src/main.ts"],
    outfile,
    bundle: true,
    platform: "node",
    target: "node20",
    format: "cjs",
    // The contract's source: only what the daemon uses of it comes along, which leaves its schemas and zod out.
    conditions: ["sandlot-source"],
    treeShaking: true,
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: "none",
    metafile: true,
    logLevel: "warning",
  });
  const [output] = Object.values(metafile.outputs);
  if (output.bytes > MAX_BYTES) throw new Error(`${outfile} has ${output.bytes} bytes; at most ${MAX_BYTES}`);
  return { outfile, bytes: output.bytes, inputs: Object.keys(output.inputs) };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { outfile, bytes } = await bundle(process.argv[2]);
  console.log(`${outfile}: ${bytes} bytes`);
}
