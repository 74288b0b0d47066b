/**
 * The list of escapes that end in one system call: the attempt, and its result inside. On the host, as root, each of
 * them succeeds, unless it says otherwise.
 */

import { join } from "node:path";
import type { Field } from "./field.ts";

export interface Attempt {
  readonly perl: string;
  readonly inside: string | RegExp;
  /** The result of the same probe without protection. Default `ok`. */
  readonly outside?: string | RegExp;
  /** Put before the probe on the host, so that it changes nothing there. */
  readonly prefix?: readonly string[];
}

/** The targets of an attempt. */
export interface Aims {
  readonly field: Field;
  /** The other thread's `user-data` on the host, which holds `workspace/another-threads-file`. */
  readonly otherUserData: string;
  readonly otherSocket: string;
  readonly victimPid: number;
  readonly victimName: string;
  /** In the environment of this process. */
  readonly fleetSecret: string;
  readonly port: number;
  readonly abstractName: string;
}

const MKNODAT = process.arch === "arm64" ? 33 : 259;
const UNSHARE = process.arch === "arm64" ? 97 : 272;
const CLONE = process.arch === "arm64" ? 220 : 56;
const MOUNT = process.arch === "arm64" ? 40 : 165;

const quoted = (text: string) => `'${text}'`;
const opens = (path: string, mode = "<") => `answer(open(my $file, ${quoted(mode)}, ${quoted(path)}));`;
const connects = (address: string, family: string) =>
  `socket(my $socket, ${family}, SOCK_STREAM, 0) or answer(0); answer(connect($socket, ${address}));`;
/** An ordinary user may mount as root of their own user namespace, which the sandbox does not allow. */
const inMountNamespace = [
  "unshare",
  ...(process.getuid?.() === 0 ? [] : ["--user", "--map-root-user"]),
  ...["--mount", "--propagation", "private"],
];

export function attempts(aims: Aims): Readonly<Record<string, Attempt>> {
  return { ...files(aims), ...processes(aims), ...network(aims), ...kernel(aims.field) };
}

function files({ field, otherUserData, otherSocket }: Aims): Record<string, Attempt> {
  const secret = join(field.directory, "secret");
  const absent = { inside: "ENOENT" };
  return {
    "a host file outside the mounts": { perl: opens(secret), ...absent },
    "the same through /proc/self/root": { perl: opens(`/proc/self/root${secret}`), ...absent },
    "the same through another process's root": {
      perl: `answer(open(my $file, '<', '/proc/' . getppid() . '/root${secret}'));`,
      inside: "EACCES",
    },
    "the same with dots": { perl: opens(`/mnt/../../../..${secret}`), ...absent },
    "the host's password hashes": { perl: opens("/etc/shadow"), ...absent },
    "the host's root home": {
      perl: "opendir(my $d, '/root') or answer(0); some(grep !/^[.]+$/, readdir $d);",
      inside: "none",
    },
    "the host's logs": { perl: "answer(opendir(my $d, '/var/log'));", ...absent },
    "another thread's file": { perl: opens(join(otherUserData, "workspace/another-threads-file")), ...absent },
    "the fleet's directory": { perl: `answer(opendir(my $d, ${quoted(field.harness.home)}));`, ...absent },
    "another sandbox's socket": { perl: connects(`pack_sockaddr_un(${quoted(otherSocket)})`, "AF_UNIX"), ...absent },
    "what is in /run": {
      perl: "opendir(my $d, '/run') or answer(0); print join(' ', sort grep !/^[.]+$/, readdir $d), \"\\n\";",
      outside: /./,
      inside: "sandlot",
    },
  };
}

function processes({ victimPid, victimName, fleetSecret }: Aims): Record<string, Attempt> {
  // The probe itself has the name in its command line.
  const search = (file: string, text: string) =>
    `sub has { open(my $f, '<', $_[0]) or return 0; local $/; (<$f> // '') =~ /${text}/ }
     some(grep { has($_) } grep { $_ ne "/proc/$$/cmdline" } glob '/proc/[0-9]*/${file}');`;
  return {
    "a signal to a process of the host": { perl: `answer(kill(0, ${victimPid}));`, inside: "ESRCH" },
    "a process of the host by its command line": { perl: search("cmdline", victimName), inside: "none" },
    "the environment of a process of the host": { perl: search("environ", victimName), inside: "none" },
    // On the host the probe inherits it from us; inside, /proc/1/environ and all others must lack it.
    "the fleet's own environment in /proc/1/environ": { perl: search("environ", fleetSecret), inside: "none" },
    "a priority above others": { perl: "answer(setpriority(0, 0, -5));", inside: /^(EACCES|EPERM)$/ },
  };
}

function network({ port, abstractName }: Aims): Record<string, Attempt> {
  const raw = (family: number, type: number, protocol: number) =>
    `answer(socket(my $s, ${family}, ${type}, ${protocol}));`;
  return {
    "a server on the host's loopback": {
      perl: connects(`pack_sockaddr_in(${port}, inet_aton('127.0.0.1'))`, "AF_INET"),
      inside: "ECONNREFUSED",
    },
    "an address beyond the host": {
      // Datagram sockets send nothing when they connect; the kernel only looks for a route.
      perl: "socket(my $s, AF_INET, SOCK_DGRAM, 0); answer(connect($s, pack_sockaddr_in(9, inet_aton('192.0.2.1'))));",
      inside: "ENETUNREACH",
    },
    "an abstract socket of the host": {
      perl: connects(`pack_sockaddr_un("\\0${abstractName}")`, "AF_UNIX"),
      inside: "ECONNREFUSED",
    },
    "interfaces of the host": {
      perl: "open(my $f, '<', '/proc/net/dev'); my @names = map { /^\\s*(\\w+):/ ? $1 : () } <$f>; some(grep { $_ ne 'lo' } @names);",
      inside: "none",
    },
    "a raw socket": { perl: raw(2, 3, 1), inside: "EPERM" },
    "a raw socket of version 6": { perl: raw(10, 3, 58), inside: "EPERM" },
    "a packet socket": { perl: raw(17, 3, 0x300), inside: "EAFNOSUPPORT" },
    "a socket to the hypervisor": { perl: raw(40, 1, 0), inside: "EAFNOSUPPORT" },
  };
}

function kernel(field: Field): Record<string, Attempt> {
  const { major, minor } = field.rootDevice();
  const device = (minor & 0xff) | (major << 8) | ((minor & ~0xff) << 12);
  const ownFile = `my $d = -w '/mnt/user-data/workspace' ? '/mnt/user-data/workspace' : ${quoted(field.directory)}; open(my $made, '>', "$d/sh"); close $made; END { unlink "$d/sh" if defined $d; }`;
  const mountTmpfs = `my $d = -w '/mnt/user-data/workspace' ? '/mnt/user-data/workspace' : '/mnt'; my ($none, $type) = ('none', 'tmpfs'); answer(syscall(${MOUNT}, $none, $d, $type, 0, 0) == 0);`;
  return {
    "writing the host's core pattern": {
      perl: "answer(sysopen(my $f, '/proc/sys/kernel/core_pattern', O_WRONLY));",
      inside: /^(EROFS|EACCES)$/,
    },
    "dropping the host's caches": {
      perl: "answer(sysopen(my $f, '/proc/sys/vm/drop_caches', O_WRONLY));",
      inside: /^(EROFS|EACCES)$/,
    },
    "the host's control groups": {
      perl: "answer(-e '/sys/fs/cgroup' && opendir(my $d, '/sys/fs/cgroup'));",
      inside: "ENOENT",
    },
    "the kernel's command line": {
      perl: "open(my $f, '<', '/proc/cmdline') or answer(0); some(grep { /\\S/ } scalar(<$f>) // '');",
      inside: /^(none|EACCES)$/,
    },
    "the kernel's configuration": {
      perl: "open(my $f, '<', '/proc/config.gz') or some(); some(grep { defined } scalar <$f>);",
      inside: "none",
      outside: /^(ok|none)$/,
    },
    "the kernel's memory map": {
      perl: "open(my $f, '<', '/proc/kallsyms') or answer(0); some(grep { defined } scalar <$f>);",
      inside: /^(none|EACCES|ENOENT)$/,
    },
    "a device node of the root disk": {
      perl: `my $d = -w '/mnt/user-data/workspace' ? '/mnt/user-data/workspace' : ${quoted(field.directory)}; my $made = syscall(${MKNODAT}, -100, "$d/disk", S_IFBLK | 0600, ${device}) == 0; my $errno = $! + 0; unlink "$d/disk"; $! = $errno; answer($made);`,
      inside: "EPERM",
    },
    "a setuid program by chmod": { perl: `${ownFile} answer(chmod 04755, "$d/sh");`, inside: "EPERM" },
    "a setgid program by chmod": { perl: `${ownFile} answer(chmod 02755, "$d/sh");`, inside: "EPERM" },
    "a setuid program through its descriptor": {
      perl: `${ownFile} open(my $f, '+<', "$d/sh"); answer(chmod 04755, $f);`,
      inside: "EPERM",
    },
    "a setuid program when it is made": {
      perl: `${ownFile} unlink "$d/sh"; answer(sysopen(my $f, "$d/sh", O_CREAT | O_WRONLY, 04755));`,
      inside: "EPERM",
    },
    "devices of the host": { perl: "some(grep { -b } glob '/dev/*');", inside: "none" },
    "a mount": { perl: mountTmpfs, inside: "EPERM", prefix: inMountNamespace },
    "another root by chroot": { perl: "answer(chroot '/usr');", inside: "EPERM" },
    "a user namespace by unshare": { perl: `answer(syscall(${UNSHARE}, 0x10000000) == 0);`, inside: "EPERM" },
    "a user namespace by clone": {
      perl: `my $pid = syscall(${CLONE}, 0x10000011, 0, 0, 0, 0); POSIX::_exit(0) if $pid == 0; my $errno = $! + 0; waitpid $pid, 0 if $pid > 0; $! = $errno; answer($pid > 0);`,
      inside: "EPERM",
    },
    "becoming root": { perl: "$! = 0; POSIX::setuid(0); answer($< == 0);", inside: /^(EPERM|EINVAL)$/ },
  };
}
