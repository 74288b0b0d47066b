/** Why there is no answer to a question. Both say nothing about whether what was asked has happened. */

export interface LossFacts extends ErrorOptions {
  readonly wasKept?: boolean;
  readonly hadBegun?: boolean;
}

/** The connection ended, or there never was one. */
export class ConnectionLost extends Error {
  override readonly name = "ConnectionLost";
  /** Others had been answered on that connection. So the peer may have closed it before it saw this question. */
  readonly wasKept: boolean;
  /** Some of an answer had come. */
  readonly hadBegun: boolean;

  constructor(message: string, { wasKept = false, hadBegun = false, ...options }: LossFacts = {}) {
    super(message, options);
    this.wasKept = wasKept;
    this.hadBegun = hadBegun;
  }

  /** The peer has probably closed the connection for being idle, before it saw this question: on a new one it may be answered. */
  get metClosedLine(): boolean {
    return this.wasKept && !this.hadBegun;
  }
}

/** Something came that is no answer of the plain kind: HTTP/1.1, whole, with its length. */
export class StrangeAnswer extends Error {
  override readonly name = "StrangeAnswer";
  /** It is of the plain kind, and only longer than the question allows. */
  readonly isTooLong: boolean;

  constructor(message: string, { isTooLong = false } = {}) {
    super(message);
    this.isTooLong = isTooLong;
  }
}
