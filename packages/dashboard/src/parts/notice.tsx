/** Notices: errors say what to do. */

import { isSandlotError } from "@sandlot/client";
import { short } from "../format.ts";
import { texts } from "../texts.ts";

export function ErrorNotice({
  error,
  title = null,
  retry,
}: {
  readonly error: unknown;
  readonly title?: string | null;
  retry?: (() => unknown) | undefined;
}) {
  const message = error instanceof Error ? error.message : String(error);
  const remedy = isSandlotError(error) ? error.remedy : null;
  return (
    <div className="notice bad" role="alert">
      <div>
        <strong>{title ?? texts.failed}.</strong> {short(message, 2_000)}
        {remedy !== null && <div className="soft">{short(remedy, 2_000)}</div>}
      </div>
      {retry !== undefined && (
        <button type="button" onClick={() => retry()}>
          {texts.retry}
        </button>
      )}
    </div>
  );
}

export function Notice({
  kind = "info",
  children,
}: {
  readonly kind?: "info" | "good" | "warn" | "bad";
  readonly children: React.ReactNode;
}) {
  return (
    <div className={`notice ${kind}`} role="status">
      {children}
    </div>
  );
}
