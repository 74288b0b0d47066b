/**
 * The kernel's budgets per account, and how a sandbox exhausts each. For every budget: a program that takes until
 * nothing is left, and one that needs a single piece.
 */

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import type { Sandbox } from "@sandlot/contract";
import { expect } from "vitest";
import type { BackendStage } from "../../src/testing/backend-suite/stage.ts";

interface Budget {
  readonly name: string;
  /** Perl. `take()` takes one piece and returns whether it got it. */
  readonly take: string;
  /** The attacker's own daemon may die of it, and takes the attacker along. */
  readonly endsDaemon?: true;
  /** Lowered while the test runs, so that the machine's other programs do not notice the test. */
  readonly sysctl?: { readonly path: string; readonly value: string };
  /** Of the process that starts sandboxes, which inherit it. */
  readonly rlimit?: { readonly name: string; readonly value: number };
}

const NUMBERS =
  process.arch === "arm64"
    ? { inotify: 26, epollCreate: 20, epollCtl: 21, event: 19, queueOpen: 180, signal: 138, gap: "x4" }
    : { inotify: 294, epollCreate: 291, epollCtl: 233, event: 290, queueOpen: 240, signal: 129, gap: "" };

export const BUDGETS: readonly Budget[] = [
  {
    name: "inotify instances",
    take: `sub take { my $fd = syscall(${NUMBERS.inotify}, 0); push @held, $fd; return $fd >= 0 }`,
  },
  {
    name: "epoll watches",
    endsDaemon: true,
    sysctl: { path: "/proc/sys/fs/epoll/max_user_watches", value: "30000" },
    take: `
      my @events = map { syscall(${NUMBERS.event}, 0, 0) } 1..500;
      my ($epoll, $at) = (-1, 500);
      sub take {
        if ($at == 500) { $epoll = syscall(${NUMBERS.epollCreate}, 0); $at = 0 }
        my $event = pack("L${NUMBERS.gap}q", 1, 0);
        return syscall(${NUMBERS.epollCtl}, $epoll, 1, $events[$at++], $event) >= 0;
      }`,
  },
  {
    name: "pages of pipes",
    take: `sub take { pipe(my $out, my $in) or return 0; push @held, $out, $in; return fcntl($in, 1032, 0) >= 65536 }`,
  },
  {
    name: "pending signals",
    rlimit: { name: "sigpending", value: 2_000 },
    take: `
      use POSIX ();
      POSIX::sigprocmask(POSIX::SIG_BLOCK(), POSIX::SigSet->new(40));
      sub take { my $info = pack("lll x116", 40, 0, -1); return syscall(${NUMBERS.signal}, $$ + 0, 40, $info) >= 0 }`,
  },
  {
    name: "message queues",
    take: `
      my $count = 0;
      sub take { my $name = "q$$-" . $count++; return syscall(${NUMBERS.queueOpen}, $name, 0102, 0600, 0) >= 0 }`,
  },
  {
    name: "processes",
    rlimit: { name: "nproc", value: 120 },
    take: `sub take { my $pid = fork(); if (defined $pid && $pid == 0) { sleep 600; exit } return defined $pid }`,
  },
];

const HEAD = "$^F = 1000000; our @held; $| = 1;";

/** Exhausts a budget in one sandbox, and asserts that a neighbour and a sandbox created meanwhile have their own. */
export async function exhaust(stage: BackendStage, budget: Budget): Promise<void> {
  await withLimits(budget, async () => {
    const [attacker, neighbour] = [await stage.sandbox(), await stage.sandbox()];
    const script = `${HEAD} ${budget.take} my $n = 0; $n++ while $n < 200000 && take(); print "took $n\\n"; sleep 600;`;
    const { execId } = await attacker.spawn(["perl", "-e", script]);
    const taken = await firstLine(attacker, execId);
    expect(Number(taken.replace("took ", "")), `${budget.name}: ${taken}`).toBeGreaterThan(0);
    expect(Number(taken.replace("took ", "")), budget.name).toBeLessThan(200_000);
    // Where the attacker can still run a command, the command gets nothing: the others' share is their own.
    if (budget.endsDaemon !== true)
      expect(await takesOne(attacker, budget).catch(() => "none"), budget.name).not.toBe("one");
    expect(await takesOne(neighbour, budget), budget.name).toBe("one");
    await works(neighbour);
    const later = await stage.sandbox();
    expect(await takesOne(later, budget), budget.name).toBe("one");
    await works(later);
  });
}

async function takesOne(sandbox: Sandbox, { take }: Budget): Promise<string> {
  const { stdout, stderr } = await sandbox.exec(["perl", "-e", `${HEAD} ${take} print take() ? "one" : "none";`]);
  return stdout + stderr;
}

/** Commands, files and watches. */
async function works(sandbox: Sandbox): Promise<void> {
  const path = "/mnt/user-data/workspace/file";
  await sandbox.files.write(path, "content");
  const { stdout } = await sandbox.exec("cat file | tr a-z A-Z; for i in 1 2 3; do (true); done");
  expect(stdout).toBe("CONTENT");
  for await (const change of sandbox.files.watch("/mnt/user-data/workspace")) {
    expect(change.type).toBe("ready");
    break;
  }
}

async function firstLine(sandbox: Sandbox, execId: string): Promise<string> {
  let text = "";
  for await (const event of sandbox.execs.follow(execId)) {
    if (event.type === "output") text += Buffer.from(event.bytes).toString();
    if (text.includes("\n")) return text.trim();
  }
  return `it ended: ${text}`;
}

async function withLimits({ sysctl, rlimit }: Budget, work: () => Promise<void>): Promise<void> {
  const before = sysctl === undefined ? "" : readFileSync(sysctl.path, "utf8");
  const prlimit = (...args: string[]) =>
    execFileSync("/usr/bin/prlimit", ["--pid", String(process.pid), ...args], { encoding: "utf8" });
  const own =
    rlimit === undefined ? "" : prlimit(`--${rlimit.name}`, "--raw", "--noheadings", "--output", "SOFT").trim();
  try {
    if (sysctl !== undefined) writeFileSync(sysctl.path, sysctl.value);
    if (rlimit !== undefined) prlimit(`--${rlimit.name}=${rlimit.value}:`);
    await work();
  } finally {
    if (sysctl !== undefined) writeFileSync(sysctl.path, before);
    if (rlimit !== undefined) prlimit(`--${rlimit.name}=${own}:`);
  }
}
