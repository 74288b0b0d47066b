/**
 * Adds to package-lock.json the packages for other platforms that the registry in use lacks. Without them `npm ci`
 * refuses the lockfile. Their versions are exact in the packages that need them; their hashes are unknown, so npm does
 * not check them on those platforms.
 *
 * `--forget` removes them again: npm then searches for them, and writes the hashes of those that the registry has by
 * now. Both are parts of `npm run lock`.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "./runtime.mjs";

/** The root's, unless another lockfile is named. */
const PATH = join(ROOT, process.argv.find((argument) => argument.endsWith(".json")) ?? "package-lock.json");
const PLATFORM =
  /-(android|darwin|freebsd|linux|openbsd|openharmony|wasm32|win32)-(arm64|arm|ia32|loong64|ppc64|riscv64|s390x|wasi|x64)/;

const lock = JSON.parse(readFileSync(PATH, "utf8"));
if (process.argv.includes("--forget")) forget();
else complete();
lock.packages = Object.fromEntries(Object.entries(lock.packages).sort(([a], [b]) => (a < b ? -1 : 1)));
writeFileSync(PATH, `${JSON.stringify(lock, null, 2)}\n`);

function forget() {
  for (const [path, { integrity, optional, os, cpu }] of Object.entries(lock.packages))
    if (integrity === undefined && optional && (os ?? cpu) !== undefined) delete lock.packages[path];
}

function complete() {
  for (const entry of Object.values(lock.packages)) {
    for (const [name, version] of Object.entries(entry.optionalDependencies ?? {})) {
      const isThere = Object.keys(lock.packages).some((path) => path.endsWith(`node_modules/${name}`));
      const [, os, cpu] = PLATFORM.exec(name) ?? [];
      if (isThere || os === undefined || !/^\d+\.\d+\.\d+$/.test(version)) continue;
      lock.packages[`node_modules/${name}`] = {
        version,
        cpu: [os === "wasm32" ? os : cpu],
        ...(entry.dev && { dev: true }),
        ...(os === "linux" && { libc: [name.includes("musl") ? "musl" : "glibc"] }),
        optional: true,
        ...(os !== "wasm32" && { os: [os] }),
      };
      console.log(`added ${name}@${version}`);
    }
  }
}
