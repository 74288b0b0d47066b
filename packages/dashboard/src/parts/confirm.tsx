/** Asks before something is lost, and says what. A sandbox in use is ended only when that was ticked as well. */

import * as AlertDialog from "@radix-ui/react-alert-dialog";
import { isSandlotError } from "@sandlot/client";
import { useState } from "react";
import { texts } from "../texts.ts";
import { ErrorNotice } from "./notice.tsx";

export interface Question {
  readonly title: string;
  readonly text: string;
  readonly button: string;
  /** Whether leases may stand in the way. */
  readonly mayBeInUse?: boolean;
  /** Nothing is lost by it. */
  readonly isHarmless?: boolean;
  act(force: boolean): Promise<unknown>;
}

export function Confirm({ question, onDone }: { readonly question: Question | null; onDone(happened: boolean): void }) {
  return (
    <AlertDialog.Root open={question !== null} onOpenChange={(open) => !open && onDone(false)}>
      <AlertDialog.Portal>
        <AlertDialog.Overlay className="overlay" />
        {question !== null && <Asked question={question} onDone={onDone} />}
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}

function Asked({ question, onDone }: { readonly question: Question; onDone(happened: boolean): void }) {
  const [force, setForce] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const act = async () => {
    setBusy(true);
    setError(null);
    try {
      await question.act(force);
      onDone(true);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  const isInUse = isSandlotError(error, "sandbox_in_use");
  return (
    <AlertDialog.Content className="dialog">
      <AlertDialog.Title asChild>
        <h2>{question.title}</h2>
      </AlertDialog.Title>
      <AlertDialog.Description asChild>
        <p>{question.text}</p>
      </AlertDialog.Description>
      {error !== null && <ErrorNotice error={error} title={isInUse ? texts.actions.inUse.replace(/\.$/, "") : null} />}
      {question.mayBeInUse === true && (
        <label className="check">
          <input type="checkbox" checked={force} onChange={(event) => setForce(event.target.checked)} />
          {texts.actions.force}
        </label>
      )}
      <div className="end">
        <AlertDialog.Cancel asChild>
          <button type="button">{texts.cancel}</button>
        </AlertDialog.Cancel>
        <button
          type="button"
          className={question.isHarmless === true ? "main" : "danger main"}
          disabled={isBusy}
          onClick={() => void act()}
        >
          {question.button}
        </button>
      </div>
    </AlertDialog.Content>
  );
}
