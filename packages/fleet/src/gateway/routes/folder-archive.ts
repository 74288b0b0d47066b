/** A folder of a thread's sandbox as one archive. */

import { pathQuerySchema, threadParamsSchema } from "@sandlot/contract";
import { z } from "zod";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { streamed } from "../streams/bytes.ts";
import { folderTar } from "../streams/folder-tar.ts";
import { goneSignal, purposeOf, threadOf } from "../thread-use.ts";
import { THREAD_ERRORS } from "./answers.ts";

export function folderArchiveRoutes(app: GatewayApp, { threads }: GatewayContext): void {
  app.get(
    "/v1/threads/:thread/files/archive",
    {
      config: { access: "thread", purpose: "download folder" },
      schema: {
        summary: "A folder with everything in it, as a tar archive",
        description: "Links are not followed. What is left out is named in `LEFT-OUT.txt`, the archive's last entry.",
        tags: ["files"],
        params: threadParamsSchema,
        querystring: pathQuerySchema,
        response: { 200: z.any().describe("A tar archive."), ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const signal = goneSignal(reply);
      const lease = await threads.acquire(threadOf(request), purposeOf(request), signal);
      const done = () => threads.release(lease);
      let isHandedOver = false;
      try {
        const { files } = lease.sandbox;
        const folder = await files.stat(request.query.path);
        // Generators of clients know no other type of bytes.
        reply.header("content-type", "application/octet-stream").header("content-disposition", "attachment");
        isHandedOver = true;
        return reply.send(await streamed(folderTar(files, folder, signal), done));
      } finally {
        if (!isHandedOver) await done();
      }
    },
  );
}
