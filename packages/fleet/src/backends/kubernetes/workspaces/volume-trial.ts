/**
 * The trial of a shared volume, at start and in `doctor`: two places that mount the same volume, on two nodes where there
 * are two, try what workspaces rely on. The backend supplies the places: a gateway's own mount, and a pod.
 */

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
