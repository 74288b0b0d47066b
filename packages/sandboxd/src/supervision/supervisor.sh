#!/bin/sh
# The first process of a sandbox: it starts sandboxd, reaps orphaned processes, and starts sandboxd again when a signal
# has killed it.
#
#   sh supervisor.sh <node under another name> <its flags> <sandboxd.cjs>
#
# As pid 1 of its pid namespace it is out of reach of `kill -9 -1`, and a shell is a hundredth of a Node. Descriptors:
#   3  the configuration, one line, read once and then kept in this shell's memory
#   4  where the first daemon announces that it listens (optional)
#   5  a listening socket (optional): held here, so that a connection during a restart waits instead of failing
#   6  created here, a pipe that this shell reads only after a death: the state for the next daemon
#   7  created here for the daemon: its own tags, `/proc/self/coredump_filter`
#   8  the same: its own out-of-memory score, `/proc/self/oom_score_adj`
# The lines in 6 are "up" (an authorized request has arrived) and the result of a rebind: a generation and the hash of a
# token. None of them is secret.
#
# Commands run as the same account. If this shell and the daemon run through an executable but unreadable loader, the
# kernel closes their memory, environment and descriptors to commands, and their own tags and score to themselves. So the
# daemon begins as the system's shell, which opens both and becomes the daemon. No command runs at that moment: none has
# been started yet, or all have just been killed.
#
# A daemon that ends by itself ends the sandbox. After any other death all other processes of the sandbox are killed too:
# their output has lost its reader, and their exec is unknown.

if [ "$$" != 1 ]; then
  echo "sandboxd: the supervisor must be the first process of a pid namespace" >&2
  exit 2
fi
# These signals must not end the shell. Node resets them for itself, and for commands.
trap '' HUP INT QUIT TERM USR1 USR2 ALRM PIPE
# A cluster asks with TERM, and waits for its grace period before it kills. Everything else ends with this shell.
[ -z "${SANDBOXD_ENDS_ON_TERM:-}" ] || trap 'exit 143' TERM

IFS= read -r config <&3 || [ -n "$config" ] || exit 2
exec 3<&-

# An empty here-document is a pipe in most shells. Opened again, it has both ends and never reaches its end.
exec 6<<END
END
if [ ! -p /proc/self/fd/6 ]; then
  fifo="${TMPDIR:-/tmp}/.sandboxd-supervisor"
  rm -f "$fifo" && mkfifo -m 600 "$fifo" && exec 6<>"$fifo" && rm -f "$fifo" || exit 2
else
  exec 6<>/proc/self/fd/6
fi

open_tags='
if [ -w /proc/self/coredump_filter ]; then
  exec 7<>/proc/self/coredump_filter
  set -- "$@" --tag-fd 7
fi
if [ -w /proc/self/oom_score_adj ]; then
  exec 8<>/proc/self/oom_score_adj
  set -- "$@" --score-fd 8
fi
exec "$@"'
rebound=
restarted=
deaths=0
while :; do
  /bin/sh -c "$open_tags" sh "$@" --config-fd 3 --supervisor-fd 6 $restarted 3<<END 7<&- 8<&- 9<&- &
$config
$rebound
END
  daemon=$!
  exec 4>&-
  wait "$daemon"
  status=$?
  # Up to 128 it ended by itself; above, a signal ended it.
  [ "$status" -gt 128 ] || exit "$status"
  kill -9 -1 2>/dev/null

  echo . >&6
  while IFS= read -r line <&6; do
    case $line in
    .) break ;;
    up) deaths=0 ;;
    *) rebound=$line ;;
    esac
  done
  # A daemon that dies repeatedly before its first use will not recover.
  deaths=$((deaths + 1))
  [ "$deaths" -le 5 ] || exit 1
  restarted=--restarted
done
