/**
 * The name of an engine that is this machine and a home on it, for `Backend.engineId`.
 *
 * It is made of the machine's id (its host name where it has none) and the real path of the home: the same for every process
 * and over boots, and another one for another home or machine. It is a hash, because names of engines stand in records and labels,
 * and a path may say whose home it is. Containers that are made from one image with a fixed machine id share that id; a home
 * that two of them share is then one engine.
 */

import { createHash } from "node:crypto";
import { realpathSync } from "node:fs";
import { hostname } from "node:os";

/** `home` exists. */
export function homeEngineId(backend: string, machineId: string, home: string): string {
  const machine = machineId === "" ? hostname() : machineId;
  return `${backend}-${createHash("sha256")
    .update(`${machine}\0${realpathSync(home)}`)
    .digest("hex")
    .slice(0, 20)}`;
}
