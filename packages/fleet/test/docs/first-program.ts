import { openFleet } from "sandlot";

await using fleet = await openFleet({ backend: "memory" });
await using lease = await fleet.acquire({ thread: "t1", purpose: "first program" });

await lease.sandbox.files.write("/mnt/user-data/workspace/hello.txt", "Hello from a sandbox\n");
const { stdout, exitCode } = await lease.sandbox.exec("cat hello.txt && pwd");

console.log(`${stdout}exit code ${exitCode}, workspace was ${lease.recovery.kind}`);
