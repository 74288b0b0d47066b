/**
 * Puts the rules together into a program. It runs at every system call, so it checks first whether the number is known,
 * then the calls whose arguments matter, then the long list. Calls that are allowed with any arguments cost nothing on
 * kernels since 5.11, which cache them.
 */

import { Assembler } from "./assembler.ts";
import {
  ABSENT,
  CREATING_FLAGS,
  ERRNO,
  FAMILY,
  HARMLESS_PERSONALITIES,
  MODE_ARGUMENT,
  NAMESPACE_FLAGS,
  NETLINK_ROUTE,
  OPEN_FLAGS_ARGUMENT,
  REFUSED,
  REFUSED_IOCTLS,
  SET_ID_BITS,
  SOCKET_TYPE,
  SOCKET_TYPE_MASK,
} from "./rules.ts";
import {
  AUDIT_ARCHITECTURE,
  type FilterArchitecture,
  NEWEST_KNOWN_SYSCALL,
  type SyscallName,
  syscallNumber,
  X32_BIT,
} from "./syscalls.ts";

/** `struct seccomp_data`. Arguments have 64 bits; the lower half comes first. */
const NUMBER_AT = 0;
const ARCHITECTURE_AT = 4;
const argumentAt = (index: number) => 16 + index * 8;

const ACTION = {
  allow: 0x7fff_0000,
  killProcess: 0x8000_0000,
  errno: (number: number) => 0x0005_0000 + number,
} as const;

/** No such call: a tracer writes it in place of a call that it skipped. The kernel returns ENOSYS. */
const NO_SYSCALL = 0xffff_ffff;

export function buildSeccompFilter(architecture: FilterArchitecture): Uint8Array {
  const program = new Assembler();
  foreignCalls(program, architecture);
  const number = (name: SyscallName) => syscallNumber(architecture, name);
  const whenCalled = (name: SyscallName, label: string) => {
    const called = number(name);
    if (called !== null) program.jump("jumpIfEqual", called, { yes: label });
  };
  for (const name of ["ioctl", "clone", "socket", "socketpair", "personality"] as const) whenCalled(name, name);
  for (const [name, at] of entriesOf(OPEN_FLAGS_ARGUMENT)) whenCalled(name, `open-${at}`);
  for (const [name, at] of entriesOf(MODE_ARGUMENT)) whenCalled(name, `mode-${at}`);
  for (const name of ABSENT) whenCalled(name, "absent");
  for (const name of REFUSED) whenCalled(name, "refused");
  program.label("allowed").return(ACTION.allow);
  argumentChecks(program);
  program.label("refused").return(ACTION.errno(ERRNO.EPERM));
  program.label("absent").return(ACTION.errno(ERRNO.ENOSYS));
  program.label("no-family").return(ACTION.errno(ERRNO.EAFNOSUPPORT));
  program.label("no-protocol").return(ACTION.errno(ERRNO.EPROTONOSUPPORT));
  return program.assemble();
}

/** Another architecture's numbers would mean other calls. Unknown numbers are treated as missing calls. */
function foreignCalls(program: Assembler, architecture: FilterArchitecture): void {
  program
    .load(ARCHITECTURE_AT)
    .jump("jumpIfEqual", AUDIT_ARCHITECTURE[architecture], { yes: "ours", no: "foreign" })
    .label("foreign")
    .return(ACTION.killProcess)
    .label("ours")
    .load(NUMBER_AT)
    .jump("jumpIfGreater", NEWEST_KNOWN_SYSCALL, { no: "known" });
  if (architecture === "x64") {
    program
      .jump("jumpIfEqual", NO_SYSCALL, { yes: "unknown" })
      .jump("jumpIfGreaterOrEqual", X32_BIT, { no: "unknown" })
      .return(ACTION.killProcess);
  }
  program.label("unknown").return(ACTION.errno(ERRNO.ENOSYS)).label("known");
}

function argumentChecks(program: Assembler): void {
  ioctl(program);
  program
    .label("clone")
    .load(argumentAt(0))
    .jump("jumpIfAnyBit", NAMESPACE_FLAGS, { yes: "refused" })
    .return(ACTION.allow);
  program.label("personality").load(argumentAt(0));
  for (const value of HARMLESS_PERSONALITIES) program.jump("jumpIfEqual", value, { yes: "harmless" });
  program.return(ACTION.errno(ERRNO.EPERM)).label("harmless").return(ACTION.allow);
  sockets(program);
  modes(program);
}

/** Refuses setuid and setgid for new and for existing files. */
function modes(program: Assembler): void {
  const check = (at: number) =>
    program.load(argumentAt(at)).jump("jumpIfAnyBit", SET_ID_BITS, { yes: "refused" }).return(ACTION.allow);
  for (const at of new Set(entriesOf(OPEN_FLAGS_ARGUMENT).map(([, index]) => index))) {
    program.label(`open-${at}`).load(argumentAt(at)).jump("jumpIfAnyBit", CREATING_FLAGS, { no: "opened" });
    check(at + 1);
  }
  program.label("opened").return(ACTION.allow);
  for (const at of new Set(entriesOf(MODE_ARGUMENT).map(([, index]) => index))) {
    program.label(`mode-${at}`);
    check(at);
  }
}

function entriesOf(calls: Readonly<Partial<Record<SyscallName, number>>>): readonly [SyscallName, number][] {
  return Object.entries(calls) as [SyscallName, number][];
}

function ioctl(program: Assembler): void {
  program.label("ioctl").load(argumentAt(1));
  for (const request of REFUSED_IOCTLS) program.jump("jumpIfEqual", request, { yes: "refused" });
  program.return(ACTION.allow);
}

/** Allows local and internet sockets, and route queries to the kernel; no raw sockets. */
function sockets(program: Assembler): void {
  program
    .label("socketpair")
    .load(argumentAt(0))
    .jump("jumpIfEqual", FAMILY.UNIX, { no: "no-family" })
    .return(ACTION.allow);
  program
    .label("socket")
    .load(argumentAt(0))
    .jump("jumpIfEqual", FAMILY.UNIX, { yes: "allowed-socket" })
    .jump("jumpIfEqual", FAMILY.INET, { yes: "internet" })
    .jump("jumpIfEqual", FAMILY.INET6, { yes: "internet" })
    .jump("jumpIfEqual", FAMILY.NETLINK, { no: "no-family" })
    .load(argumentAt(2))
    .jump("jumpIfEqual", NETLINK_ROUTE, { yes: "allowed-socket", no: "no-protocol" })
    .label("internet")
    .load(argumentAt(1))
    .and(SOCKET_TYPE_MASK)
    .jump("jumpIfEqual", SOCKET_TYPE.RAW, { yes: "refused" })
    .jump("jumpIfEqual", SOCKET_TYPE.PACKET, { yes: "refused" })
    .label("allowed-socket")
    .return(ACTION.allow);
}
