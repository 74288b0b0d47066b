/**
 * Runs `work` and returns the errors thrown outside of any promise meanwhile, which the test runner would take for its
 * own.
 */
export async function catchingUncaught(work: () => Promise<void>): Promise<unknown[]> {
  const others = process.listeners("uncaughtException");
  const caught: unknown[] = [];
  process.removeAllListeners("uncaughtException");
  process.on("uncaughtException", (error) => caught.push(error));
  try {
    await work();
    await new Promise((resolve) => setImmediate(resolve));
  } finally {
    process.removeAllListeners("uncaughtException");
    for (const listener of others) process.on("uncaughtException", listener);
  }
  return caught;
}
