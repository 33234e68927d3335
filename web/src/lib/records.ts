// What was recorded, as the types that views rely on. Records come from models, other programs and strangers: a field may be
// missing or have any type, and this is the only place that has to know it.
import type { Attempt, Content, Event, EventItem, Message, Observed, Responded, ToolCall, Usage } from './types';

const fields = (value: unknown): Record<string, unknown> => (typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {});
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : value === undefined || value === null ? [] : [value]);
const number = (value: unknown): number | undefined => (typeof value === 'number' && Number.isFinite(value) ? value : undefined);

/** A value as text: itself, or as JSON. */
function text(value: unknown): string {
  if (typeof value === 'string') return value;
  return value === undefined || value === null ? '' : JSON.stringify(value);
}

/** An event of a page of events. */
export function eventItem(value: unknown): EventItem {
  const item = fields(value);
  const cut = Object.entries(fields(item.cut)).filter((entry): entry is [string, number] => number(entry[1]) !== undefined);
  return { n: number(item.n) ?? 0, event: event(item.event), ...(cut.length > 0 ? { cut: Object.fromEntries(cut) } : {}) };
}

function event(value: unknown): Event {
  const recorded = fields(value);
  const kind = text(recorded.kind) || 'unknown';
  const common = { ...recorded, kind, at: number(recorded.at), turn: number(recorded.turn) };
  const millis = number(recorded.millis) ?? 0;
  const message = fields(recorded.message);
  if (kind === 'replied') {
    const calls = list(message.calls).map(call);
    const responded: Responded = { ...common, message: { text: text(message.text), reasoning: text(message.reasoning), calls }, usage: usage(recorded.usage), stop: text(recorded.stop), millis, cost: number(recorded.cost) };
    return responded;
  }
  if (kind !== 'observed') return common;
  const observed: Observed = {
    ...common, millis, exit_code: number(recorded.exit_code),
    message: { role: text(message.role), call_id: text(message.call_id), name: text(message.name), content: contents(message), is_error: message.is_error === true },
  };
  return observed;
}

function call(value: unknown): ToolCall {
  const { id, name, arguments: given, why } = fields(value);
  const isObject = typeof given === 'object' && given !== null && !Array.isArray(given);
  return { id: text(id), name: text(name), arguments: isObject ? fields(given) : given === undefined || given === null ? {} : text(given), ...(why === undefined ? {} : { why: text(why) }) };
}

const COUNTS = ['input', 'cached', 'cache_writes', 'output', 'reasoning'] as const;
const usage = (value: unknown): Usage => Object.fromEntries(COUNTS.map((name) => [name, number(fields(value)[name]) ?? 0]));

/** The parts of a message; parts of other types than text and images are shown as JSON. */
function contents(message: Record<string, unknown>): Content[] {
  return list(message.content ?? message.text).map((part): Content => {
    const { type, text: own, media_type, data } = fields(part);
    if (type === 'image' && typeof media_type === 'string' && typeof data === 'string') return { type, media_type, data };
    return { type: 'text', text: type === 'text' && typeof own === 'string' ? own : text(part) };
  });
}

/** An attempt, whose messages are as recorded. */
export function attempt(value: Attempt): Attempt {
  const messages = list(value.messages).map((one): Message => {
    const message = fields(typeof one === 'string' ? { text: one } : one);
    return { role: text(message.role) || 'message', content: contents(message) };
  });
  return { ...value, messages };
}
