/**
 * Stands in for the daemon inside a limited group: starts `count` processes that each take `megabytes`, gives them the
 * score that the daemon gives to commands (unless disabled), and says how each ended: `completed` got all its memory.
 * Needs perl.
 *
 *   node daemon-standin.mjs <count> <megabytes> <score>
 */
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";

const [count, megabytes, score] = process.argv.slice(2).map(Number);
const eater = `$| = 1; my $x = "a" x (${megabytes} << 20); print "full\\n"; sleep 300;`;
const eaters = Array.from({ length: count }, () => start());
// However slow the machine is: no process frees memory before each one has its share, or is dead.
await Promise.all(eaters.map(({ settled }) => settled));
for (const { child } of eaters) child.kill("SIGTERM");
const ends = await Promise.all(eaters.map(({ ended }) => ended));
const killed = ends.filter((end) => end === "SIGKILL").length;
console.log(JSON.stringify({ killed, completed: ends.filter((end) => end === "SIGTERM").length, ends: ends.length }));

function start() {
  const child = spawn("perl", ["-e", eater], { stdio: ["ignore", "pipe", "ignore"] });
  writeFileSync(`/proc/${child.pid}/oom_score_adj`, String(score));
  const ended = new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => resolve(signal ?? code));
  });
  const full = new Promise((resolve) => child.stdout.once("data", resolve));
  return { child, ended, settled: Promise.race([full, ended]) };
}
