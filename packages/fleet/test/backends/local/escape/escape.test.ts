/**
 * The escape list: the same probe makes every attempt twice, once on the host without protection and once inside a
 * sandbox of the local backend. Both results are printed, and both are checked. A missing program that a probe needs
 * fails the test.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Sandbox } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isRoot, removeDaemon } from "../local-harness.ts";
import { type Aims, attempts } from "./attempts.ts";
import { Field, inside, outside } from "./field.ts";

let field: Field;
let sandbox: Sandbox;
let init: number;
let aims: Aims;

const FLEET_SECRET = "a-secret-of-the-fleet";

/**
 * For every descriptor of every other process: pid, name, the result of opening it, and whether the name leads to the
 * same file here.
 */
const DESCRIPTORS = String.raw`
  for my $path (glob '/proc/[0-9]*/fd/*') {
    my ($pid) = $path =~ m{^/proc/(\d+)/};
    my $name = readlink $path;
    next if $pid == $$ || !defined $name;
    my $how = 'ok';
    for my $flag (O_RDONLY, O_WRONLY) {
      $how = sysopen(my $f, $path, $flag | O_NONBLOCK) ? 'ok' : $names{$! + 0} // $! + 0;
      last if $how eq 'ok';
    }
    my @there = stat $path; my @here = stat $name;
    my $own = @there && @here && "@there[0,1]" eq "@here[0,1]" ? 'own' : 'other';
    print join("\t", $pid, $name, $how, $own), "\n";
  }
`;

beforeAll(async () => {
  process.env.SANDLOT_ESCAPE_TEST = FLEET_SECRET;
  field = await Field.open();
  ({ sandbox, init } = await field.sandbox());
  const ownSockets = new Set(field.sockets());
  const other = await field.sandbox();
  await other.sandbox.files.write("/mnt/user-data/workspace/another-threads-file", "of another thread");
  const victimName = `victim-${init}-of-the-host`;
  const abstractName = `sandlot-escape-${init}`;
  await field.listen(abstractName);
  aims = {
    field,
    otherUserData: other.userData,
    otherSocket: field.sockets().find((path) => !ownSockets.has(path)) ?? "",
    victimPid: field.victim(victimName),
    victimName,
    fleetSecret: FLEET_SECRET,
    port: await field.listen(),
    abstractName,
  };
}, 60_000);

afterAll(async () => {
  delete process.env.SANDLOT_ESCAPE_TEST;
  await field?.close();
  await removeDaemon();
}, 60_000);

/** The names are needed before the targets exist. */
const nowhere = Object.assign(Object.create(Field.prototype) as Field, { directory: "/", harness: { home: "/" } });
const names = Object.keys(attempts({ ...({} as Aims), field: nowhere, otherUserData: "/", otherSocket: "/" }));

describe("escapes", () => {
  it.each(names)("%s", async (name) => {
    const attempt = attempts(aims)[name];
    if (attempt === undefined) throw new Error(`no attempt ${name}`);
    const without = await outside(attempt.perl, attempt.prefix);
    const within = await inside(sandbox, attempt.perl);
    console.log(`${name}: on the host ${without}, inside ${within}`);
    expect(within).toMatch(whole(attempt.inside));
    if (isRoot) expect(without).toMatch(whole(attempt.outside ?? "ok"));
  });

  it("has no capability, gains none, and is not root on the host", async () => {
    const status = (text: string) => Object.fromEntries(text.split("\n").map((line) => line.split(":\t")));
    const within = status((await sandbox.exec("cat /proc/self/status")).stdout);
    const without = status(readFileSync("/proc/self/status", "latin1"));
    console.log(`CapEff: on the host ${without.CapEff}, inside ${within.CapEff}`);
    for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) expect(within[set], set).toMatch(/^0+$/);
    expect(within).toMatchObject({ NoNewPrivs: "1", Seccomp: "2" });
    if (isRoot) expect(without.CapEff).not.toMatch(/^0+$/);
    const uids = readFileSync(`/proc/${init}/status`, "latin1")
      .match(/^Uid:\t(.*)$/m)?.[1]
      ?.split("\t");
    console.log(`uids on the host: ours ${process.getuid?.()}, the sandbox's ${uids}`);
    expect(uids).not.toContain("0");
  });

  it("shares no namespace with the host", async () => {
    const kinds = ["user", "pid", "mnt", "ipc", "uts", "net", "cgroup"];
    const script = kinds.map((kind) => `readlink /proc/self/ns/${kind}`).join("; ");
    const within = (await sandbox.exec(script)).stdout.trim().split("\n");
    const without = (await outside(`print readlink("/proc/self/ns/$_"), "\\n" for qw(${kinds.join(" ")});`)).split(
      "\n",
    );
    console.log(kinds.map((kind, index) => `${kind}: ${without[index]} outside, ${within[index]} inside`).join("\n"));
    for (const [index, kind] of kinds.entries()) expect(within[index], kind).not.toBe(without[index]);
  });

  it("sees no descriptor of the daemon, nor of the first process", async () => {
    await sandbox.sessions.open();
    const terminal = await sandbox.terminals.open({ columns: 80, rows: 24 });
    const within = (await inside(sandbox, DESCRIPTORS)).split("\n").map((line) => line.split("\t"));
    const opened = within.filter(([, , how]) => how === "ok");
    console.log(`descriptors: ${within.length} seen inside, opened: ${[...new Set(opened.map(([, name]) => name))]}`);
    // Those of the session and of the terminal belong to the sandbox.
    expect(within.length).toBeGreaterThan(3);
    expect(within.filter(([pid]) => pid === "1" || pid === "2")).toEqual([]);
    const foreign = opened.filter(([, name = "", , isOwn]) => isOwn !== "own" && !name.startsWith("pipe:"));
    expect(foreign).toEqual([]);
    const pulse = `answer(sysopen(my $f, '/proc/${init}/fd/7', O_RDONLY | O_NONBLOCK));`;
    if (isRoot) expect(await outside(pulse)).toBe("ok");
    await terminal.detach();
  });

  it("sees another thread's file nowhere in its own paths", async () => {
    const found = await sandbox.exec(
      "find / -name another-threads-file -not -path '/proc/*' 2>/dev/null; ls -A /mnt/user-data/workspace",
    );
    expect(found.stdout).toBe("");
  });
});

describe("read-only mounts through every alias", () => {
  const write = (path: string) => `answer(open(my $f, '>>', '${path}'));`;
  const work = "/mnt/user-data/workspace";

  it.each<[string, string]>([
    ["its path", write("/mnt/read-only/file")],
    ["a new file in it", write("/mnt/read-only/new")],
    ["dots", write("/mnt/user-data/../read-only/file")],
    ["the process's root", write("/proc/self/root/mnt/read-only/file")],
    ["the working directory", `chdir '/mnt/read-only'; ${write("/proc/self/cwd/file")}`],
    ["a relative path", `chdir '/mnt/read-only'; ${write("file")}`],
    ["a symbolic link", `symlink '/mnt/read-only/file', '${work}/link'; ${write(`${work}/link`)}`],
    ["a symbolic link to the directory", `symlink '/mnt/read-only', '${work}/links'; ${write(`${work}/links/file`)}`],
    [
      "a descriptor, opened again",
      "open(my $r, '<', '/mnt/read-only/file'); answer(open(my $f, '+<', '/proc/self/fd/' . fileno $r));",
    ],
    ["truncation", "answer(truncate '/mnt/read-only/file', 0);"],
    ["removal", "answer(unlink '/mnt/read-only/file');"],
    ["renaming", "answer(rename '/mnt/read-only/file', '/mnt/read-only/other');"],
    ["the mode", "answer(chmod 0600, '/mnt/read-only/file');"],
    ["the times", "answer(utime 1, 1, '/mnt/read-only/file');"],
    ["a directory in it", "answer(mkdir '/mnt/read-only/directory');"],
  ])("%s", async (name, perl) => {
    const within = await inside(sandbox, perl);
    // The same on the host, in the mounted directory. Changes there are undone.
    const here = join(field.directory, "read-only");
    const onHost = perl.replaceAll("/mnt/read-only", here).replaceAll("/mnt/user-data/../read-only", here);
    const without = await outside(onHost.replaceAll(work, field.directory));
    writeFileSync(join(here, "file"), "unchanged");
    console.log(`read-only, ${name}: on the host ${without}, inside ${within}`);
    expect(without).toBe("ok");
    expect(within).toBe("EROFS");
  });

  it.each<[string, string]>([
    ["a hard link out of it", `answer(link '/mnt/read-only/file', '${work}/hard');`],
    ["moving a file out of it", `answer(rename '/mnt/read-only/file', '${work}/moved');`],
  ])("%s", async (name, perl) => {
    const within = await inside(sandbox, perl);
    console.log(`read-only, ${name}: inside ${within}`);
    expect(within).toBe("EXDEV");
  });

  it.each([
    "/",
    "/usr",
    "/bin",
    "/lib",
    "/etc",
    "/mnt",
    "/run",
    "/home",
    "/root",
    "/var",
    "/dev",
    "/sys",
    "/mnt/read-only",
  ])("the system at %s", async (path) => {
    const may = `answer(POSIX::access('${path}', POSIX::W_OK()));`;
    const here = path === "/mnt/read-only" ? join(field.directory, "read-only") : path;
    const [without, within] = [await outside(may.replace(path, here)), await inside(sandbox, may)];
    const made = await inside(sandbox, write(join(path, "new")));
    console.log(`read-only, ${path}: on the host ${without}, inside ${within}, a new file ${made}`);
    if (isRoot) expect(without).toBe("ok");
    expect(within).toMatch(/^(EROFS|EACCES)$/);
    expect(made).toMatch(/^(EROFS|EACCES)$/);
  });

  it("leaves the host's file as it was", () => {
    expect(readFileSync(join(field.directory, "read-only/file"), "utf8")).toBe("unchanged");
  });
});

function whole(expected: string | RegExp): RegExp {
  return typeof expected === "string" ? new RegExp(`^${expected}$`) : expected;
}
