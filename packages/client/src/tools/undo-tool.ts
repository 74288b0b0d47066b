/** `undo_last_turn`: takes back what the last turns did to the files. Off unless it is named in `tools`. */

import { z } from "zod";
import { descriptionInput } from "./paths.ts";
import { defineTool, ToolRefusal } from "./tool.ts";

export const undoLastTurnTool = defineTool({
  name: "undo_last_turn",
  title: "Undo the last turn",
  description:
    "Takes the files below /mnt/user-data back to their newest earlier state that differs from the present. A second call goes further back. " +
    "Running commands, processes and temporary files end. Use it only when the user asks for it.",
  input: z.object({ description: descriptionInput }),
  readOnly: false,
  ownLimit: false,
  async run(_input, { run, signal }) {
    const undone = await run.undo(signal);
    if (undone === null)
      throw new ToolRefusal("no_checkpoints", "These sandboxes have no checkpoints, so nothing can be undone.");
    const { checkpoint, safety } = undone;
    return {
      text: `The files are as checkpoint ${checkpoint.restoredFrom ?? checkpoint.id} has them. What was there before is checkpoint ${safety.id}. Look at the files before going on.`,
      facts: { checkpoint: checkpoint.id, restoredFrom: checkpoint.restoredFrom, safety: safety.id },
    };
  },
});
