/**
 * One harmless attempt at each call that the filter refuses. Arguments are chosen so that a kernel without the filter
 * gives another result than the filter, or does nothing noteworthy.
 */

import { ABSENT, REFUSED } from "../../../../src/backends/local/seccomp/rules.ts";
import {
  type FilterArchitecture,
  type SyscallName,
  syscallNumber,
} from "../../../../src/backends/local/seccomp/syscalls.ts";

export interface Probe {
  readonly name: string;
  readonly number: number;
  readonly arguments: readonly (number | bigint)[];
  readonly expected: "EPERM" | "ENOSYS" | "EAFNOSUPPORT" | "EPROTONOSUPPORT";
}

/** Zero is a bad pointer, a bad descriptor is -1. */
const ARGUMENTS: Readonly<Partial<Record<SyscallName, readonly (number | bigint)[]>>> = {
  setns: [-1, 0],
  ptrace: [1, -1, 0, 0],
  process_vm_readv: [-1, 0, 0, 0, 0, 0],
  process_vm_writev: [-1, 0, 0, 0, 0, 0],
  process_madvise: [-1, 0, 0, 0, 0],
  pidfd_getfd: [-1, 0, 0],
  kcmp: [-1, -1, 0, 0, 0],
  bpf: [-1, 0, 0],
  userfaultfd: [-1],
  io_uring_enter: [-1, 0, 0, 0, 0, 0],
  io_uring_register: [-1, 0, 0, 0],
  keyctl: [-1, 0, 0, 0, 0],
  finit_module: [-1, 0, 0],
  reboot: [0, 0, 0, 0],
  quotactl_fd: [-1, 0, 0, 0],
  syslog: [10, 0, 0],
  clock_settime: [0, 0],
  sethostname: [0, -1],
  setdomainname: [0, -1],
};

export function probesFor(architecture: FilterArchitecture): readonly Probe[] {
  const number = (name: SyscallName) => syscallNumber(architecture, name) ?? Number.NaN;
  const plain = [...REFUSED, ...ABSENT]
    .filter((name) => syscallNumber(architecture, name) !== null)
    .map((name): Probe => {
      const args = ARGUMENTS[name] ?? [0, 0, 0, 0, 0, 0];
      return { name, number: number(name), arguments: args, expected: ABSENT.includes(name) ? "ENOSYS" : "EPERM" };
    });
  const socket = (
    name: string,
    family: number,
    type: number,
    protocol: number,
    expected: Probe["expected"],
  ): Probe => ({
    name: `socket ${name}`,
    number: number("socket"),
    arguments: [family, type, protocol],
    expected,
  });
  return [
    ...plain,
    { name: "clone NEWUSER", number: number("clone"), arguments: [0x1000_0011, 0, 0, 0, 0], expected: "EPERM" },
    { name: "clone NEWNS", number: number("clone"), arguments: [0x0002_0011, 0, 0, 0, 0], expected: "EPERM" },
    { name: "clone NEWNET", number: number("clone"), arguments: [0x4000_0011, 0, 0, 0, 0], expected: "EPERM" },
    { name: "personality", number: number("personality"), arguments: [0x40_0000], expected: "EPERM" },
    { name: "ioctl TIOCSTI", number: number("ioctl"), arguments: [0, 0x5412, 0], expected: "EPERM" },
    { name: "ioctl TIOCSTI high", number: number("ioctl"), arguments: [0, 0x1_0000_5412n, 0], expected: "EPERM" },
    { name: "ioctl TIOCLINUX", number: number("ioctl"), arguments: [0, 0x541c, 0], expected: "EPERM" },
    { name: "ioctl TIOCSETD", number: number("ioctl"), arguments: [0, 0x5423, 0], expected: "EPERM" },
    { name: "fchmod setuid", number: number("fchmod"), arguments: [-1, 0o4755], expected: "EPERM" },
    { name: "fchmodat2 setgid", number: number("fchmodat2"), arguments: [-1, 0, 0o2755, 0], expected: "EPERM" },
    { name: "openat setuid", number: number("openat"), arguments: [-1, 0, 0o101, 0o4755], expected: "EPERM" },
    { name: "mknodat setuid", number: number("mknodat"), arguments: [-1, 0, 0o104755, 0], expected: "EPERM" },
    { name: "call 470", number: 470, arguments: [], expected: "ENOSYS" },
    socket("PACKET", 17, 3, 0, "EAFNOSUPPORT"),
    socket("ALG", 38, 5, 0, "EAFNOSUPPORT"),
    socket("VSOCK", 40, 1, 0, "EAFNOSUPPORT"),
    socket("TIPC", 30, 1, 0, "EAFNOSUPPORT"),
    socket("INET raw", 2, 3, 1, "EPERM"),
    socket("INET6 raw", 10, 3, 58, "EPERM"),
    socket("NETLINK audit", 16, 3, 9, "EPROTONOSUPPORT"),
    socket("NETLINK netfilter", 16, 3, 12, "EPROTONOSUPPORT"),
  ];
}

/** Reads `name number arguments…` lines and prints `name errno` lines, 0 for success. */
export const PROBE_PERL = String.raw`
  use POSIX ();
  use Errno;
  $| = 1;
  my %names = map { (eval "Errno::$_()") => $_ } grep { !/^E(WOULDBLOCK|NOTSUP|DEADLOCK)$/ } keys %!;
  while (my $line = <STDIN>) {
    my ($name, $number, @arguments) = split /\t/, $line =~ s/\n//r;
    $! = 0;
    my $result = syscall($number, map { $_ + 0 } @arguments);
    my $errno = $result == -1 ? $! + 0 : 0;
    POSIX::_exit(0) if $name =~ /^clone / and $result == 0;
    print "$name\t", ($errno == 0 ? "ok" : $names{$errno} // $errno), "\n";
  }
`;

export function probeInput(probes: readonly Probe[]): string {
  return probes.map(({ name, number, arguments: args }) => [name, number, ...args].join("\t")).join("\n");
}

export function probeAnswers(text: string): ReadonlyMap<string, string> {
  return new Map(
    text
      .trim()
      .split("\n")
      .map((line) => line.split("\t") as [string, string]),
  );
}
