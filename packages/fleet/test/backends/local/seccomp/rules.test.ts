/**
 * Every rule of the filter, for both architectures, in an interpreter. arm64 has not been tried on a real kernel here;
 * kernel.test.ts tries x64 on this one.
 */

import { existsSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { Assembler } from "../../../../src/backends/local/seccomp/assembler.ts";
import { buildSeccompFilter } from "../../../../src/backends/local/seccomp/index.ts";
import { ABSENT, REFUSED } from "../../../../src/backends/local/seccomp/rules.ts";
import {
  AUDIT_ARCHITECTURE,
  type FilterArchitecture,
  NEWEST_KNOWN_SYSCALL,
  SYSCALL_NAMES,
  type SyscallName,
  syscallNumber,
} from "../../../../src/backends/local/seccomp/syscalls.ts";
import { runFilter } from "./interpreter.ts";

const ALLOW = 0x7fff_0000;
const KILL = 0x8000_0000;
const errno = (number: number) => 0x0005_0000 + number;
const EPERM = errno(1);
const ENOSYS = errno(38);
const EPROTONOSUPPORT = errno(93);
const EAFNOSUPPORT = errno(97);
/** Possible upper halves of an argument that the kernel reads as 32 bits. */
const HIGH = 0xdead_beef_0000_0000n;

describe.each<FilterArchitecture>(["x64", "arm64"])("the filter for %s", (architecture) => {
  const filter = buildSeccompFilter(architecture);
  const call = (number: number, ...args: (number | bigint)[]) =>
    runFilter(filter, {
      number,
      architecture: AUDIT_ARCHITECTURE[architecture],
      arguments: args.map((value) => BigInt(value)),
    });
  const named = (name: SyscallName, ...args: (number | bigint)[]) =>
    call(syscallNumber(architecture, name) ?? -1, ...args);
  const has = (name: SyscallName) => syscallNumber(architecture, name) !== null;

  it.each(REFUSED.filter(has))("refuses %s", (name) => {
    expect(named(name)).toBe(EPERM);
    expect(named(name, ~0n & 0xffff_ffff_ffff_ffffn, 1, 2)).toBe(EPERM);
  });

  it.each(ABSENT)("answers %s as a kernel without it", (name) => expect(named(name)).toBe(ENOSYS));

  it("allows every number that no rule names, and none beyond those looked at", () => {
    const ruled = new Set(SYSCALL_NAMES.map((name) => syscallNumber(architecture, name)));
    for (let number = 0; number <= NEWEST_KNOWN_SYSCALL; number += 1)
      if (!ruled.has(number)) expect(call(number), `call ${number}`).toBe(ALLOW);
    for (const number of [NEWEST_KNOWN_SYSCALL + 1, 500, 512, 547, 0x3fff_ffff, 0xffff_ffff])
      expect(call(number)).toBe(ENOSYS);
  });

  it("kills calls by other architectures' numbers", () => {
    const others = [0x4000_0003, 0x4000_0028, 0xc000_003e, 0xc000_00b7, 0x0, 0x8000_0016, 0xc000_00f3];
    for (const other of others.filter((value) => value !== AUDIT_ARCHITECTURE[architecture]))
      expect(runFilter(filter, { number: 0, architecture: other })).toBe(KILL);
  });

  it("kills x32 calls where there is x32", () => {
    const expected = architecture === "x64" ? KILL : ENOSYS;
    for (const number of [0x4000_0000, 0x4000_0001, 0x4000_0000 + 520, 0xffff_fffe])
      expect(call(number)).toBe(expected);
  });

  it("refuses clone with any namespace, and lets processes and threads be made", () => {
    const [vm, fs, files, sighand, thread, sigchld] = [0x100, 0x200, 0x400, 0x800, 0x1_0000, 17];
    expect(named("clone", sigchld)).toBe(ALLOW);
    expect(named("clone", 0x4000 + vm + sigchld)).toBe(ALLOW);
    expect(named("clone", 0x003d_0f00)).toBe(ALLOW);
    expect(named("clone", vm + fs + files + sighand + thread)).toBe(ALLOW);
    for (const bit of [17, 25, 26, 27, 28, 29, 30]) {
      expect(named("clone", 2 ** bit), `bit ${bit}`).toBe(EPERM);
      expect(named("clone", 2 ** bit + sigchld)).toBe(EPERM);
      expect(named("clone", BigInt(2 ** bit) + HIGH)).toBe(EPERM);
    }
    for (const bit of [16, 18, 19, 20, 21, 22, 23, 24, 31]) expect(named("clone", 2 ** bit), `bit ${bit}`).toBe(ALLOW);
  });

  it("refuses modes with setuid or setgid wherever a file can get one", () => {
    const [create, temporary, large] = [0o100, 0o20000000, 0o100000];
    const modeAt = [
      ...(["chmod", "fchmod", "creat", "mkdir", "mknod"] as const).map((name) => [name, 1] as const),
      ...(["fchmodat", "fchmodat2", "mkdirat", "mknodat"] as const).map((name) => [name, 2] as const),
    ];
    for (const [name, at] of modeAt.filter(([one]) => has(one))) {
      const before = Array.from({ length: at }, () => 0o6777);
      for (const mode of [0, 0o644, 0o755, 0o1777, 0o100777]) expect(named(name, ...before, mode), name).toBe(ALLOW);
      for (const mode of [0o4755, 0o2755, 0o6000, 0o106777]) {
        expect(named(name, ...before, mode), name).toBe(EPERM);
        expect(named(name, ...before, HIGH + BigInt(mode)), name).toBe(EPERM);
      }
    }
    const opened: readonly (readonly [SyscallName, readonly number[]])[] = [
      ["open", [0]],
      ["openat", [0, 0]],
    ];
    for (const [name, before] of opened.filter(([one]) => has(one))) {
      // Without these flags the kernel ignores the mode, which holds a leftover value.
      for (const flags of [0, 1, 2, large]) expect(named(name, ...before, flags, 0o4755), name).toBe(ALLOW);
      for (const flags of [create, create + 1, temporary, HIGH + BigInt(create)]) {
        expect(named(name, ...before, flags, 0o1755), name).toBe(ALLOW);
        for (const mode of [0o4755, 0o2755]) expect(named(name, ...before, flags, mode), name).toBe(EPERM);
      }
    }
  });

  it("allows harmless personalities only", () => {
    for (const value of [0, 8, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff])
      expect(named("personality", value)).toBe(ALLOW);
    for (const value of [1, 7, 9, 0x40_0000, 0x44_0000, 0x10_0000, 0xffff_fffe])
      expect(named("personality", value)).toBe(EPERM);
  });

  it("refuses ioctls that type into terminals, also with something in the upper half", () => {
    for (const request of [0x5412, 0x541c, 0x5423]) {
      expect(named("ioctl", 0, request)).toBe(EPERM);
      expect(named("ioctl", 0, HIGH + BigInt(request))).toBe(EPERM);
    }
    for (const request of [0x5401, 0x5411, 0x5413, 0x541b, 0x541d, 0x5421, 0x5422, 0x5424, 0])
      expect(named("ioctl", 0, request)).toBe(ALLOW);
  });

  it("knows local and internet sockets, and routes, but nothing raw", () => {
    const [stream, datagram, raw, packet] = [1, 2, 3, 10];
    const flags = 0o2000000 + 0o4000;
    for (const type of [stream, datagram, raw, 5]) expect(named("socket", 1, type, 0)).toBe(ALLOW);
    for (const family of [2, 10]) {
      for (const type of [stream, datagram, stream + flags, 5]) expect(named("socket", family, type, 0)).toBe(ALLOW);
      for (const type of [raw, packet, raw + flags]) expect(named("socket", family, type, 1)).toBe(EPERM);
      expect(named("socket", HIGH + BigInt(family), HIGH + BigInt(raw))).toBe(EPERM);
    }
    for (const type of [datagram, raw, raw + flags]) expect(named("socket", 16, type, 0)).toBe(ALLOW);
    for (const protocol of [4, 9, 12, 15, 16]) expect(named("socket", 16, raw, protocol)).toBe(EPROTONOSUPPORT);
    for (let family = 0; family < 50; family += 1)
      if (![1, 2, 10, 16].includes(family))
        expect(named("socket", family, stream), `family ${family}`).toBe(EAFNOSUPPORT);
  });

  it("makes pairs of local sockets only", () => {
    expect(named("socketpair", 1, 1)).toBe(ALLOW);
    for (const family of [0, 2, 10, 16, 30, 40]) expect(named("socketpair", family, 1)).toBe(EAFNOSUPPORT);
  });

  it("has the numbers of the kernel's own header", (context) => {
    const header = HEADERS[architecture].find(existsSync);
    if (header === undefined) return context.skip("linux-libc-dev is not installed");
    const text = readFileSync(header, "utf8");
    for (const name of SYSCALL_NAMES) {
      const found = new RegExp(`^#define\\s+(?:__NR|__NR3264)_${name}\\s+(\\d+)`, "m").exec(text)?.[1];
      // Newer than the header: looked up in the table of the kernel that brought it.
      if (["open_tree_attr", "fchmodat2"].includes(name) && found === undefined) continue;
      expect(syscallNumber(architecture, name), name).toBe(found === undefined ? null : Number(found));
    }
  });
});

const HEADERS: Readonly<Record<FilterArchitecture, readonly string[]>> = {
  x64: ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"],
  arm64: ["/usr/include/asm-generic/unistd.h"],
};

describe("the assembler", () => {
  it("writes sock_filter structures", () => {
    const bytes = new Assembler()
      .load(4)
      .jump("jumpIfEqual", 0xc000_003e, { no: "end" })
      .return(1)
      .label("end")
      .return(2);
    expect(Buffer.from(bytes.assemble()).toString("hex")).toBe(
      "2000000004000000" + "150000013e0000c0" + "0600000001000000" + "0600000002000000",
    );
  });

  it("refuses jumps that are too far, go back, or go nowhere", () => {
    const far = new Assembler().jump("jumpIfEqual", 1, { yes: "end" });
    for (let count = 0; count < 256; count += 1) far.load(0);
    expect(() => far.label("end").return(0).assemble()).toThrow("256 long");
    expect(() => new Assembler().label("start").jump("jumpIfEqual", 1, { yes: "start" }).assemble()).toThrow();
    expect(() => new Assembler().jump("jumpIfEqual", 1, { yes: "none" }).assemble()).toThrow("never placed");
    expect(() => new Assembler().label("twice").label("twice")).toThrow("placed twice");
  });
});
