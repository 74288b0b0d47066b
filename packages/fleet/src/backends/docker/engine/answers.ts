/**
 * The engine's responses, as far as they are used. Other fields may be present or absent.
 */

import { z } from "zod";

export const versionSchema = z.object({
  ApiVersion: z.string(),
  MinAPIVersion: z.string().optional(),
  Components: z.array(z.object({ Name: z.string() })).nullish(),
});

export const infoSchema = z.object({
  ID: z.string(),
  CgroupVersion: z.string().optional(),
  SecurityOptions: z.array(z.string()).nullish(),
  Runtimes: z.record(z.string(), z.unknown()).nullish(),
  DefaultRuntime: z.string().optional(),
  Name: z.string().optional(),
  DockerRootDir: z.string().optional(),
  OperatingSystem: z.string().optional(),
});

const stateSchema = z.object({
  Status: z.string(),
  Pid: z.number().optional(),
  ExitCode: z.number().optional(),
  OOMKilled: z.boolean().optional(),
  Error: z.string().optional(),
});

const portsSchema = z.record(
  z.string(),
  z.array(z.object({ HostIp: z.string().optional(), HostPort: z.string() })).nullish(),
);

export const inspectSchema = z.object({
  Id: z.string(),
  State: stateSchema,
  Config: z.object({ Labels: z.record(z.string(), z.string()).nullish() }),
  NetworkSettings: z.object({ Ports: portsSchema.nullish() }).nullish(),
});

export const networkSchema = z.object({
  Driver: z.string().optional(),
  Options: z.record(z.string(), z.string()).nullish(),
});

export const listSchema = z.array(
  z.object({
    Id: z.string(),
    State: z.string(),
    Labels: z.record(z.string(), z.string()).nullish(),
  }),
);

export const createSchema = z.object({ Id: z.string() });

export const imageSchema = z.object({
  Id: z.string(),
  Os: z.string().optional(),
  Architecture: z.string().optional(),
  Config: z.object({ Env: z.array(z.string()).nullish() }).nullish(),
});

export const eventSchema = z.object({
  Action: z.string(),
  time: z.number().optional(),
  timeNano: z.number().optional(),
  Actor: z.object({ ID: z.string(), Attributes: z.record(z.string(), z.string()).nullish() }),
});
