/** Certificates: read before anything listens, so that a wrong path or file gets a precise error. */

import { readFile } from "node:fs/promises";
import { createSecureContext } from "node:tls";
import { SandlotError } from "@sandlot/contract";
import type { GatewaySettings } from "../config/gateway-settings.ts";

export type TlsFiles = NonNullable<GatewaySettings["tls"]>;

export interface Certificate {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/** `path` is where the configuration names the files. */
export async function readCertificate(files: TlsFiles, path: string): Promise<Certificate> {
  const read = (key: keyof TlsFiles) =>
    readFile(files[key]).catch((error: NodeJS.ErrnoException) => {
      throw unusable(`${path}.${key}`, `${files[key]} cannot be read (${error.code ?? error.message})`, error);
    });
  const certificate = { cert: await read("certFile"), key: await read("keyFile") };
  try {
    createSecureContext(certificate);
  } catch (error) {
    const problem = `${files.certFile} and ${files.keyFile} are no certificate with its private key, as PEM`;
    throw unusable(path, problem, error);
  }
  return certificate;
}

function unusable(path: string, problem: string, cause: unknown): SandlotError {
  return new SandlotError("config_invalid", { path, problem }, { cause });
}
