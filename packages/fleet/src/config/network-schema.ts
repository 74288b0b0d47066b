/** The parts of a blueprint's schema that say what is reached: its network, and the setup of its environment. */

import { z } from "zod";
import { durationOverZero, size } from "../backend/config/amounts.ts";
import { REGISTRY_TOOLS } from "../backend/network/registry-rules.ts";
import { DEFAULTS } from "./defaults.ts";

const port = z.int().min(1, "must be a port, 1 to 65535").max(65_535, "must be a port, 1 to 65535");

const secretSchema = z.strictObject({
  name: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/, "has letters, digits, hyphens and underscores only")
    .describe("What messages call it."),
  host: z.string().min(1, "must not be empty").describe("The host that gets the header."),
  header: z
    .string()
    .regex(/^[A-Za-z0-9-]+$/, "must be the name of a header")
    .describe("The header, such as Authorization."),
  value: z.string().min(1, "must not be empty").describe("Its value; `$NAME` is taken from Sandlot's own environment."),
  prefix: z.string().optional().describe("Put before the value, such as `Bearer ` with its space."),
  username: z
    .string()
    .min(1, "must not be empty")
    .optional()
    .describe("Makes the header Basic: this name, with the value as the password. For git over https."),
  via: z
    .enum(["https", "http"])
    .default(DEFAULTS.network.secretVia)
    .describe(
      "`https`: the egress ends the sandbox's TLS for this host, adds the header, and speaks verified TLS to the host. " +
        "`http`: the value travels in the clear.",
    ),
  ports: z.array(port).min(1, "must name at least one port").optional().describe("Default 443 for https, 80 for http."),
});

export const networkSchema = z
  .strictObject({
    mode: z
      .enum(["none", "allowlist", "open"])
      .default(DEFAULTS.network.mode)
      .describe("`none`: no network. `allowlist`: only what `allow` names. `open`: everything."),
    allow: z
      .array(
        z.strictObject({
          host: z
            .string()
            .min(1, "must not be empty")
            .describe("A host name; with `*.` in front, every name below it."),
          ports: z.array(port).min(1, "must name at least one port").describe("The ports that may be reached there."),
          addresses: z
            .array(z.string().min(1, "must not be empty"))
            .optional()
            .describe(
              "Addresses or networks (CIDR) that this host may resolve to although they are private. Without it only public ones are reached.",
            ),
        }),
      )
      .default([])
      .describe("What may be reached when `mode` is `allowlist`, and exceptions when it is `open`."),
    secrets: z
      .array(secretSchema)
      .default([])
      .describe("Headers that the egress adds, so that the sandbox never has their values."),
    registries: z
      .array(z.enum(REGISTRY_TOOLS))
      .default([])
      .describe(
        "Tools that may read packages from where this machine's own tools do: its configuration, else each tool's default. " +
          "Only GET and HEAD pass. `sandlot doctor` prints the hosts.",
      ),
    mirrors: z
      .array(
        z.strictObject({
          host: z.string().min(1, "must not be empty").describe("The exact name of a host that a registry is on."),
          addresses: z
            .array(z.string().min(1, "must not be empty"))
            .optional()
            .describe("Addresses or networks (CIDR) of that host, where they are private."),
        }),
      )
      .default([])
      .describe(
        "Hosts of `registries` that the egress may send this machine's credentials to, and that may have a private address.",
      ),
  })
  .prefault({})
  .describe("What sandboxes can reach.");

export const setupSchema = z
  .strictObject({
    script: z
      .string()
      .min(1, "must not be empty")
      .describe(
        "Run by `sh -e` in a directory with `files`. pip, npm, cargo and go install to /opt/env; anything else may be put there, too.",
      ),
    files: z
      .record(
        z
          .string()
          .regex(
            /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/,
            "is a file name of letters, digits, dots, hyphens and underscores",
          ),
        z.string().min(1, "must not be empty"),
      )
      .default({})
      .describe("Files of the host that the script finds, by name, such as requirements.txt. Absolute paths."),
    network: networkSchema,
    timeoutMs: durationOverZero("nothing could be built")
      .default(DEFAULTS.setup.timeoutMs)
      .describe("How long the script may run."),
    diskBytes: size.default(DEFAULTS.setup.diskBytes).describe("How large /opt/env may become."),
  })
  .describe("What is built once, in a fresh sandbox, and then mounted read-only at /opt/env in every sandbox.");
