/** The platform's operations that the channel needs. */

import type { OpenedFile } from "../channel.ts";
import type { FeishuFile } from "./message.ts";

export interface FeishuPlatform {
  open(file: FeishuFile, signal: AbortSignal): Promise<OpenedFile>;
  reply(messageId: string, text: string, signal: AbortSignal): Promise<void>;
}
