/** Changes of files, reported as they come. */

import { mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { FileChange, WatchOptions } from "@sandlot/contract";
import { describe, expect, onTestFinished, test } from "vitest";
import { attached } from "./attached.ts";
import { code, eventually } from "./expectations.ts";

async function watching(path?: (workspace: string) => string, options: WatchOptions = {}, prepare = (_: string) => {}) {
  const around = await attached();
  const root = around.daemon.workspace;
  prepare(root);
  const controller = new AbortController();
  onTestFinished(() => controller.abort());
  const changes: FileChange[] = [];
  let over = false;
  void (async () => {
    const watched = path?.(root) ?? root;
    for await (const change of around.sandbox.files.watch(watched, { ...options, signal: controller.signal }))
      changes.push(change);
  })()
    .catch(() => {})
    .finally(() => {
      over = true;
    });
  await eventually(() => changes[0]?.type === "ready");
  changes.shift();
  const told = () => changes.map(({ type, path: about }) => `${type} ${about.slice(root.length + 1)}`);
  const tells = (...wanted: string[]) => eventually(() => wanted.every((each) => told().includes(each)));
  return {
    ...around,
    root,
    at: (name: string) => join(root, name),
    changes,
    told,
    tells,
    controller,
    isOver: () => over,
  };
}

test("a file that a fleet is still writing is neither reported nor listed nor found", async () => {
  const { root, at, tells, told, sandbox } = await watching();
  const draft = ".sandlot-draft-0123456789-1-2-0123456789abcdef";
  writeFileSync(at(draft), "new");
  renameSync(at(draft), at("w.txt"));
  await tells("created w.txt");
  writeFileSync(at(draft), "newer");
  writeFileSync(at("last"), "");
  await tells("created last");
  expect(told().filter((line) => line.includes("draft"))).toEqual([]);
  const { entries } = await sandbox.files.list(root);
  expect(entries.map(({ path }) => path.slice(root.length + 1)).sort()).toEqual(["last", "w.txt"]);
  expect((await sandbox.files.glob(root, "**/*")).paths.filter((path) => path.includes("draft"))).toEqual([]);
});

describe("watching", () => {
  test("reports files that come, change and go", async () => {
    const { at, tells, told, changes } = await watching();
    writeFileSync(at("f"), "1");
    await tells("created f");
    changes.length = 0;
    writeFileSync(at("f"), "2");
    await tells("modified f");
    changes.length = 0;
    renameSync(at("f"), at("g"));
    await tells("removed f", "created g");
    changes.length = 0;
    rmSync(at("g"));
    await tells("removed g");
    await sleep(50);
    expect(told()).toEqual(["removed g"]);
  });

  test("reports an atomic write as a change", async () => {
    const { at, tells, told, sandbox } = await watching(undefined, {}, (root) => writeFileSync(join(root, "f"), "1"));
    await sandbox.files.write(at("f"), "2");
    await tells("modified f");
    await sandbox.files.write(at("g"), "new", { ifVersion: null });
    await tells("created g");
    await sleep(50);
    expect(told()).toEqual(["modified f", "created g"]);
  });

  test("reaches into directories, also those that come later with everything in them", async () => {
    const { at, tells, sandbox } = await watching(undefined, {}, (root) =>
      mkdirSync(join(root, "old/deep"), { recursive: true }),
    );
    writeFileSync(at("old/deep/f"), "1");
    await tells("created old/deep/f");
    await sandbox.exec("mkdir -p new/a/b && echo x > new/a/b/f && echo y > new/g");
    await tells("created new", "created new/a", "created new/a/b", "created new/a/b/f", "created new/g");
    writeFileSync(at("new/a/b/f"), "2");
    await tells("modified new/a/b/f");
    await sandbox.exec("rm -r new");
    await tells("removed new/a/b/f", "removed new/a/b", "removed new/a", "removed new/g", "removed new");
    // Under the same name again.
    mkdirSync(at("new"));
    await tells("created new");
    writeFileSync(at("new/h"), "1");
    await tells("created new/h");
  });

  test("misses nothing of many directories made at once", async () => {
    const { tells, sandbox } = await watching();
    await sandbox.exec("for i in $(seq 60); do mkdir -p d$i/e/f; echo x > d$i/e/f/g; done");
    await tells(...Array.from({ length: 60 }, (_, i) => `created d${i + 1}/e/f/g`));
  });

  test("follows a directory that was moved in, and no link", async () => {
    const { at, tells, told, daemon } = await watching();
    const outside = join(daemon.directory, "outside");
    mkdirSync(join(outside, "in"), { recursive: true });
    symlinkSync(daemon.directory, at("link"));
    await tells("created link");
    renameSync(outside, at("moved"));
    await tells("created moved", "created moved/in");
    writeFileSync(at("moved/in/f"), "1");
    await tells("created moved/in/f");
    writeFileSync(join(daemon.directory, "elsewhere"), "1");
    await sleep(50);
    expect(told().filter((each) => each.includes("elsewhere"))).toEqual([]);
  });

  test("without recursion stays in its directory", async () => {
    const { at, tells, told } = await watching(undefined, { recursive: false }, (root) => mkdirSync(join(root, "d")));
    writeFileSync(at("d/f"), "1");
    writeFileSync(at("g"), "1");
    await tells("created g");
    await sleep(50);
    expect(told()).toEqual(["created g"]);
  });

  test("of one file reports that one, also when it is replaced", async () => {
    const { at, tells, told, sandbox } = await watching(
      (root) => join(root, "f"),
      {},
      (root) => writeFileSync(join(root, "f"), "1"),
    );
    writeFileSync(at("other"), "1");
    await sandbox.files.write(at("f"), "2");
    await tells("modified f");
    rmSync(at("f"));
    await tells("removed f");
    writeFileSync(at("f"), "3");
    await tells("created f");
    expect(told().filter((each) => each.includes("other"))).toEqual([]);
  });

  test("ends with its directory, and with its reader", async () => {
    const ended = await watching(
      (root) => join(root, "d"),
      {},
      (root) => mkdirSync(join(root, "d")),
    );
    writeFileSync(ended.at("d/f"), "1");
    await ended.tells("created d/f");
    rmSync(ended.at("d"), { recursive: true });
    await ended.tells("removed d/f", "removed d");
    await eventually(() => ended.isOver());

    const { sandbox, daemon, controller, isOver } = await watching();
    const watches = async () =>
      Number((await sandbox.exec(`cat /proc/${daemon.pid}/fdinfo/* 2> /dev/null | grep -c ^inotify`)).stdout);
    expect(await watches()).toBeGreaterThan(0);
    controller.abort();
    await eventually(() => isOver());
    await eventually(async () => (await watches()) === 0);
    expect(await code(sandbox.files.watch("/no/such")[Symbol.asyncIterator]().next())).toBe("file_not_found");
  });

  test("says when a reader was too slow, and goes on after that", async () => {
    const { sandbox, daemon } = await attached();
    const changes: FileChange[] = [];
    let slow = true;
    const controller = new AbortController();
    onTestFinished(() => controller.abort());
    void (async () => {
      for await (const change of sandbox.files.watch(daemon.workspace, { signal: controller.signal })) {
        changes.push(change);
        while (slow && changes.length > 1) await sleep(10);
      }
    })().catch(() => {});
    await eventually(() => changes.length > 0);
    await sandbox.exec(
      "for r in 1 2 3 4; do for i in $(seq 8000); do : > file-with-a-long-name-$r-$i; done; sleep 0.2; done",
      { timeoutMs: 60_000 },
    );
    await sleep(300);
    slow = false;
    await eventually(() => changes.some(({ type }) => type === "overflow"));
    writeFileSync(join(daemon.workspace, "last"), "1");
    await eventually(() => changes.some(({ path }) => path.endsWith("/last")));
  });

  test("says when the kernel could not keep up, and knows everything after that", async () => {
    const { at, daemon, changes, tells, sandbox } = await watching();
    const limit = Number(readFileSync("/proc/sys/fs/inotify/max_queued_events", "latin1"));
    process.kill(daemon.pid, "SIGSTOP");
    try {
      // Each is created and written to. The last events are lost.
      for (let i = 0; i < limit / 2 + 50; i++) writeFileSync(at(`f${i}`), "1");
      mkdirSync(at("lost"));
    } finally {
      process.kill(daemon.pid, "SIGCONT");
    }
    await eventually(() => changes.some(({ type }) => type === "overflow"));
    await sandbox.exec("true");
    await sleep(200);
    writeFileSync(at("lost/f"), "1");
    await tells("created lost/f");
  });
});
