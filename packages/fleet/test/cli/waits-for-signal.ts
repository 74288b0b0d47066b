/** Run by interruption.test.ts: waits for a signal, closes unless an argument makes it hang, and prints its steps. */

import { Interruption, interruptible } from "../../src/cli/interruption.ts";

const hangs = process.argv.includes("--hang");

process.exitCode = await interruptible(async (signal) => {
  // An open handle keeps the process alive.
  const open = setInterval(() => {}, 1_000);
  console.log("waiting");
  await new Promise((resolve) => signal.addEventListener("abort", resolve));
  console.log(
    signal.reason instanceof Interruption ? `closing after ${signal.reason.signalName}` : "closing for no reason",
  );
  if (hangs) await new Promise(() => {});
  clearInterval(open);
  console.log("closed");
  return signal.reason instanceof Interruption ? signal.reason.exitCode : 0;
});
