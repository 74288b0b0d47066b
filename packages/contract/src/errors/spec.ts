/** What the registry has to say about every code. */

export interface ErrorSpec<Details> {
  /** HTTP status of an answer that carries this error. */
  readonly status:
    | 400
    | 401
    | 403
    | 404
    | 409
    | 410
    | 412
    | 413
    | 415
    | 416
    | 422
    | 429
    | 500
    | 501
    | 502
    | 503
    | 504
    | 507;
  /** Whether the same call can succeed later without anybody changing anything. */
  readonly retryable: boolean;
  /** The sentence a person reads. */
  readonly message: (details: Details) => string;
  /** What that person can do about it. */
  readonly remedy: string;
}

/** An entry for every code, and nothing missing from any. */
export type ErrorSpecs<Details> = { readonly [Code in keyof Details]: ErrorSpec<Details[Code]> };
