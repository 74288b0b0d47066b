/**
 * Numbers of the system calls in the rules, for the two architectures of the filter. A call that an architecture does
 * not have is `null` there. Everything from 424 on is numbered alike everywhere.
 */

export type FilterArchitecture = "x64" | "arm64";

/** `AUDIT_ARCH_*`: which table of numbers a call was made with. */
export const AUDIT_ARCHITECTURE: Readonly<Record<FilterArchitecture, number>> = {
  x64: 0xc000_003e,
  arm64: 0xc000_00b7,
};

/** Set in the number of a call that an x32 program makes; the architecture is then still x64. */
export const X32_BIT = 0x4000_0000;

/** `file_setattr`, the newest call that the rules consider. */
export const NEWEST_KNOWN_SYSCALL = 469;

const NUMBERS = {
  mount: [165, 40],
  umount2: [166, 39],
  pivot_root: [155, 41],
  chroot: [161, 51],
  open_tree: [428, 428],
  move_mount: [429, 429],
  fsopen: [430, 430],
  fsconfig: [431, 431],
  fsmount: [432, 432],
  fspick: [433, 433],
  mount_setattr: [442, 442],
  open_tree_attr: [467, 467],
  unshare: [272, 97],
  setns: [308, 268],
  clone: [56, 220],
  clone3: [435, 435],
  ptrace: [101, 117],
  process_vm_readv: [310, 270],
  process_vm_writev: [311, 271],
  process_madvise: [440, 440],
  pidfd_getfd: [438, 438],
  kcmp: [312, 272],
  bpf: [321, 280],
  perf_event_open: [298, 241],
  userfaultfd: [323, 282],
  io_uring_setup: [425, 425],
  io_uring_enter: [426, 426],
  io_uring_register: [427, 427],
  add_key: [248, 217],
  request_key: [249, 218],
  keyctl: [250, 219],
  name_to_handle_at: [303, 264],
  open_by_handle_at: [304, 265],
  init_module: [175, 105],
  finit_module: [313, 273],
  delete_module: [176, 106],
  create_module: [174, null],
  get_kernel_syms: [177, null],
  query_module: [178, null],
  kexec_load: [246, 104],
  kexec_file_load: [320, 294],
  reboot: [169, 142],
  swapon: [167, 224],
  swapoff: [168, 225],
  acct: [163, 89],
  quotactl: [179, 60],
  quotactl_fd: [443, 443],
  syslog: [103, 116],
  iopl: [172, null],
  ioperm: [173, null],
  modify_ldt: [154, null],
  personality: [135, 92],
  vhangup: [153, 58],
  settimeofday: [164, 170],
  clock_settime: [227, 112],
  sethostname: [170, 161],
  setdomainname: [171, 162],
  move_pages: [279, 239],
  migrate_pages: [256, 238],
  lookup_dcookie: [212, 18],
  nfsservctl: [180, 42],
  uselib: [134, null],
  _sysctl: [156, null],
  open: [2, null],
  openat: [257, 56],
  openat2: [437, 437],
  creat: [85, null],
  chmod: [90, null],
  fchmod: [91, 52],
  fchmodat: [268, 53],
  fchmodat2: [452, 452],
  mkdir: [83, null],
  mkdirat: [258, 34],
  mknod: [133, null],
  mknodat: [259, 33],
  ioctl: [16, 29],
  socket: [41, 198],
  socketpair: [53, 199],
} as const satisfies Readonly<Record<string, readonly [x64: number, arm64: number | null]>>;

export type SyscallName = keyof typeof NUMBERS;

export const SYSCALL_NAMES = Object.keys(NUMBERS) as readonly SyscallName[];

export function syscallNumber(architecture: FilterArchitecture, name: SyscallName): number | null {
  const [x64, arm64] = NUMBERS[name];
  return architecture === "x64" ? x64 : arm64;
}
