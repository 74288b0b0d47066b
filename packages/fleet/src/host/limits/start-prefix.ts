/**
 * A command line that enters control groups and then executes the rest, with the same pid. The shell writes itself into
 * each group, so the engine never runs outside.
 */

/** The daemon gives commands 1000. The gap makes the kernel always kill a command before the daemon. */
const DAEMON_OOM_SCORE_ADJUSTMENT = 200;
export const COMMAND_OOM_SCORE_ADJUSTMENT = 1_000;
/** The exit code of a start that could not enter its groups. Nothing was started then. */
const COULD_NOT_ENTER = 97;

const SCRIPT = [
  `echo ${DAEMON_OOM_SCORE_ADJUSTMENT} >/proc/self/oom_score_adj`,
  `while [ "$1" != -- ]; do echo 0 >"$1" || exit ${COULD_NOT_ENTER}; shift; done`,
  "shift",
  'exec "$@"',
].join("; ");

/** `entries` are the files by which a process enters the groups. */
export function startPrefix(entries: readonly string[]): readonly string[] {
  return ["/bin/sh", "-c", SCRIPT, "sandlot-start", ...entries, "--"];
}
