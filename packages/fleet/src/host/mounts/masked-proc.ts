/**
 * Files in `/proc` that reveal the host, its kernel and its other users: covered in every sandbox of every backend.
 * Missing ones are skipped.
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
