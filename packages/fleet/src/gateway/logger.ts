/** The interface of a gateway's logger. A pino logger has it. */

type Write = (facts: object, message?: string) => void;

export interface GatewayLogger {
  readonly level: string;
  readonly fatal: Write;
  readonly error: Write;
  readonly warn: Write;
  readonly info: Write;
  readonly debug: Write;
  readonly trace: Write;
}
