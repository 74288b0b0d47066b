/**
 * The trial of a shared volume, at start and in `doctor`: two places that mount the same volume, on two nodes where there
 * are two, try what workspaces rely on. The backend supplies the places: a gateway's own mount, and a pod.
 */

import { sleep } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";

/** One mount of the volume. Paths are relative to its root. A rejection is a failure of the call itself. */
export interface VolumePlace {
  /** For a person: `gateway`, `pod sandlot-trial-1 on node-2`. */
  readonly name: string;
  /** The account that its files belong to. */
  readonly uid: number;
  makeDirectory(path: string): Promise<void>;
  /** Creates a file; an existing one is refused. */
  write(path: string, content: string): Promise<void>;
  /** `null` when there is no such file. */
  read(path: string): Promise<string | null>;
  /** `null` when there is nothing. Follows no link. */
  stat(path: string): Promise<{ readonly inode: string; readonly uid: number } | null>;
  /** rename(2): `refused` when the target is a directory with entries. */
  rename(from: string, to: string): Promise<"done" | "refused">;
  removeTree(path: string): Promise<void>;
}

export interface TrialStep {
  readonly step: "rename" | "visibility" | "full-directory" | "inodes" | "uid";
  readonly passed: boolean;
  /** One sentence for a person: what was seen, and what would mend it. */
  readonly because: string;
  /** What a failure switches off. */
  readonly without: "late-binding" | "claim";
}

/** How long a change may take to show at the other place: a client's cache of a directory lasts up to a minute. */
const SEEN_TIMEOUT_MS = 3_000;
const SEEN_POLL_MS = 50;

/**
 * Tries the volume from two places, each change made by one and looked at by the other. Leaves nothing on the volume. A
 * call that fails makes its step fail, with the reason; later steps are tried all the same.
 */
export async function tryVolume(one: VolumePlace, two: VolumePlace, world: World): Promise<readonly TrialStep[]> {
  const folder = `trial-${world.randomHex(8)}`;
  const at = (path: string) => `${folder}/${path}`;
  const steps: TrialStep[] = [];
  const attempt = async (
    step: TrialStep["step"],
    without: TrialStep["without"],
    work: () => Promise<{ readonly passed: boolean; readonly because: string }>,
  ) => {
    const failed = (error: unknown) => ({ passed: false, because: `${step} failed: ${messageOf(error)}.` });
    steps.push({ step, without, ...(await work().catch(failed)) });
  };
  try {
    await attempt("uid", "claim", async () => {
      await one.makeDirectory(folder);
      await one.makeDirectory(at("of-one"));
      // The other place can write there, and its files have the same owner.
      await two.write(at("of-one/file"), "two");
      const owners = [(await one.stat(at("of-one")))?.uid, (await one.stat(at("of-one/file")))?.uid];
      const passed = owners[0] === owners[1] && one.uid === two.uid;
      return passed
        ? { passed, because: `Both places write as uid ${one.uid}.` }
        : {
            passed,
            because: `${one.name} (uid ${one.uid}) writes as uid ${owners[0]} and ${two.name} (uid ${two.uid}) as ${owners[1]}: give both the same runAsUser, and switch off id mapping of the volume.`,
          };
    });
    await attempt("rename", "claim", async () => {
      await one.makeDirectory(at("home"));
      await one.makeDirectory(at("home/w.1"));
      await one.write(at("home/w.1/note"), "mine");
      await two.makeDirectory(at("slot"));
      const moved = await one.rename(at("home/w.1"), at("slot/user-data"));
      const passed = moved === "done" && (await one.read(at("slot/user-data/note"))) === "mine";
      return { passed, because: passed ? "A directory moves with one rename." : "A rename did not move a directory." };
    });
    await attempt("visibility", "late-binding", async () => {
      const began = world.monotonicMs();
      while ((await two.read(at("slot/user-data/note"))) !== "mine") {
        if (world.monotonicMs() - began > SEEN_TIMEOUT_MS)
          return {
            passed: false,
            because: `${two.name} did not see a rename of ${one.name} within ${SEEN_TIMEOUT_MS} ms: mount the volume with lookupcache=positive and actimeo=1, or do without late binding.`,
          };
        await sleep(world, SEEN_POLL_MS);
      }
      const tookMs = Math.round(world.monotonicMs() - began);
      return { passed: true, because: `${two.name} saw a rename of ${one.name} after ${tookMs} ms.` };
    });
    await attempt("full-directory", "claim", async () => {
      await two.makeDirectory(at("second"));
      await two.write(at("second/note"), "other");
      const refused = (await two.rename(at("second"), at("slot/user-data"))) === "refused";
      const kept = await one.read(at("slot/user-data/note"));
      const passed = refused && kept === "mine";
      const because = passed
        ? "The server refuses a rename onto a directory with entries."
        : "A rename replaced a directory with entries: workspaces would be lost on this volume.";
      return { passed, because };
    });
    await attempt("inodes", "claim", async () => {
      await one.makeDirectory(at("stay"));
      await one.write(at("stay/note"), "stay");
      const before = await one.stat(at("stay"));
      const seen = await two.stat(at("stay"));
      await one.rename(at("stay"), at("moved"));
      const after = [await one.stat(at("moved")), await two.stat(at("moved"))];
      const passed = before !== null && [seen, ...after].every((stat) => stat?.inode === before.inode);
      const because = passed
        ? "A directory keeps its inode, and both places see the same."
        : "A directory's inode differs between the places, or changes with a rename.";
      return { passed, because };
    });
  } finally {
    await one.removeTree(folder);
  }
  return steps;
}

export type VolumeVerdict =
  | { readonly usable: true; readonly lateBinding: boolean; readonly reasons: readonly string[] }
  | { readonly usable: false; readonly reasons: readonly string[] };

/** What the mode `claim` can do on a volume with these findings. */
export function verdictOf(steps: readonly TrialStep[]): VolumeVerdict {
  const failed = steps.filter(({ passed }) => !passed);
  const reasons = failed.map(({ because }) => because);
  if (failed.some(({ without }) => without === "claim")) return { usable: false, reasons };
  return { usable: true, lateBinding: failed.length === 0, reasons };
}

/** Runs a command at the other place, such as a pod, as the account of sandboxes. */
export type PlaceShell = (
  command: string,
) => Promise<{ readonly exitCode: number; readonly stdout: string; readonly stderr: string }>;

/** A place that is reached by a POSIX shell. Arguments are fixed names of the trial, so they need no quoting. */
export function shellPlace(name: string, uid: number, root: string, run: PlaceShell): VolumePlace {
  const at = (path: string) => `'${root}/${path}'`;
  const must = async (command: string): Promise<string> => {
    const { exitCode, stdout, stderr } = await run(command);
    if (exitCode !== 0) throw new Error(stderr.trim() || `${command} ended with ${exitCode}`);
    return stdout;
  };
  return {
    ...{ name, uid },
    makeDirectory: async (path) => void (await must(`mkdir ${at(path)}`)),
    write: async (path, content) => void (await must(`set -C; printf %s '${content}' > ${at(path)}`)),
    async read(path) {
      const { exitCode, stdout } = await run(`cat ${at(path)}`);
      return exitCode === 0 ? stdout : null;
    },
    async stat(path) {
      const { exitCode, stdout } = await run(`stat -c '%i %u' ${at(path)}`);
      if (exitCode !== 0) return null;
      const [inode = "", owner = ""] = stdout.trim().split(" ");
      return { inode, uid: Number(owner) };
    },
    async rename(from, to) {
      // `-T`: the target's name is the target, as with rename(2), and not a directory to move into.
      const { exitCode, stderr } = await run(`LC_ALL=C mv -T ${at(from)} ${at(to)}`);
      if (exitCode === 0) return "done";
      if (/not empty|exists|directory/i.test(stderr)) return "refused";
      throw new Error(stderr.trim());
    },
    removeTree: async (path) => void (await must(`rm -rf ${at(path)}`)),
  };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
