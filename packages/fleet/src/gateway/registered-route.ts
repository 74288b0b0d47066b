/** A registered route: the OpenAPI document must have exactly these. */
export interface RegisteredRoute {
  readonly method: string;
  readonly url: string;
}
