/** The directory that a restore writes new content in, before it is moved to its place. */

import { constants, mkdirSync, readdirSync } from "node:fs";
import { errnoOf } from "../../../world/disk-trouble.ts";
import { draftName, isDraft } from "../../../world/drafts.ts";
import type { Context } from "../context.ts";
import { at, calls, closing, ofDescriptor } from "../store/calls.ts";
import { OPEN_INSIDE } from "./builder.ts";

/** Beside the workspace, unless its disk quota allows only inside. */
export class Drafts {
  readonly path: string;
  readonly descriptor: number;

  constructor(context: Context, root: number, beside: string, trashEntry: () => string) {
    // Of a restore that was killed: beside the workspace, housekeeping finds them.
    for (const name of readdirSync(`${ofDescriptor(root)}/.`))
      if (isDraft(name)) calls.rename(at(root, name), trashEntry());
    mkdirSync(beside, 0o700);
    const isUsable = canMoveIn(root, beside);
    const inside = draftName(context.world);
    if (!isUsable) mkdirSync(at(root, inside), 0o700);
    this.path = isUsable ? beside : `${ofDescriptor(root)}/${inside}`;
    this.descriptor = calls.open(this.path, OPEN_INSIDE);
  }

  close(): void {
    calls.close(this.descriptor);
  }
}

/** A directory with a project quota takes no file of another project. */
function canMoveIn(root: number, beside: string): boolean {
  const probe = `${beside}/probe`;
  closing(calls.open(probe, constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY, 0o600), () => {});
  try {
    calls.rename(probe, at(root, ".sandlot-draft-probe"));
  } catch (error) {
    if (errnoOf(error) !== "EXDEV") throw error;
    calls.unlink(probe);
    return false;
  }
  calls.unlink(at(root, ".sandlot-draft-probe"));
  return true;
}
