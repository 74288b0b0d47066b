/** The registry's facts about every code. */

export interface ErrorSpec<Details> {
  /** HTTP status of a response with this error. */
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
  /** Whether the same call can succeed later without any change by a person. */
  readonly retryable: boolean;
  /** The message for people. */
  readonly message: (details: Details) => string;
  /** What the reader can do about it. */
  readonly remedy: string;
}

/** One complete entry for every code. */
export type ErrorSpecs<Details> = { readonly [Code in keyof Details]: ErrorSpec<Details[Code]> };
