/**
 * The filter's rules, as data. It refuses calls that a sandbox never needs and that reach out of it, into its
 * neighbours' processes, or into parts of the kernel where escapes are found. Most of them already fail for want of
 * capabilities; the filter holds even when a capability check is wrong.
 */

import type { SyscallName } from "./syscalls.ts";

export const ERRNO = { EPERM: 1, ENOSYS: 38, EPROTONOSUPPORT: 93, EAFNOSUPPORT: 97 } as const;

/** Refused with EPERM for any arguments. */
export const REFUSED: readonly SyscallName[] = [
  // Only the backend decides about mounts. The newer calls do the same as `mount` in steps.
  "mount",
  "umount2",
  "pivot_root",
  "chroot",
  "open_tree",
  "open_tree_attr",
  "move_mount",
  "fsopen",
  "fsconfig",
  "fsmount",
  "fspick",
  "mount_setattr",
  // A new namespace brings capabilities, and with them most of the kernel's attack surface.
  "unshare",
  "setns",
  // Other processes' memory and descriptors: the daemon has the same uid.
  "ptrace",
  "process_vm_readv",
  "process_vm_writev",
  "process_madvise",
  "pidfd_getfd",
  "kcmp",
  // Programs and rings that run inside the kernel, and calls that most exploits of kernel races use.
  "bpf",
  "perf_event_open",
  "userfaultfd",
  "io_uring_setup",
  "io_uring_enter",
  "io_uring_register",
  // Keyrings ignore namespaces.
  "add_key",
  "request_key",
  "keyctl",
  // File handles open files without the path that mounts restrict.
  "name_to_handle_at",
  "open_by_handle_at",
  // Calls that affect the whole machine.
  "init_module",
  "finit_module",
  "delete_module",
  "create_module",
  "get_kernel_syms",
  "query_module",
  "kexec_load",
  "kexec_file_load",
  "reboot",
  "swapon",
  "swapoff",
  "acct",
  "quotactl",
  "quotactl_fd",
  "syslog",
  "iopl",
  "ioperm",
  "vhangup",
  "settimeofday",
  "clock_settime",
  "sethostname",
  "setdomainname",
  // Rarely used, and each has been used in an exploit.
  "modify_ldt",
  "move_pages",
  "migrate_pages",
  "lookup_dcookie",
  "nfsservctl",
  "uselib",
  "_sysctl",
];

/**
 * Refused as by a kernel that lacks them: a filter cannot read flags behind a pointer. Programs then use `clone` and
 * `openat`.
 */
export const ABSENT: readonly SyscallName[] = ["clone3", "openat2"];

/**
 * Setuid and setgid. A file's owner on the host is an account of the host, root for some mounts: a program with one of these
 * bits would give that account to any process of the host that reaches it.
 */
export const SET_ID_BITS = 0o6000;
/** Which argument is the mode. */
export const MODE_ARGUMENT: Readonly<Partial<Record<SyscallName, number>>> = {
  chmod: 1,
  fchmod: 1,
  fchmodat: 2,
  fchmodat2: 2,
  creat: 1,
  mkdir: 1,
  mkdirat: 2,
  mknod: 1,
  mknodat: 2,
};
/** Which argument holds the flags. The mode is the next one, and is read only with O_CREAT or O_TMPFILE. */
export const OPEN_FLAGS_ARGUMENT: Readonly<Partial<Record<SyscallName, number>>> = { open: 1, openat: 2 };
export const CREATING_FLAGS = 0o20000100;

/** CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}. CLONE_NEWTIME shares its bit with the exit signal and is not for `clone`. */
export const NAMESPACE_FLAGS = 0x7e02_0000;

/**
 * PER_LINUX, PER_LINUX32, the same with UNAME26, ADDR_NO_RANDOMIZE of a process for itself, and the query of the
 * present one.
 */
export const HARMLESS_PERSONALITIES: readonly number[] = [0x0, 0x8, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff];

/** TIOCSTI types into a terminal, TIOCLINUX into a console, TIOCSETD loads line disciplines. The kernel reads 32 bits. */
export const REFUSED_IOCTLS: readonly number[] = [0x5412, 0x541c, 0x5423];

export const FAMILY = { UNIX: 1, INET: 2, INET6: 10, NETLINK: 16 } as const;
/** The only netlink protocol that ordinary programs need: the C library reads addresses with it. */
export const NETLINK_ROUTE = 0;
export const SOCKET_TYPE_MASK = 0xf;
export const SOCKET_TYPE = { RAW: 3, PACKET: 10 } as const;
