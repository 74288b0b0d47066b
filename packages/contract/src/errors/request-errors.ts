/** Errors of requests: permission, content, size, rate. */

import type { ErrorSpecs } from "./spec.ts";

/** The facts of each code. */
export interface RequestErrorDetails {
  unauthorized: { problem: string };
  forbidden: { problem: string };
  key_not_found: { id: string };
  gateway_address_invalid: { url: string; problem: string };
  gateway_untrusted: { url: string; problem: string };
  bad_gateway_response: { url: string; problem: string };
  protocol_incompatible: { peer: "daemon" | "gateway"; theirs: string; ours: string };
  rate_limited: { scope: string; max: number; retryAfterMs: number };
  route_not_found: { method: string; path: string };
  thread_exists: { thread: string };
  thread_not_found: { thread: string };
  payload_too_large: { what: string; maxBytes: number };
  too_many_files: { what: string; max: number };
  range_not_satisfiable: { path: string; sizeBytes: number };
  unsupported_media: { mediaType: string; problem: string };
  invalid_request: { field: string; problem: string };
  malformed_request: { problem: string };
  internal: { problem: string };
}

export const REQUEST_ERRORS: ErrorSpecs<RequestErrorDetails> = {
  unauthorized: {
    status: 401,
    retryable: false,
    message: ({ problem }) => `The request was refused: ${problem}.`,
    remedy:
      "Send a key that is valid: a gateway's as `Authorization: Bearer` (`sandlot keys create` makes one), a daemon's token together with its sandbox's id and generation.",
  },
  forbidden: {
    status: 403,
    retryable: false,
    message: ({ problem }) => `Not allowed: ${problem}.`,
    remedy: "Use a key whose scope covers the request.",
  },
  key_not_found: {
    status: 404,
    retryable: false,
    message: ({ id }) => `There is no key ${id}.`,
    remedy: "Run `sandlot keys list` to see which there are.",
  },
  gateway_address_invalid: {
    status: 422,
    retryable: false,
    message: ({ url, problem }) => `${url} cannot be a gateway: ${problem}.`,
    remedy: "Give the address as `http://HOST:PORT` or `https://HOST`, and the key as it was shown, without spaces.",
  },
  gateway_untrusted: {
    status: 502,
    retryable: false,
    message: ({ url, problem }) => `The certificate of ${url} is not trusted: ${problem}.`,
    remedy:
      "Use the name that the certificate is for. For a certificate of your own, set NODE_EXTRA_CA_CERTS to the file of its authority.",
  },
  bad_gateway_response: {
    status: 502,
    retryable: false,
    message: ({ url, problem }) => `${url} sent a response that cannot be read: ${problem}.`,
    remedy: "Check that a Sandlot gateway answers at this address, and that nothing between changes its responses.",
  },
  protocol_incompatible: {
    status: 501,
    retryable: false,
    message: ({ peer, theirs, ours }) => `The ${peer} speaks protocol version ${theirs}; this side speaks ${ours}.`,
    remedy:
      "Bring both to the same major version. A sandbox whose daemon is of another one has to be stopped; its files are kept.",
  },
  rate_limited: {
    status: 429,
    retryable: true,
    message: ({ scope, max }) => `Too many requests (${scope}): at most ${max}.`,
    remedy: "Wait for `retryAfterMs`.",
  },
  route_not_found: {
    status: 404,
    retryable: false,
    message: ({ method, path }) => `There is no ${method} ${path}.`,
    remedy: "See `/docs` for every route.",
  },
  thread_exists: {
    status: 409,
    retryable: false,
    message: ({ thread }) => `Thread ${thread} already has a workspace.`,
    remedy: "Choose a thread that does not exist yet, or delete it first.",
  },
  thread_not_found: {
    status: 404,
    retryable: false,
    message: ({ thread }) => `There is no thread ${thread}: it has neither a sandbox nor files.`,
    remedy: "Check the name (`sandlot ps --threads` lists them), and whose thread it is.",
  },
  payload_too_large: {
    status: 413,
    retryable: false,
    message: ({ what, maxBytes }) => `${what} is larger than ${maxBytes} bytes.`,
    remedy: "Send less, or raise the limit in the configuration.",
  },
  too_many_files: {
    status: 413,
    retryable: false,
    message: ({ what, max }) => `${what} has more than ${max} files.`,
    remedy: "Send fewer at a time, or raise the limit in the configuration.",
  },
  range_not_satisfiable: {
    status: 416,
    retryable: false,
    message: ({ path, sizeBytes }) => `The range lies outside ${path}, which has ${sizeBytes} bytes.`,
    remedy: "Ask for a range within the file.",
  },
  unsupported_media: {
    status: 415,
    retryable: false,
    message: ({ mediaType, problem }) => `${mediaType} cannot be used here: ${problem}.`,
    remedy: "Send the content in a type that the route documents.",
  },
  invalid_request: {
    status: 422,
    retryable: false,
    message: ({ field, problem }) => `${field}: ${problem}.`,
    remedy: "Correct the named field and call again.",
  },
  malformed_request: {
    status: 400,
    retryable: false,
    message: ({ problem }) => `The request is not well-formed: ${problem}.`,
    remedy: "Send one Host header, and a path or an address with that same host.",
  },
  internal: {
    status: 500,
    retryable: false,
    message: ({ problem }) => `Something that should not happen did: ${problem}.`,
    remedy: "Report it with the message and what led to it.",
  },
};
