/**
 * The filter on this machine's kernel, through `bwrap --seccomp`: each refused call once without it and once with it,
 * in namespaces whose capabilities are kept, and the programs that agents use every day. Both results are printed.
 */

import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { PROBE_PERL, probeAnswers, probeInput, probesFor } from "./probes.ts";
import { hostArchitecture, underBwrap } from "./under-bwrap.ts";

/** Also refused without the filter: the kernel wants capabilities of the host itself, or has dropped the call. */
const REFUSED_ANYWAY = new Set([
  ...["swapon", "swapoff", "acct", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load"],
  ...["open_by_handle_at", "vhangup", "settimeofday", "bpf", "perf_event_open", "userfaultfd", "syslog", "iopl"],
]);

describe("refused calls on this kernel", () => {
  it("answers each with the errno of its rule, and otherwise without the filter", async () => {
    const probes = probesFor(hostArchitecture());
    const ask = async (filter: boolean) => {
      const input = probeInput(probes);
      const end = await underBwrap(["perl", "-e", PROBE_PERL], { filter, capable: true, input });
      expect(end, end.stderr).toMatchObject({ code: 0, signal: null });
      return probeAnswers(end.stdout);
    };
    const [without, with_] = [await ask(false), await ask(true)];
    const rows = probes.map(({ name }) => `${name}: ${without.get(name)} → ${with_.get(name)}`);
    console.log(`without the filter → with it\n${rows.join("\n")}`);
    for (const { name, expected } of probes) {
      expect(with_.get(name), name).toBe(expected);
      expect(without.get(name), name).toBeDefined();
      if (!REFUSED_ANYWAY.has(name) && !ALIKE.has(name)) expect(without.get(name), name).not.toBe(expected);
    }
  });

  it("kills programs that call by the numbers of i386", async (context) => {
    if (process.arch !== "x64") return context.skip("only x64 has calls of i386");
    const run = (filter: boolean) =>
      withExecutable(INT_80, (path) => underBwrap([path], { filter, writable: path.replace(/\/[^/]*$/, "") }));
    const [without, with_] = [await run(false), await run(true)];
    console.log(`int 0x80: without the filter ${ending(without)}, with it ${ending(with_)}`);
    expect(ending(without)).toBe("exit 7");
    expect(ending(with_)).toBe("exit 159");
  });

  it("kills programs that call by the numbers of x32", async (context) => {
    if (process.arch !== "x64") return context.skip("only x64 has x32");
    const call = ["perl", "-e", "my $r = syscall(0x40000000 + 39); print $r == -1 ? $! + 0 : 'pid'"];
    const [without, with_] = [await underBwrap(call, { filter: false }), await underBwrap(call, { filter: true })];
    console.log(`x32: without the filter ${without.stdout} (${ending(without)}), with it ${ending(with_)}`);
    expect(ending(without)).toBe("exit 0");
    expect(ending(with_)).toBe("exit 159");
  });
});

/** Calls this kernel lacks, or families it was built without. */
const ALIKE = new Set(["call 470", "socket TIPC", "socket ALG", "socket VSOCK"]);

function ending({ code, signal }: { code: number | null; signal: string | null }): string {
  return signal === null ? `exit ${code}` : signal;
}

/** getpid through `int 0x80`, then exit 7 the usual way. */
const INT_80 = Buffer.from("b814000000cd80bf07000000b83c0000000f05", "hex");

async function withExecutable<T>(code: Buffer, use: (path: string) => Promise<T>): Promise<T> {
  const directory = mkdtempSync(join(tmpdir(), "sandlot-elf-"));
  try {
    const path = join(directory, "program");
    writeFileSync(path, elf(code));
    chmodSync(directory, 0o755);
    chmodSync(path, 0o755);
    return await use(path);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

/** The smallest program that Linux starts: one header, one loaded segment, the code. */
function elf(code: Buffer): Buffer {
  const [base, headers] = [0x40_0000n, 64 + 56];
  const file = Buffer.alloc(headers);
  file.write("\x7fELF\x02\x01\x01", "latin1");
  file.writeUInt16LE(2, 16);
  file.writeUInt16LE(62, 18);
  file.writeUInt32LE(1, 20);
  file.writeBigUInt64LE(base + BigInt(headers), 24);
  file.writeBigUInt64LE(64n, 32);
  file.writeUInt16LE(64, 52);
  file.writeUInt16LE(56, 54);
  file.writeUInt16LE(1, 56);
  file.writeUInt32LE(1, 64);
  file.writeUInt32LE(5, 68);
  file.writeBigUInt64LE(base, 80);
  file.writeBigUInt64LE(base, 88);
  file.writeBigUInt64LE(BigInt(headers + code.length), 96);
  file.writeBigUInt64LE(BigInt(headers + code.length), 104);
  file.writeBigUInt64LE(0x1000n, 112);
  return Buffer.concat([file, code]);
}

describe("programs under the filter", { timeout: 60_000 }, () => {
  let directory: string;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), "sandlot-programs-"));
    chmodSync(directory, 0o777);
  });
  afterEach(() => rmSync(directory, { recursive: true, force: true }));

  it.each(Object.entries(PROGRAMS))("%s", async (_, [script, expected]) => {
    const end = await underBwrap(["/bin/bash", "-ec", script], { filter: true, writable: directory });
    expect(end, `${end.stdout}\n${end.stderr}`).toMatchObject({ code: 0, signal: null });
    expect(end.stdout).toContain(expected);
  });
});

/** The output of each when it works. A missing program fails. */
const PROGRAMS: Readonly<Record<string, readonly [script: string, prints: string]>> = {
  "bash: pipes, background, process substitution": [
    "sleep 0.1 & wait; seq 1 5 | sort -rn | head -1; diff <(echo a) <(echo a); (trap 'echo caught' TERM; kill $BASHPID)",
    "5\ncaught",
  ],
  "node: threads, files, child processes, a server": [
    `node -e '
      const { Worker } = require("node:worker_threads");
      const { execFileSync } = require("node:child_process");
      require("node:fs").writeFileSync("f", "x");
      new Worker("1", { eval: true }).on("exit", () => {
        const server = require("node:http").createServer((_, reply) => reply.end("served")).listen(0, "127.0.0.1", async () => {
          const answer = await fetch("http://127.0.0.1:" + server.address().port);
          console.log(await answer.text(), execFileSync("echo", ["child"]).toString().trim());
          server.close();
        });
      });'`,
    "served child",
  ],
  "python: threads, processes, sockets": [
    `python3 -c '
import multiprocessing, subprocess, socket, threading, tempfile, os
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(abs, [-1, 2]))
left, right = socket.socketpair(); left.send(b"x"); print(right.recv(1))
print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout, socket.getaddrinfo("127.0.0.1", 80)[0][4])'`,
    "[1, 2]",
  ],
  "git: commit, clone, log": [
    `git init -q -b main a && cd a && git config user.email a@b.c && git config user.name n && echo 1 > f && git add f && git commit -qm first && git gc -q && cd .. && git clone -q a b && git -C b log --oneline`,
    "first",
  ],
  "npm: a package and a script": [
    `npm init -y >/dev/null && npm pkg set scripts.hi='echo from-script' && npm run hi --silent && npm pack --silent`,
    "from-script",
  ],
  "apt and dpkg: questions": [
    "apt-cache policy bash | head -1; dpkg -s bash | grep ^Status; apt-get --version | head -1",
    "Status: install ok",
  ],
  "gcc: compile and run": [
    `printf '#include <pthread.h>\\n#include <stdio.h>\\nvoid *f(void *x) { puts("compiled"); return x; }\\nint main(void) { pthread_t t; pthread_create(&t, 0, f, 0); return pthread_join(t, 0); }\\n' > a.c && gcc -O1 -pthread a.c -o a && ./a`,
    "compiled",
  ],
  ripgrep: ["printf 'one\\ntwo\\n' > f && rg --threads 2 -n two .", "2:two"],
  "tar, gzip, find, xargs, sed, awk": [
    "echo x > f && tar czf f.tgz f && tar tzf f.tgz && find . -name f | xargs sed s/x/y/ | awk '{ print $1 \"!\" }'",
    "y!",
  ],
  perl: ["perl -e 'my $pid = fork // die; exit 0 unless $pid; waitpid $pid, 0; print \"forked $?\\n\"'", "forked 0"],
  "sqlite and memory maps": [
    'python3 -c \'import sqlite3; c = sqlite3.connect("d"); c.execute("create table t (x)"); c.execute("pragma journal_mode=wal"); print(c.execute("select 40+2").fetchone())\'',
    "(42,)",
  ],
};
