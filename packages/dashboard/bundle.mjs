/**
 * Makes `dist/`: the files that a gateway serves, and `modules.json`, which says what is in them. The bundle of `sandlot`
 * copies the files and reads the licenses of the modules (packages/fleet/bundle.mjs).
 */

import { readFileSync, writeFileSync } from "node:fs";
import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

// Also when a test starts this: libraries decide by it whether they bring their checks for developers.
process.env.NODE_ENV = "production";
const HERE = fileURLToPath(new URL(".", import.meta.url));
const { output } = await build({ root: HERE, configFile: `${HERE}vite.config.ts`, logLevel: "warn" });
// A page with a script of its own would be refused by the policy that it is served with.
const inline = /<script(?![^>]*\bsrc=)/.exec(readFileSync(`${HERE}dist/index.html`, "utf8"));
if (inline !== null) throw new Error("index.html has an inline script");
const modules = output.flatMap((file) => (file.type === "chunk" ? file.moduleIds : []));
const files = modules.map((id) => id.split("?")[0]).filter((id) => id.startsWith("/"));
// Styles are no module of a chunk.
files.push(fileURLToPath(import.meta.resolve("@xterm/xterm/css/xterm.css")));
const names = [...new Set(files.map((path) => relative(HERE, path).replaceAll("\\", "/")))].sort();
writeFileSync(`${HERE}dist/modules.json`, `${JSON.stringify(names)}\n`);
