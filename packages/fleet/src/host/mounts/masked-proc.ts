/**
 * What of `/proc` tells about the host, its kernel and its other users: covered in every sandbox, whatever makes it. What is not
 * there is not covered.
 */
export const PROC_MASKED: readonly string[] = [
  "acpi",
  "asound",
  "cmdline",
  "config.gz",
  "driver",
  "fs",
  "interrupts",
  "kallsyms",
  "kcore",
  "key-users",
  "keys",
  "kmsg",
  "latency_stats",
  "modules",
  "sched_debug",
  "scsi",
  "timer_list",
  "timer_stats",
];
