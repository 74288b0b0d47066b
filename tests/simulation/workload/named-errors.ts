/** The errors that callers may get, beside those of an acquire. */

export const DESTROY_ERRORS: ReadonlySet<string> = new Set(
  "sandbox_in_use store_unavailable store_recovering fleet_closed create_failed sandbox_unreachable thread_elsewhere engine_unreachable".split(
    " ",
  ),
);

export const RESTORE_ERRORS: ReadonlySet<string> = new Set(
  "checkpoint_not_found checkpoint_timeout restore_incomplete thread_not_found".split(" "),
);
