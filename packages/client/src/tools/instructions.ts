/** What a model should know of its sandbox before the first call. */

export const SANDBOX_INSTRUCTIONS =
  "You have a Linux sandbox of your own for this conversation. Work in /mnt/user-data/workspace, put finished files for the user into " +
  "/mnt/user-data/outputs, find the user's files in /mnt/user-data/uploads. Files there are kept; processes, /tmp and installed " +
  "packages may be lost when the sandbox is replaced, which an answer then says.";
