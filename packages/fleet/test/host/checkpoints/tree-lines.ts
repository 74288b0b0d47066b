/** A tree as lines, in this process; `describeTree` asks another language. */

import { createHash } from "node:crypto";
import { lstatSync, readdirSync, readFileSync, readlinkSync } from "node:fs";

/** Everything that a checkpoint keeps, and every name that is there. */
export function treeLines(home: string): string {
  const lines: string[] = [];
  const names = new Map<bigint, string>();
  const visit = (directory: Buffer, path: string) => {
    for (const name of readdirSync(directory, { encoding: "latin1" as "utf8" }).sort()) {
      const full = Buffer.concat([directory, Buffer.from(`/${name}`, "latin1")]);
      const below = `${path}/${name}`;
      const stats = lstatSync(full, { bigint: true });
      const facts = `${below} ${(stats.mode & 0o170777n).toString(8)} ${stats.mtimeNs / 1000n}`;
      if (stats.isSymbolicLink()) lines.push(`${facts} ${readlinkSync(full, "latin1" as "utf8")}`);
      else if (stats.isDirectory()) {
        lines.push(facts);
        visit(full, below);
      } else {
        const first = names.get(stats.ino) ?? below;
        names.set(stats.ino, first);
        lines.push(`${facts} ${createHash("sha256").update(readFileSync(full)).digest("hex")} ${first}`);
      }
    }
  };
  visit(Buffer.from(home), "");
  return lines.join("\n");
}
