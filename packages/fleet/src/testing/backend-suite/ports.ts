/**
 * Listening ports, and connections to them. A backend without previews must say so; the other cases do not apply to it.
 */

import { type BackendCase, type BackendStage, withCapability } from "./stage.ts";

/** Answers each connection with its input in capitals. Every Debian has Perl; the loop ends with the sandbox. */
const SERVER =
  "use IO::Socket::INET; my $s = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $ARGV[0], Listen => 5, ReuseAddr => 1) or die;" +
  "while (my $c = $s->accept) { my $line = <$c>; print $c uc $line; close $c }";

export const portCases: readonly BackendCase[] = withCapability(
  "preview",
  (sandbox) => sandbox.ports.waitFor(1, { timeoutMs: 1 }),
  [
    {
      name: "a port is waited for and then listed",
      run: async (stage) => {
        const sandbox = await stage.sandbox();
        await sandbox.spawn(["sh", "-c", 'sleep 0.3; exec perl -e "$0" 8123', SERVER], { execId: "server" });
        await sandbox.ports.waitFor(8123, { timeoutMs: 10_000 });
        stage.expect((await sandbox.ports.list()).map(({ port }) => port)).toContain(8123);
        await sandbox.execs.kill("server");
      },
    },
    {
      name: "waiting for a port that never opens ends in time",
      run: async (stage) => {
        const sandbox = await stage.sandbox();
        await stage.rejects(sandbox.ports.waitFor(8124, { timeoutMs: 200 }), "wait_timeout");
      },
    },
    {
      name: "a connection reaches what listens inside, and counts as preview traffic",
      run: async (stage) => {
        const { ref, connect, sandbox } = await served(stage);
        stage.expect(await said(await connect(8123), "hello\n")).toBe("HELLO\n");
        const { previewTrafficAt } = await stage.backend.activity(ref, stage.signal);
        stage.expect(previewTrafficAt === null).toBe(false);
        await sandbox.execs.kill("server");
      },
    },
    {
      name: "two sandboxes can listen on the same port",
      run: async (stage) => {
        const both = [await served(stage), await served(stage)];
        const answers = await Promise.all(both.map(async ({ connect }) => said(await connect(8123), "a\n")));
        stage.expect(answers).toEqual(["A\n", "A\n"]);
        for (const { sandbox } of both) await sandbox.execs.kill("server");
      },
    },
    {
      name: "a connection to a port where nothing listens is refused",
      run: async (stage) => {
        const { connect, sandbox } = await served(stage);
        const outcome = await connect(8125).then(
          () => "it connected",
          () => "refused",
        );
        stage.expect(outcome).toBe("refused");
        await sandbox.execs.kill("server");
      },
    },
  ],
);

async function served(stage: BackendStage) {
  const made = await stage.make();
  const attachment = await stage.attach(made.target);
  const { sandbox } = attachment;
  await sandbox.spawn(["perl", "-e", SERVER, "8123"], { execId: "server" });
  await sandbox.ports.waitFor(8123, { timeoutMs: 10_000 });
  const connect = (port: number) => attachment.connect?.(port) ?? Promise.reject(new Error("there is no connect"));
  return { sandbox, ref: made.target.ref, connect };
}

async function said(connection: NodeJS.ReadWriteStream, text: string): Promise<string> {
  connection.write(text);
  const parts: Buffer[] = [];
  for await (const part of connection) parts.push(part as Buffer);
  return Buffer.concat(parts).toString();
}
