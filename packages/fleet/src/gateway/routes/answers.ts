/** Responses that every route may have beside its own, defined once for the OpenAPI document. */

import { errorBodySchema } from "@sandlot/contract";

/** Errors of a route that acts for a user. */
export const THREAD_ERRORS = {
  401: errorBodySchema.describe("No key, or none that is valid."),
  403: errorBodySchema.describe("The key does not cover this, or a web page asked."),
  404: errorBodySchema.describe("There is no such thing for this user."),
  409: errorBodySchema.describe("Not as things are now, or not at this gateway: the code says which."),
  410: errorBodySchema.describe("The sandbox was lost; ask again."),
  413: errorBodySchema.describe("Too large."),
  415: errorBodySchema.describe("Not in this type."),
  422: errorBodySchema.describe("The request is not valid; the details say what is wrong."),
  429: errorBodySchema.describe("Too many, or no room. `Retry-After` says when to ask again."),
  431: errorBodySchema.describe("The headers are too large."),
  500: errorBodySchema.describe("Something that should not happen did."),
  501: errorBodySchema.describe("This fleet's backend cannot do that."),
  503: errorBodySchema.describe("Not now. `Retry-After` says when to ask again."),
  504: errorBodySchema.describe("It took too long."),
  507: errorBodySchema.describe("No room on the disk."),
} as const;

export const OPERATOR_ERRORS = {
  401: THREAD_ERRORS[401],
  403: THREAD_ERRORS[403],
  404: THREAD_ERRORS[404],
  409: THREAD_ERRORS[409],
  422: THREAD_ERRORS[422],
  429: THREAD_ERRORS[429],
  431: THREAD_ERRORS[431],
  500: THREAD_ERRORS[500],
  503: THREAD_ERRORS[503],
} as const;
