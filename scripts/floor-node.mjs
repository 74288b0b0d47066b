/** The lowest supported Node, fetched once from the package registry and kept in `.cache/`. */
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { NODE_FLOOR, nodePackage, npm, ROOT } from "./runtime.mjs";

/** The path of its binary. `undefined`: there is no package for this platform. Rejects when it cannot be fetched. */
export async function floorNode() {
  const version = NODE_FLOOR.join(".");
  const found = nodePackage();
  if (found === undefined) return undefined;
  const home = join(ROOT, ".cache", `node-${version}`);
  const node = join(home, "node_modules", found.name, found.binary);
  if (!existsSync(node)) {
    mkdirSync(home, { recursive: true });
    writeFileSync(join(home, "package.json"), '{ "private": true }\n');
    console.log(`fetching Node ${version} …`);
    const args = ["install", "--prefix", home, "--no-save", "--no-audit", "--no-fund", "--loglevel=error"];
    if ((await npm([...args, `${found.name}@${version}`], { cwd: home })) !== 0)
      throw new Error(`Node ${version} could not be fetched`);
  }
  return node;
}
