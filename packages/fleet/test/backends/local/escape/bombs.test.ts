/**
 * Bombs: programs that exhaust the machine. Each goes off once on the host, bounded, to show that nothing there stops
 * it, and once inside, where it must do no harm: the daemon lives, the sandbox responds, and the limit hit is reported.
 */

import { execFile, spawn } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import type { Sandbox } from "@sandlot/contract";
import { SANDBOX_LIMITS } from "@sandlot/contract";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import { type LimitGroup, openLimits } from "../../../../src/host/limits/index.ts";
import { PATIENCE } from "../../../host/limits/stage.ts";
import { removeDaemon, world } from "../local-harness.ts";
import { Field } from "./field.ts";

const MEGABYTE = 1024 * 1024;
const LIMITS = { memoryBytes: 384 * MEGABYTE, pidsMax: 128, diskBytes: 128 * MEGABYTE };
const run = promisify(execFile);

/**
 * Sixty children that each take 12 MB and keep them. When every one of them has its share or is dead, prints how many
 * live: no child frees memory before, however slow the machine is.
 */
const SIXTY_EATERS = `
  use POSIX ":sys_wait_h"; use IO::Handle;
  pipe(my $in, my $out); my %waiting;
  for (1 .. 60) {
    my $pid = fork // die; $waiting{$pid} = 1; next if $pid;
    my $x = "a" x (12 << 20); $x .= "b"; syswrite $out, pack("N", $$); sleep 300; exit;
  }
  close $out; $in->blocking(0); my %alive = %waiting;
  while (%waiting) {
    while (sysread $in, my $word, 4) { delete $waiting{unpack "N", $word} }
    while ((my $pid = waitpid -1, WNOHANG) > 0) { delete $waiting{$pid}; delete $alive{$pid} }
    select undef, undef, undef, 0.05;
  }
  kill "TERM", keys %alive; print scalar keys %alive;
`;

describe("bombs", { timeout: 90_000 * PATIENCE }, () => {
  let field: Field;
  let sandbox: Sandbox;
  let group: LimitGroup;
  let resident: readonly number[];

  beforeEach(async (context) => {
    field = await Field.open();
    const { sandbox: made, made: object } = await field.sandbox(LIMITS);
    sandbox = made;
    const { fleetId } = field.harness;
    const limits = openLimits({ fleetId, world });
    group = limits.open(`${object.target.sandboxId}-${object.spec.labels.generation}`);
    resident = await settled(group);
    if (!limits.description.memory.by.startsWith("cgroup"))
      context.skip(`no control groups: ${limits.description.missing}`);
    expect(resident.length).toBeGreaterThan(0);
  }, 60_000 * PATIENCE);
  afterEach(() => field.close(), 60_000 * PATIENCE);
  afterAll(removeDaemon);

  /** The same processes as before the bomb, and no others: nothing was restarted, and nothing is left. */
  async function survives(): Promise<void> {
    // While a workspace is over its budget, any process may be stopped for it.
    await expect
      .poll(async () => (await sandbox.exec("echo alive")).stdout, { timeout: 10_000 * PATIENCE })
      .toBe("alive\n");
    await expect.poll(() => [...(group.processes() ?? [])].sort(), { timeout: 10_000 * PATIENCE }).toEqual(resident);
  }

  it("memory, by one process", async () => {
    const eater = ["perl", "-e", 'my $x = "a" x (600 << 20); print length $x'];
    const without = await run(eater[0] ?? "", eater.slice(1));
    const within = await sandbox.exec(eater);
    console.log(
      `600 MB by one process, 384 MB allowed: on the host ${without.stdout} bytes, inside ${within.status} ` +
        `${within.signal}, ${JSON.stringify(group.events())}`,
    );
    expect(without.stdout).toBe(String(600 * MEGABYTE));
    expect(within).toMatchObject({ status: "killed", signal: "SIGKILL" });
    expect(group.events().oomKills).toBe(1);
    await survives();
  });

  it("memory, by sixty processes that are each smaller than the daemon", async () => {
    const eaters = ["perl", "-e", SIXTY_EATERS] as const;
    const without = Number((await run(eaters[0], eaters.slice(1))).stdout);
    const result = await sandbox.exec(eaters);
    const within = Number(result.stdout);
    console.log(
      `sixty of 12 MB each, 384 MB allowed: on the host ${without} had it, inside ${within}; ` +
        `command ${result.status} ${result.signal ?? result.exitCode}, ${JSON.stringify(group.events())}`,
    );
    expect(without).toBe(60);
    expect(within).toBeLessThan(60);
    expect(group.events().oomKills).toBeGreaterThan(10);
    await survives();
  });

  it("a fork bomb", async () => {
    const forks =
      "my $made = 0; for (1 .. 300) { my $p = fork; last unless defined $p; if (!$p) { sleep 1; exit } $made++ } print $made; 1 while wait > 0;";
    const without = (await run("perl", ["-e", forks])).stdout;
    const within = (await sandbox.exec(["perl", "-e", forks])).stdout;
    const bomb = await sandbox.exec("bomb() { bomb | bomb & }; bomb; sleep 60", { timeoutMs: 2_000 });
    console.log(
      `300 forks, 128 allowed: on the host ${without}, inside ${within}; bomb ${bomb.status} after ` +
        `${Math.round(bomb.durationMs)} ms, ${JSON.stringify(group.events())}`,
    );
    expect(without).toBe("300");
    expect(Number(within)).toBeLessThan(128);
    expect(bomb.status).toBe("timed_out");
    expect(group.events().pidsRefusals).toBeGreaterThan(0);
    await survives();
  });

  it.each(["/tmp", "/dev/shm"])("filling %s", async (directory) => {
    const within = await sandbox.exec(
      `head -c 200M /dev/zero > ${directory}/big; stat -c %s ${directory}/big; rm ${directory}/big`,
    );
    console.log(`200 MB to ${directory}: ${within.stdout.trim()} bytes, ${within.stderr.trim()}`);
    expect(Number(within.stdout)).toBeLessThanOrEqual(64 * MEGABYTE);
    expect(within.stderr).toContain("No space left on device");
    await survives();
  });

  it("filling the workspace with one file", async () => {
    const within = await sandbox.exec("head -c 200M /dev/zero > big");
    const { sizeBytes } = await sandbox.files.stat("/mnt/user-data/workspace/big");
    console.log(`200 MB to one file, 128 MB allowed: ${within.status} ${within.exitCode}, ${sizeBytes} bytes`);
    expect(within).not.toMatchObject({ status: "completed", exitCode: 0 });
    expect(sizeBytes).toBeLessThanOrEqual(128 * MEGABYTE);
    await sandbox.files.remove("/mnt/user-data/workspace/big");
    await survives();
  });

  it("filling the workspace with many files", async () => {
    const fill = await sandbox.exec("for i in $(seq 400); do head -c 8M /dev/zero > f$i || exit 1; done; echo all", {
      timeoutMs: 60_000 * PATIENCE,
    });
    const used = Number((await sandbox.exec("du -s --block-size=1 . | cut -f1")).stdout);
    console.log(
      `3200 MB in files of 8 MB, 128 MB allowed: ${fill.status} ${fill.signal ?? fill.exitCode}, ${Math.round(used / MEGABYTE)} MB written`,
    );
    expect(fill.stdout).not.toContain("all");
    expect(used).toBeLessThan(1024 * MEGABYTE);
    await expect(sandbox.files.write("/mnt/user-data/workspace/more", "x")).rejects.toMatchObject({
      code: "disk_limit_exceeded",
    });
    await sandbox.exec("rm -f f*");
    await expect
      .poll(() =>
        sandbox.files.write("/mnt/user-data/workspace/more", "x").then(
          () => true,
          () => false,
        ),
      )
      .toBe(true);
    await survives();
  });

  it("one gigabyte of output", async () => {
    const total = 1024 * MEGABYTE;
    const without = (await run("/bin/bash", ["-c", `head -c ${total} /dev/zero | wc -c`])).stdout.trim();
    const within = await sandbox.exec(`head -c ${total} /dev/zero`, {
      timeoutMs: 60_000 * PATIENCE,
      outputMaxBytes: SANDBOX_LIMITS.execOutputMaxBytes,
    });
    console.log(
      `1 GB of output: on the host ${without}, inside ${within.stdout.length} kept and ${within.stdoutDroppedBytes} dropped, ` +
        `${Math.round((group.usage().memoryBytes ?? 0) / MEGABYTE)} MB in the group after it`,
    );
    expect(without).toBe(String(total));
    expect(within).toMatchObject({ status: "completed", exitCode: 0 });
    expect(within.stdout.length + within.stdoutDroppedBytes).toBe(total);
    expect(within.stdout.length).toBeLessThanOrEqual(SANDBOX_LIMITS.execOutputMaxBytes);
    expect(group.events().oomKills).toBe(0);
    await survives();
  });

  it("a process that ignores TERM", async () => {
    const argv = ["perl", "-e", '$SIG{TERM} = "IGNORE"; $| = 1; print "ready\\n"; sleep 60'] as const;
    const child = spawn(argv[0], argv.slice(1), { stdio: ["ignore", "pipe", "ignore"] });
    await new Promise((resolve) => child.stdout.once("data", resolve));
    child.kill("SIGTERM");
    await sleep(300);
    const without = child.exitCode === null && child.signalCode === null;
    child.kill("SIGKILL");
    const within = await sandbox.exec(argv, { timeoutMs: 500 });
    console.log(
      `TERM ignored: on the host ${without ? "still there" : "gone"}, inside ${within.status} after ${Math.round(within.durationMs)} ms`,
    );
    expect(without).toBe(true);
    expect(within.status).toBe("timed_out");
    expect(within.durationMs).toBeLessThan(500 + SANDBOX_LIMITS.killGraceMs + 2_000);
    await survives();
  });
});

/** The processes of an idle sandbox: the same twice, a moment apart. */
async function settled(group: LimitGroup): Promise<readonly number[]> {
  const look = () => [...(group.processes() ?? [])].sort();
  for (let [before, now] = [look(), [] as number[]]; ; before = now) {
    await sleep(200 * PATIENCE);
    now = look();
    if (String(now) === String(before)) return now;
  }
}
