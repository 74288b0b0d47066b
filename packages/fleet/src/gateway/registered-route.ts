/** A route as it was registered: what the document must have, no more and no less. */
export interface RegisteredRoute {
  readonly method: string;
  readonly url: string;
}
