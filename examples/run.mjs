/**
 * Runs an example by its name, from the sources of this checkout:
 *
 *   npm run example langchain
 *
 * `bootstrap.mjs` installs what is missing and finds the right Node, so this works in a fresh clone, and offline once
 * it has worked.
 */
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const names = readdirSync(here)
  .filter((file) => file.endsWith(".ts") && file !== "scripted-model.ts")
  .map((file) => file.slice(0, -3));
const [name = ""] = process.argv.slice(2);

if (!names.includes(name)) {
  console.error(`${name === "" ? "Name an example" : `There is no example ${name}`}: ${names.join(", ")}`);
  process.exitCode = 2;
} else {
  const args = ["--conditions=sandlot-source", join(here, `${name}.ts`)];
  const child = spawn(process.execPath, args, { stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => child.kill(signal));
  child.once("exit", (code) => {
    process.exitCode = code ?? 1;
  });
}
