/** The routes of the dashboard in the catalogue, as a program with a key asks them. */

import type { Entry } from "./catalogue-entry.ts";

const BASE = "/v1/dashboard";
const HEADERS = { "x-sandlot-dashboard": "1" };

export const DASHBOARD_ENTRIES: readonly Entry[] = [
  { method: "POST", url: `${BASE}/session`, who: "any", status: 201, request: () => [`${BASE}/session`] },
  // A key is no session.
  { method: "GET", url: `${BASE}/session`, who: "any", status: 401, request: () => [`${BASE}/session`] },
  { method: "DELETE", url: `${BASE}/session`, who: "any", status: 204, request: () => [`${BASE}/session`] },
  { method: "POST", url: `${BASE}/links`, who: "any", status: 201, request: () => [`${BASE}/links`] },
  {
    method: "POST",
    url: `${BASE}/links/use`,
    who: "open",
    status: 401,
    request: () => [`${BASE}/links/use`, { json: { token: "forged" }, headers: HEADERS }],
    invalid: [{}, { token: "" }, { token: 1 }, { token: "x", more: true }, { token: "x".repeat(1_001) }],
  },
  ...["overview", "fleet", "configuration", "doctor", "log"].map(
    (name): Entry => ({
      ...{ method: "GET", url: `${BASE}/${name}`, who: "operator", status: 200 },
      request: () => [`${BASE}/${name}`],
    }),
  ),
];
