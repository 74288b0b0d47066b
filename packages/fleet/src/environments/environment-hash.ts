/**
 * What an environment is: its name and a hash over everything that its build depends on.
 *
 * Setup, contents of its files, architecture, and the image or the versions of the host's interpreters. After an upgrade
 * of the host's Python the hash differs, because compiled packages of the earlier version would not load.
 */

import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { SandlotError } from "@sandlot/contract";
import type { NamedBlueprint } from "../backend/blueprint.ts";

export interface EnvironmentPlan {
  readonly blueprint: NamedBlueprint;
  /** `name@hash`. */
  readonly id: string;
  /** The files of the setup, read once, so that what is built is what the hash names. */
  readonly files: readonly { readonly name: string; readonly content: Buffer }[];
}

/** The text that stands for the programs a setup finds: versions of interpreters, or a digest of an image. */
export type Basis = () => Promise<string>;

const FORMAT = 1;
const FILES_MAX_BYTES = 16 * 1_024 * 1_024;

/** `null` for a blueprint without a setup. */
export async function planOf(named: NamedBlueprint, basis: Basis): Promise<EnvironmentPlan | null> {
  const { name, blueprint } = named;
  const { setup } = blueprint;
  if (setup === undefined) return null;
  const files = Object.entries(setup.files).map(([file, path]) => ({ name: file, content: fileOf(name, file, path) }));
  const sums = files.map((file) => [file.name, createHash("sha256").update(file.content).digest("hex")]);
  const { secrets = [], ...network } = setup.network;
  const told = [
    ...[FORMAT, setup.script, sums, network, secrets.map(({ value: _, ...rest }) => rest)],
    ...[process.arch, blueprint.image ?? null, await basis()],
  ];
  const hash = createHash("sha256").update(JSON.stringify(told)).digest("hex").slice(0, 16);
  return { blueprint: named, id: `${name}@${hash}`, files };
}

function fileOf(blueprint: string, file: string, path: string): Buffer {
  const at = `blueprints.${blueprint}.setup.files.${file}`;
  try {
    if (statSync(path).size <= FILES_MAX_BYTES) return readFileSync(path);
  } catch (error) {
    const problem = `${path} cannot be read: ${(error as Error).message}`;
    throw new SandlotError("config_invalid", { path: at, problem }, { cause: error });
  }
  throw new SandlotError("config_invalid", { path: at, problem: `${path} is larger than ${FILES_MAX_BYTES} bytes` });
}

/** The interpreters of this host that sandboxes see. A missing one is a fact, too. */
export const hostInterpreters: Basis = async () => {
  const versions = await Promise.all(
    ["/usr/bin/python3", "/usr/bin/node", "/usr/bin/ruby", "/usr/bin/perl"].map(
      (program) =>
        new Promise<string>((resolve) => {
          execFile(program, ["--version"], { timeout: 5_000, env: {} }, (error, stdout, stderr) =>
            resolve(`${program} ${error === null ? `${stdout}${stderr}`.trim() : "absent"}`),
          );
        }),
    ),
  );
  return [`node ${process.version}`, ...versions].join("\n");
};
