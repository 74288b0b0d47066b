/**
 * Parses a Feishu message (`im.message.receive_v1`) into text with placeholders and the files they stand for. All other
 * fields are ignored.
 */

import { z } from "zod";
import { tryJson } from "../../world/try-json.ts";
import type { FileKind } from "../channel.ts";
import { FILE_PLACEHOLDER, withoutPlaceholders } from "../received-messages.ts";

const eventSchema = z.object({
  event_id: z.string().min(1),
  tenant_key: z.string().default(""),
  sender: z.object({
    sender_type: z.string().default("user"),
    sender_id: z.object({ open_id: z.string().min(1) }),
  }),
  message: z.object({
    message_id: z.string().min(1),
    chat_id: z.string().min(1),
    chat_type: z.string(),
    message_type: z.string(),
    root_id: z.string().optional(),
    parent_id: z.string().optional(),
    content: z.string(),
  }),
});

export interface FeishuFile {
  /** The message that the file was sent with: its key is valid only there. */
  readonly messageId: string;
  readonly key: string;
  readonly kind: FileKind;
  readonly name: string | null;
}

export interface FeishuMessage {
  readonly eventId: string;
  readonly messageId: string;
  readonly chatId: string;
  readonly isPrivate: boolean;
  readonly rootId: string | null;
  readonly isReply: boolean;
  readonly tenantKey: string;
  readonly openId: string;
  readonly isFromApp: boolean;
  readonly text: string;
  readonly files: readonly FeishuFile[];
}

/** `null` for anything that is no answerable message. */
export function parseMessage(data: unknown): FeishuMessage | null {
  const event = eventSchema.safeParse(data);
  if (!event.success) return null;
  const { event_id, tenant_key, sender, message } = event.data;
  const content = contentOf(message.message_type, message.content, message.message_id);
  if (content === null) return null;
  return {
    eventId: event_id,
    messageId: message.message_id,
    chatId: message.chat_id,
    isPrivate: message.chat_type === "p2p",
    rootId: message.root_id || null,
    isReply: Boolean(message.root_id || message.parent_id),
    tenantKey: tenant_key,
    openId: sender.sender_id.open_id,
    isFromApp: sender.sender_type !== "user",
    ...content,
  };
}

type Content = Pick<FeishuMessage, "text" | "files">;

const textSchema = z.object({ text: z.string() });
const imageSchema = z.object({ image_key: z.string().min(1) });
const fileSchema = z.object({ file_key: z.string().min(1), file_name: z.string().optional() });
const elementSchema = z.object({
  tag: z.string(),
  text: z.string().optional(),
  href: z.string().optional(),
  user_name: z.string().optional(),
  image_key: z.string().optional(),
  file_key: z.string().optional(),
  file_name: z.string().optional(),
});
const postSchema = z.object({ title: z.string().default(""), content: z.array(z.array(elementSchema)) });

function contentOf(type: string, content: string, messageId: string): Content | null {
  const json = tryJson(content);
  if (type === "text") {
    const text = textSchema.safeParse(json);
    return text.success ? { text: withoutPlaceholders(text.data.text), files: [] } : null;
  }
  if (type === "image") {
    const image = imageSchema.safeParse(json);
    if (!image.success) return null;
    return { text: FILE_PLACEHOLDER, files: [{ messageId, key: image.data.image_key, kind: "image", name: null }] };
  }
  if (type === "file" || type === "audio" || type === "media") {
    const file = fileSchema.safeParse(json);
    if (!file.success) return null;
    const { file_key: key, file_name: name = null } = file.data;
    return { text: FILE_PLACEHOLDER, files: [{ messageId, key, kind: "file", name }] };
  }
  return type === "post" ? postContent(json, messageId) : null;
}

/** Rich text: paragraphs of elements, possibly below the name of a language. */
function postContent(json: unknown, messageId: string): Content | null {
  const candidates = [json, ...(typeof json === "object" && json !== null ? Object.values(json) : [])];
  const post = candidates.map((candidate) => postSchema.safeParse(candidate)).find(({ success }) => success)?.data;
  if (post === undefined) return null;
  const files: FeishuFile[] = [];
  const paragraphs = post.content.map((paragraph) =>
    paragraph
      .map(({ tag, text = "", href, user_name, image_key, file_key, file_name }) => {
        if (tag === "img" && image_key) {
          files.push({ messageId, key: image_key, kind: "image", name: null });
          return FILE_PLACEHOLDER;
        }
        if (file_key) {
          files.push({ messageId, key: file_key, kind: "file", name: file_name ?? null });
          return FILE_PLACEHOLDER;
        }
        const said =
          tag === "at" ? `@${user_name ?? ""}` : tag === "a" && href !== undefined ? `${text} (${href})` : text;
        return withoutPlaceholders(said);
      })
      .join(""),
  );
  return { text: [withoutPlaceholders(post.title), ...paragraphs].filter((line) => line !== "").join("\n"), files };
}
