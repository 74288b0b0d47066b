/** The commands of a service: `serve`, `mcp`, `keys` to manage its callers, and `login` to become one. */

import { KEY_SCOPES, type KeyScope } from "@sandlot/contract";
import { type Command, Option } from "commander";
import { packageVersion } from "../../package-files.ts";
import type { DashboardCommandOptions } from "../dashboard-command.ts";
import type { EgressProxyCommandOptions } from "../egress-proxy-command.ts";
import type { McpCommandOptions } from "../mcp-command.ts";
import type { ServeCommandOptions } from "../serve-command.ts";
import type { TargetOptions } from "../target.ts";
import { EXIT_CODES } from "../terminal.ts";
import { type CommandContext, duration, examples, portNumber, targeted, wholeNumber } from "./command-context.ts";

/** The defaults of the backend `kubernetes` (`egress.port`, `egress.canaryPort`). */
const EGRESS_PROXY_PORTS = { egress: 3_129, canary: 3_130 } as const;
const LOG_LEVELS = ["silent", "error", "warn", "info", "debug"] as const;

export function addServiceCommands(program: Command, around: CommandContext): void {
  const { terminal, signal, json } = around;
  program
    .command("serve")
    .description("serve the fleet over HTTP until interrupted; sandboxes stay for the next one")
    .option("--host <address>", "where to listen; loopback unless configured")
    .option("-p, --port <number>", "0 takes any free port", wholeNumber)
    .option("--behind-proxy", "a proxy in front terminates TLS; needed beyond loopback without TLS of our own")
    .option("--destroy", "at the end stop the sandboxes that no other process holds")
    .addOption(new Option("--log-level <level>", "of the log on standard error").choices(LOG_LEVELS).default("warn"))
    .option("-c, --config <file>", "the configuration file")
    .addHelpText(
      "after",
      examples("sandlot serve", "sandlot serve --port 0 --json", "sandlot serve --host 0.0.0.0 --behind-proxy"),
    )
    .action(async (options: Omit<ServeCommandOptions, "json">) => {
      const { serveCommand } = await import("../serve-command.ts");
      await serveCommand(terminal, { ...options, json }, signal);
    });
  program
    .command("egress-proxy")
    .description("serve the egress of a cluster's sandboxes, with the fleet's configuration and keys")
    .requiredOption("--keys <file>", "the fleet's keys, one or two lines")
    .option("--host <address>", "where to listen", "::")
    .option(
      "-p, --port <number>",
      "for sandboxes and gateways; 0 takes any free port",
      portNumber,
      EGRESS_PROXY_PORTS.egress,
    )
    .option("--canary-port <number>", "a port that no sandbox may reach", portNumber, EGRESS_PROXY_PORTS.canary)
    .option("--drain <duration>", "how long open connections may last at the end", duration, 25_000)
    .option("-c, --config <file>", "the configuration file")
    .addHelpText("after", examples("sandlot egress-proxy -c sandlot.yaml --keys /etc/sandlot-keys/keys"))
    .action(
      async ({
        drain: drainMs,
        ...options
      }: Omit<EgressProxyCommandOptions, "json" | "drainMs"> & { drain: number }) => {
        const { egressProxyCommand } = await import("../egress-proxy-command.ts");
        await egressProxyCommand(terminal, { ...options, drainMs, json }, signal);
      },
    );
  program
    .command("mcp")
    .description("serve a sandbox's tools to a coding agent over standard input and output")
    .option("-t, --thread <id>", "the conversation; default one of its own for each connection")
    .option("-u, --user <id>", "whose conversation")
    .option("--tools <names>", "only these, separated by commas", (text: string) => text.split(","))
    .option(
      "--mount <dir[:ro]>",
      "a directory of this machine, below /mnt; may be given again",
      (text: string, all: string[]) => [...all, text],
      [],
    )
    .option("--workspace <dir>", "the directory of this machine to work in, at /mnt/project")
    .option("--url <address>", "the gateway to ask; default $SANDLOT_URL, without one a fleet of its own")
    .option("-c, --config <file>", "the configuration file")
    .addHelpText(
      "after",
      examples(
        "sandlot mcp -t t1",
        "sandlot mcp --workspace . --mount ../docs:ro",
        "claude mcp add sandlot -- sandlot mcp",
      ),
    )
    .action(async (options: McpCommandOptions) => {
      const { mcpCommand } = await import("../mcp-command.ts");
      await mcpCommand(terminal, packageVersion(), options, signal);
    });
  addKeyCommands(program.command("keys").description("who may ask a gateway"), around);
  program
    .command("login")
    .description("remember a gateway and a key for later commands; the key is typed, piped in, or $SANDLOT_API_KEY")
    .argument("<url>", "the gateway's address")
    .addHelpText("after", examples("sandlot login https://sandboxes.example.org", "sandlot login URL < key.txt"))
    .action(async (url: string) => {
      const { loginCommand } = await import("../login-command.ts");
      await loginCommand(terminal, url, { json });
    });
  targeted(program.command("dashboard"))
    .description("print a link that opens the dashboard of a gateway once, and open it where there is a desktop")
    .option("--no-open", "only print it")
    .addHelpText("after", examples("sandlot dashboard", "sandlot dashboard --url https://sandboxes.example.org"))
    .action(async (options: Omit<DashboardCommandOptions, "json">) => {
      const { dashboardCommand } = await import("../dashboard-command.ts");
      await dashboardCommand(terminal, { ...options, json });
    });
  program
    .command("logout")
    .description("forget that gateway and its key")
    .addHelpText("after", examples("sandlot logout"))
    .action(async () => {
      const { logoutCommand } = await import("../login-command.ts");
      await logoutCommand(terminal, { json });
    });
}

function addKeyCommands(keys: Command, { terminal, json, ending }: CommandContext): void {
  targeted(keys.command("create"))
    .description("make a key; it is shown this once")
    .addOption(
      new Option("--scope <scope>", "user (one user's threads), platform (acts for users), operator (everything)")
        .choices(KEY_SCOPES)
        .makeOptionMandatory(),
    )
    .option("--user <id>", "whose threads a key of scope user reaches")
    .option("--label <text>", "what lists call it")
    .option("--blueprint <name>", "a blueprint that it may name; may be repeated; '*' is every one", collect)
    .option("--expires <duration>", "how long it works, such as 12h or 30d; without it until it is revoked", duration)
    .addHelpText(
      "after",
      examples(
        "sandlot keys create --scope user --user alice --json",
        "sandlot keys create --scope platform --label 'our web site'",
      ),
    )
    .action(
      async (options: {
        scope: KeyScope;
        user?: string;
        label?: string;
        blueprint?: readonly string[];
        expires?: number;
        config?: string;
      }) => {
        const { createKey } = await import("../key-commands.ts");
        await createKey(terminal, { ...options, json });
      },
    );
  targeted(keys.command("list"))
    .description("list keys, never their values")
    .addHelpText("after", examples("sandlot keys list"))
    .action(async (options: TargetOptions) => {
      const { listKeys } = await import("../key-commands.ts");
      await listKeys(terminal, { ...options, json });
    });
  targeted(keys.command("import"))
    .description("move the keys in this home's files into the store that several hosts share")
    .addHelpText("after", examples("sandlot keys import -c sandlot.yaml"))
    .action(async (options: TargetOptions) => {
      const { importKeys } = await import("../key-commands.ts");
      await importKeys(terminal, { ...options, json });
    });
  targeted(keys.command("revoke"))
    .description("end a key")
    .argument("<id>", "as `keys list` shows it")
    .addHelpText("after", examples("sandlot keys revoke 0368792c1285"))
    .action(async (id: string, options: TargetOptions) => {
      const { revokeKey } = await import("../key-commands.ts");
      ending.exitCode = (await revokeKey(terminal, id, { ...options, json })) ? EXIT_CODES.ok : EXIT_CODES.failed;
    });
}

function collect(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, text];
}
