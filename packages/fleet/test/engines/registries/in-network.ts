/** Runs a program of these tests in a network namespace of its own, whose loopback has two more named addresses. */

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import { asOrdinaryUser, ordinaryNode, seenByOrdinaryUser } from "../../support/ordinary-user.ts";
import { FILES, INDEX } from "./loopback-registries.ts";

const NETWORK =
  'ip link set lo up && ip address add "$1/32" dev lo && ip address add "$2/32" dev lo && ' +
  'mount --bind "$0" /etc/hosts && { test -z "$3" || mount --bind "$3" "$4"; } && shift 4 && exec "$@"';

export interface InNetworkOptions {
  /** As an account that owns nothing. */
  readonly isOrdinary?: boolean;
  /** A directory that the program sees at another place: one below root's home is closed to other accounts. */
  readonly shown?: { readonly from: string; readonly to: string } | undefined;
  /** More names of the first address. */
  readonly names?: readonly string[];
}

/** What the program prints as its last line. */
export async function inNetwork<Outcome>(
  program: URL,
  order: unknown,
  { isOrdinary = false, shown, names: more = [] }: InNetworkOptions = {},
): Promise<Outcome> {
  const directory = mkdtempSync(join(tmpdir(), "slh-"));
  const names = join(directory, "hosts");
  writeFileSync(
    names,
    `127.0.0.1 localhost\n${INDEX.address} ${[INDEX.host, ...more].join(" ")}\n${FILES.address} ${FILES.host}\n`,
  );
  const file = fileURLToPath(program);
  const args = ["--conditions=sandlot-source"];
  const told = JSON.stringify(order);
  const command = isOrdinary
    ? asOrdinaryUser(ordinaryNode(), ...args, seenByOrdinaryUser(file), told)
    : [process.execPath, ...args, file, told];
  const { PATH = "", HOME = "/" } = process.env;
  const places = [INDEX.address, FILES.address, shown?.from ?? "", shown?.to ?? ""];
  const whole = ["--net", "--mount", "sh", "-c", NETWORK, names, ...places, ...command];
  const env = { PATH, ...(!isOrdinary && { HOME }) };
  const child = spawn("unshare", whole, { stdio: ["ignore", "pipe", "pipe"], env });
  let [said, problems] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => (said += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (problems += text));
  const code = await new Promise((resolve) => child.once("close", resolve));
  rmSync(directory, { recursive: true });
  expect(code, problems.slice(-4_000)).toBe(0);
  return JSON.parse(said.trim().split("\n").at(-1) ?? "") as Outcome;
}
