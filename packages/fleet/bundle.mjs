/**
 * Makes `dist/bundle`: what is installed and run of this package, with the libraries it uses inside.
 *
 *   dist/bundle/*.js            the library's entries, as `exports` of package.json names them
 *   dist/bundle/programs/**     the command line and the programs that the fleet starts, each by the path it has in `src`
 *   dist/bundle/programs/cli/parts/   what the command line is loaded from (src/cli/load-parts.ts)
 *   dist/bundle/docs/           the files of the page at `/docs`
 *   dist/bundle/dashboard/      the files of the dashboard, from packages/dashboard/dist
 *
 * Installing `sandlot` therefore fetches few packages and runs no install script, and a program starts by reading a few files
 * instead of hundreds. The library leaves `@sandlot/*` and zod outside, so that its classes are those that its user imports;
 * programs have them inside as well. Optional peers are outside of both, and imported when used.
 */

import { createHash } from "node:crypto";
import { copyFileSync, cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build, transform } from "esbuild";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const OUTPUT = join(HERE, "dist", "bundle");
const MANIFEST = JSON.parse(readFileSync(join(HERE, "package.json"), "utf8"));
const PEERS = Object.keys(MANIFEST.peerDependencies);

const LIBRARY = ["index", "testing/index", "mcp/index", "channels/index", "gateway/index"];
const PROGRAMS = [
  "host/egress/process/egress-main",
  "host/egress/namespace/listen-inside",
  "host/checkpoints/worker/worker-main",
  "gateway/documents/convert-document",
  "backends/docker/aio/namespace-connector-child",
  "backends/kubernetes/workspaces/volume/volume-main",
];
/** Runs inside a sandbox, where no other file of this package is. */
const ALONE = ["host/egress/sandbox-side/forwarder"];
/** Built before. */
const DASHBOARD = resolve(HERE, "..", "dashboard");
const DOCS = ["swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"];

const SETTINGS = {
  absWorkingDir: HERE,
  bundle: true,
  platform: "node",
  target: "node22.18",
  format: "esm",
  conditions: ["sandlot-source"],
  chunkNames: "chunks/[name]-[hash]",
  entryNames: "[dir]/[name]",
  outbase: "src",
  treeShaking: true,
  // All of them are in one file: see writeLicenses.
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
};
/** Libraries written for `require` ask for Node's own modules by it. */
const REQUIRE = {
  js: 'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);',
};
/** The same without making one in each file that is loaded: few files ask for anything, and then for Node's own. */
const REQUIRE_IN_PROGRAMS = {
  js: 'const require = (name) => process.getBuiltinModule(name) ?? process.getBuiltinModule("node:module").createRequire(import.meta.url)(name);',
};

/**
 * Node's own modules, as `require` would give them. An `import` reads every export of a module when it is first used, which for
 * node:http loads all of undici: a third of what a short command takes. Each file gets what it names, in place: one module for
 * all of them would be a file of its own to find and read in each start.
 */
const plainBuiltins = {
  name: "plain-builtins",
  setup(builder) {
    builder.onResolve({ filter: /^node:/ }, ({ path, kind, importer }) => {
      if (kind === "require-call") return { external: true };
      const of = kind === "import-statement" ? `?${importer}` : "";
      return { path: `${path}${of}`, namespace: "builtin", sideEffects: false };
    });
    builder.onLoad({ filter: /.*/, namespace: "builtin" }, ({ path }) => {
      const [name, importer] = path.split("?");
      const module = `const module = process.getBuiltinModule(${JSON.stringify(name)});\nexport default module;\n`;
      const names = (importer && namedIn(importer, name)) ?? exportsOf(process.getBuiltinModule(name));
      return { contents: names.length === 0 ? module : `${module}export const { ${names.join(", ")} } = module;` };
    });
  },
};

/** zod's messages in English: the other fifty languages are more than half of what every program reads of it. */
const englishOnly = {
  name: "english-only",
  setup(builder) {
    builder.onLoad({ filter: /\/zod\/v4\/locales\/index\.js$/ }, () => ({
      contents: 'export { default as en } from "./en.js";',
    }));
  },
};

/** Where the daemon lies is found from where its package lies. What else that package has is inside, as everything is. */
const daemonOutside = {
  name: "daemon-outside",
  setup(builder) {
    builder.onResolve({ filter: /^@sandlot\/sandboxd$/ }, ({ path }) => ({ path, external: true }));
  },
};

/** What a file imports of a module by name; `null` where it takes the whole of it. */
function namedIn(importer, module) {
  const clauses = [...readFileSync(importer, "utf8").matchAll(/\b(?:im|ex)port\b([^;"']*?)\bfrom\s*["']([^"']+)["']/g)]
    .filter(([, clause, from]) => from === module && !/^\s*type\s/.test(clause))
    .map(([, clause]) => clause);
  if (clauses.length === 0 || clauses.some((clause) => clause.includes("*"))) return null;
  const inBraces = clauses.flatMap((clause) => /\{([^}]*)\}/.exec(clause)?.[1].split(",") ?? []);
  const names = inBraces.map((one) => one.trim().split(/\s+as\s+/)[0]);
  return [...new Set(names)].filter((name) => name !== "" && name !== "default" && !name.startsWith("type "));
}

/** What can be read without running anything: the others are getters, which load what they are for. */
function exportsOf(module) {
  const isPlain = ([name, { value }]) => value !== undefined && name !== "default" && /^[A-Za-z_$][\w$]*$/.test(name);
  return Object.entries(Object.getOwnPropertyDescriptors(module))
    .filter(isPlain)
    .map(([name]) => name);
}

export async function bundle() {
  rmSync(OUTPUT, { recursive: true, force: true });
  const library = await build({
    ...SETTINGS,
    entryPoints: LIBRARY.map((name) => `src/${name}.ts`),
    outdir: OUTPUT,
    splitting: true,
    external: [...PEERS, ...Object.keys(MANIFEST.dependencies)],
    banner: REQUIRE,
  });
  const programs = {
    ...SETTINGS,
    outdir: join(OUTPUT, "programs"),
    splitting: true,
    // Names stay: they are in stacks, and keeping them beside shorter ones costs each start.
    minifySyntax: true,
    minifyWhitespace: true,
    plugins: [plainBuiltins, englishOnly, daemonOutside],
    external: PEERS,
  };
  const entryPoints = PROGRAMS.map((name) => `src/${name}.ts`);
  const started = await build({ ...programs, entryPoints, banner: REQUIRE_IN_PROGRAMS });
  const alone = { ...SETTINGS, outdir: programs.outdir };
  await build({ ...alone, entryPoints: ALONE.map((name) => `src/${name}.ts`) });
  const commandLine = await bundleCommandLine(programs, alone);
  copyDocs();
  copyDashboard();
  writeLicenses([library, started, commandLine].flatMap(({ metafile }) => Object.keys(metafile.inputs)));
}

/** The command line as parts for src/cli/load-parts.ts, which takes the place of `programs/cli/main.js`. */
async function bundleCommandLine(programs, alone) {
  const folder = join(programs.outdir, "cli", "parts");
  const names = { entryNames: "[name]-[hash]", chunkNames: "[name]-[hash]" };
  const entryPoints = ["src/cli/main.ts"];
  const built = await build({ ...programs, ...names, entryPoints, outdir: folder, write: false });
  mkdirSync(folder, { recursive: true });
  const stamp = createHash("sha256");
  for (const { path, text } of built.outputFiles) {
    const part = await asPart(text);
    stamp.update(part);
    writeFileSync(path, part);
  }
  const outputs = Object.entries(built.metafile.outputs);
  const [main] = outputs.find(([, { entryPoint }]) => entryPoint === entryPoints[0]);
  const given = {
    BUILD: stamp.digest("hex").slice(0, 16),
    MAIN_PART: basename(main),
    EXPORTS: Object.fromEntries(outputs.map(([path, { exports }]) => [basename(path), exports])),
  };
  const define = Object.fromEntries(Object.entries(given).map(([name, value]) => [name, JSON.stringify(value)]));
  const entry = { "cli/main": "src/cli/load-parts.ts" };
  await build({ ...alone, entryPoints: entry, define, minifyWhitespace: true, plugins: [plainBuiltins] });
  return built;
}

/** A module as a function of what it imports, so that it can be run, and its code be kept, when the loader wants it. */
async function asPart(text) {
  const { code } = await transform(text.replaceAll('import("./', '__part("./'), {
    format: "cjs",
    platform: "node",
    target: SETTINGS.target,
    minifyWhitespace: true,
    define: { "import.meta.url": "__url" },
  });
  const body = code
    .replace("var stdin_exports={};", "var stdin_exports=__exports;")
    .replace("module.exports=__toCommonJS(stdin_exports);", "")
    .replace(/0&&\(module\.exports=\{[^}]*\}\);?\s*$/, "");
  if (/\bmodule\.exports=/.test(body.slice(0, 2_000)))
    throw new Error("esbuild writes modules in another way than expected");
  return `(function(require,__exports,__part,__url){"use strict";${body}})`;
}

function docsSource() {
  return createRequire(import.meta.url).resolve("@fastify/swagger-ui/static/swagger-ui-bundle.js");
}

function copyDocs() {
  const from = dirname(docsSource());
  mkdirSync(join(OUTPUT, "docs"));
  for (const name of DOCS) copyFileSync(join(from, name), join(OUTPUT, "docs", name));
}

function copyDashboard() {
  for (const name of ["index.html", "assets"])
    cpSync(join(DASHBOARD, "dist", name), join(OUTPUT, "dashboard", name), { recursive: true });
}

/** Files of the dashboard's modules, as this bundle names its own. */
function dashboardModules() {
  const names = JSON.parse(readFileSync(join(DASHBOARD, "dist", "modules.json"), "utf8"));
  return names.map((name) => relative(HERE, join(DASHBOARD, name)));
}

/** The licenses of every package that is inside. */
function writeLicenses(inputs) {
  const files = [...inputs.filter((path) => !path.startsWith("builtin:")), ...dashboardModules()];
  const folders = new Set(files.flatMap((path) => /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? []));
  folders.add(relative(HERE, dirname(dirname(docsSource()))));
  const texts = [...folders].sort().map((folder) => {
    const place = resolve(HERE, folder);
    const { name, version, license } = JSON.parse(readFileSync(join(place, "package.json"), "utf8"));
    const file = readdirSync(place).find((entry) => /^(?:licen[cs]e|copying)/i.test(entry));
    const text = file === undefined ? `License: ${license}` : readFileSync(join(place, file), "utf8").trim();
    return `${name} ${version}\n\n${text}\n`;
  });
  writeFileSync(join(OUTPUT, "THIRD_PARTY_LICENSES.txt"), texts.join(`\n${"-".repeat(80)}\n\n`));
}

await bundle();
