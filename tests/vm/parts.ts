/** The tests in the machine, in named parts. */

export interface Part {
  readonly name: string;
  readonly about: string;
  /** The directory of temporary files, and so of the homes of the fleets under test. */
  readonly temporary: string;
  readonly files: readonly string[];
}

const LOCAL = "packages/fleet/test/backends/local";

export const PARTS: readonly Part[] = [
  {
    name: "ext4",
    about: "disk budgets that the kernel holds, on ext4",
    temporary: "/quota/ext4",
    files: ["tests/vm/quotas.vm.ts"],
  },
  {
    name: "xfs",
    about: "disk budgets that the kernel holds, on xfs",
    temporary: "/quota/xfs",
    files: ["tests/vm/quotas.vm.ts"],
  },
  {
    name: "groups",
    about: "control groups of version 2: memory, processes, processors, what is told, what is left",
    temporary: "/tmp",
    files: [
      `${LOCAL}/limits/control-groups.test.ts`,
      `${LOCAL}/limits/version-2.test.ts`,
      `${LOCAL}/limits/hits.test.ts`,
    ],
  },
  {
    name: "delegated",
    about: "control groups of version 2 for an ordinary account that was given one",
    temporary: "/tmp",
    files: ["tests/vm/delegated.vm.ts"],
  },
  {
    name: "bombs",
    about: "bombs in real sandboxes, on ext4 with quotas and control groups of version 2",
    temporary: "/quota/ext4",
    files: [`${LOCAL}/escape/bombs.test.ts`],
  },
  {
    name: "crash",
    about: "what killed fleets leave behind, with control groups of version 2",
    temporary: "/quota/ext4",
    files: [`${LOCAL}/crash.test.ts`],
  },
];
