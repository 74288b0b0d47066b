/**
 * The JSON output of `container`, as far as it is used, and the same in Docker's form.
 */

import { z } from "zod";
import type { ImageInspection, ListedContainer } from "../engine/engine.ts";

/** `container system status --format json`. */
export const statusSchema = z.object({ status: z.string(), appRoot: z.string(), apiServerVersion: z.string() });

/** One of `container list --all --format json`. Before 1.0 the status was a word. */
const containerSchema = z.object({
  configuration: z.object({ id: z.string(), labels: z.record(z.string(), z.string()).nullish() }),
  status: z.union([z.string(), z.object({ state: z.string() }).transform(({ state }) => state)]),
});

export const containersSchema = z.array(containerSchema);

/** `container image inspect`: one entry per name, with a variant per kind of machine. */
const imagesSchema = z.array(
  z.object({
    id: z.string().optional(),
    index: z.object({ digest: z.string() }).optional(),
    variants: z.array(
      z.object({
        platform: z.object({ os: z.string(), architecture: z.string() }),
        config: z.object({ config: z.object({ Env: z.array(z.string()).nullish() }).nullish() }),
      }),
    ),
  }),
);

/**
 * Docker's names for a container's states. One that is starting or stopping is not dead, and neither is one whose state
 * is unknown.
 */
const STATES: Readonly<Record<string, string>> = {
  running: "running",
  bootstrapped: "running",
  stopping: "running",
  unknown: "restarting",
};

/** `isNew`: it was made and not started yet. `container` calls this stopped, too. */
export function listed(
  { configuration: { id, labels }, status }: z.infer<typeof containerSchema>,
  isNew: (id: string) => boolean,
): ListedContainer {
  return { Id: id, State: STATES[status] ?? (isNew(id) ? "created" : "exited"), Labels: labels ?? {} };
}

/** `null` when it has no variant for this architecture. */
export function inspectedImage(answer: unknown, architecture: string): ImageInspection | null {
  const [image] = imagesSchema.parse(answer);
  const fits = ({ platform }: { platform: { os: string; architecture: string } }) =>
    platform.os === "linux" && platform.architecture === architecture;
  const variant = image?.variants.find(fits);
  if (image === undefined || variant === undefined) return null;
  const Config = { Env: variant.config.config?.Env ?? [] };
  return { Id: image.id ?? image.index?.digest ?? "", Os: "linux", Architecture: architecture, Config };
}
