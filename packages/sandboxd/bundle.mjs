/**
 * Makes `dist/sandboxd.cjs`: the daemon and everything it needs, in one file for Node 20 and newer. Beside it lies what
 * cannot be in that file: the supervisor, which a shell runs, and for this platform the native parts of terminals and of
 * starting processes. Run as a program, on Linux, it also makes the compiled form, and what starts that.
 *
 *   node bundle.mjs [output]
 */

import { copyFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { compile, compiledFile } from "./compile.mjs";

/** The daemon is in every sandbox, so its size is paid for often. */
const MAX_BYTES = 213 * 1024;
const HERE = fileURLToPath(new URL(".", import.meta.url));

const SETTINGS = {
  absWorkingDir: HERE,
  bundle: true,
  platform: "node",
  target: "node20",
  format: "cjs",
  // The contract's source: only what the daemon uses of it comes along, which leaves its schemas and zod out.
  conditions: ["sandlot-source"],
  // What `ws` would use if somebody had installed it.
  external: ["bufferutil", "utf-8-validate"],
  treeShaking: true,
  minify: true,
  legalComments: "none",
  logLevel: "warning",
};

export async function bundle(outfile = `${HERE}dist/sandboxd.cjs`) {
  rmSync(compiledFile(outfile), { force: true });
  const { metafile } = await build({
    ...SETTINGS,
    entryPoints: ["src/main.ts"],
    outfile,
    plugins: [keptAsText("ws")],
    metafile: true,
  });
  const [output] = Object.values(metafile.outputs);
  if (output.bytes > MAX_BYTES) throw new Error(`${outfile} has ${output.bytes} bytes; at most ${MAX_BYTES}`);
  copyFileSync(join(HERE, "src/supervision/supervisor.sh"), join(dirname(outfile), "supervisor.sh"));
  for (const [name, path] of Object.entries(nativeFiles()))
    if (path !== null) copyFileSync(path, join(dirname(outfile), name));
  return { outfile, bytes: output.bytes, inputs: Object.keys(output.inputs) };
}

/** Where the daemon's files are, which the command line asks. The compiler writes it too; `npm start` runs no compiler. */
async function bundleLibrary() {
  const { target, platform } = SETTINGS;
  await build({
    ...{ absWorkingDir: HERE, bundle: true, packages: "external", format: "esm", target, platform },
    ...{ entryPoints: ["src/index.ts"], outdir: "dist" },
  });
}

/** What starts the compiled form, and that form. */
export async function bundleCompiled(outfile) {
  const starter = join(dirname(outfile), "start-compiled.cjs");
  await build({ ...SETTINGS, entryPoints: ["src/supervision/start-compiled.ts"], outfile: starter });
  await compile(outfile);
}

/**
 * A package that only few sandboxes need, as a text that becomes a program when it is first imported: every start reads
 * the whole file, and reading a text takes no time.
 */
function keptAsText(name) {
  return {
    name: "kept-as-text",
    setup(builder) {
      builder.onResolve({ filter: new RegExp(`^${name}$`) }, () => ({ path: name, namespace: "kept-as-text" }));
      builder.onLoad({ filter: /.*/, namespace: "kept-as-text" }, async () => {
        const stdin = { contents: `module.exports = require("${name}")`, resolveDir: HERE };
        const { outputFiles } = await build({ ...SETTINGS, stdin, write: false });
        const program = JSON.stringify(outputFiles[0].text);
        return { contents: `new Function("require", "module", "exports", ${program})(require, module, exports)` };
      });
    },
  };
}

/** They come with optional packages, one per platform. Under the names that the daemon looks for. */
function nativeFiles() {
  const here = createRequire(import.meta.url);
  const platform = `${process.platform}-${process.arch}`;
  const near = attempt(() => createRequire(here.resolve("@lydell/node-pty")));
  return {
    "pty.node": attempt(() => near.resolve(`@lydell/node-pty-${platform}/pty.node`)),
    // For glibc, which the Node that is brought along is for. In an image with musl the daemon does without.
    "koffi.node": attempt(() => here.resolve(`@koromix/koffi-${platform}/linux_${process.arch}/koffi.node`)),
  };
}

function attempt(work) {
  try {
    return work();
  } catch {
    return null;
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { outfile, bytes } = await bundle(process.argv[2]);
  await bundleLibrary();
  if (process.platform === "linux") await bundleCompiled(outfile);
  console.log(`${outfile}: ${bytes} bytes`);
}
