/** An image, or a PDF in the browser's own viewer. Neither runs a script of this origin. */

import { useEffect, useState } from "react";
import { short } from "../format.ts";
import { Notice } from "../parts/notice.tsx";
import { texts } from "../texts.ts";

export function BlobView({
  kind,
  blob,
  name,
}: {
  readonly kind: "image" | "pdf";
  readonly blob: Blob;
  readonly name: string;
}) {
  const [url, setUrl] = useState<string | null>(null);
  useEffect(() => {
    const made = URL.createObjectURL(blob);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [blob]);
  if (url === null) return null;
  if (kind === "image") return <img src={url} alt={short(name)} />;
  if (!navigator.pdfViewerEnabled) return <Notice>{texts.files.noPdf}</Notice>;
  return <iframe className="pdf" src={url} title={short(name)} />;
}
