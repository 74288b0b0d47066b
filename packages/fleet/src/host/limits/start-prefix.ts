/**
 * The command line that enters control groups and becomes what follows it, with the same pid.
 * The shell writes itself into each group, so there is no moment at which the engine runs outside.
 */

/** Commands get 1000 from the daemon. Between the two the kernel always finds a command to kill before the daemon. */
const DAEMON_OOM_SCORE_ADJUSTMENT = 200;
export const COMMAND_OOM_SCORE_ADJUSTMENT = 1_000;
/** The exit code of a start that could not enter. Nothing was started then. */
const COULD_NOT_ENTER = 97;

const SCRIPT = [
  `echo ${DAEMON_OOM_SCORE_ADJUSTMENT} >/proc/self/oom_score_adj`,
  `while [ "$1" != -- ]; do echo 0 >"$1" || exit ${COULD_NOT_ENTER}; shift; done`,
  "shift",
  'exec "$@"',
].join("; ");

/** `entries` are the files by which the groups are entered. */
export function startPrefix(entries: readonly string[]): readonly string[] {
  return ["/bin/sh", "-c", SCRIPT, "sandlot-start", ...entries, "--"];
}
