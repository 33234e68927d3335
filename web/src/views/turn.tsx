// One turn: what the model thought and wrote, its tool calls with their results, and what changed on disk.
import { useState } from 'preact/hooks';
import { useData } from '../lib/data';
import type { Episode } from '../lib/episode';
import { bytes, count, counted, dollars, duration, short } from '../lib/format';
import { languageOf } from '../lib/highlight';
import type { Content, EventItem, FileChange, Observed, Responded, ToolCall, Turn, TurnChanges } from '../lib/types';
import { ServerDiff, TextDiff } from '../ui/diff';
import { Icon } from '../ui/icons';
import { Badge, Bar } from '../ui/parts';
import { Block, Text, type Against } from '../ui/text';

type Context = { episode: Episode; turn: Turn; item: EventItem };
/** What a turn says and does, for comparing it with another. */
export type Parts = { reasoning: string; text: string; calls: { call: ToolCall; results: string[] }[] };
/** The same turn in another column. */
type Other = { parts: Parts; as: Against['as'] };

const responded = (item: EventItem): Responded | null => (item.event.kind === 'replied' ? (item.event as Responded) : null);
const observed = (item: EventItem | undefined): Observed | undefined => (item?.event.kind === 'observed' ? (item.event as Observed) : undefined);

/** Results by the call they belong to. */
function resultsOf(items: EventItem[]): Map<ToolCall, EventItem> {
  const found = new Map<ToolCall, EventItem>();
  const used = new Set<number>();
  for (const item of items) {
    for (const call of responded(item)?.message.calls ?? []) {
      const result = items.find((o) => o.n > item.n && !used.has(o.n) && observed(o)?.message.call_id === call.id);
      if (!result) continue;
      used.add(result.n);
      found.set(call, result);
    }
  }
  return found;
}

/** What the turn of these events says and does. */
export function partsOf(items: EventItem[]): Parts {
  const results = resultsOf(items);
  const message = items.map(responded).find((event) => event !== null)?.message;
  const texts = (call: ToolCall) => contentOf(observed(results.get(call))).map((part) => (part.type === 'text' ? part.text : ''));
  return { reasoning: message?.reasoning ?? '', text: message?.text.trim() ?? '', calls: (message?.calls ?? []).map((call) => ({ call, results: texts(call) })) };
}

/** Whether two turns say and do the same. */
export function isSame(a: Parts, b: Parts): boolean {
  const same = (x: string[], y: string[]) => x.length === y.length && x.every((text, i) => text === y[i]);
  return a.reasoning === b.reasoning && a.text === b.text && same(a.calls.map(({ call }) => call.name + json(call)), b.calls.map(({ call }) => call.name + json(call))) && a.calls.every(({ results }, i) => same(results, b.calls[i]?.results ?? []));
}

/** The events of a turn, in order. `other` is the turn beside it, whose words are compared. */
export function TurnEvents({ episode, turn, items, other }: { episode: Episode; turn: Turn; items: EventItem[]; other?: Other }) {
  const results = resultsOf(items);
  const used = new Set([...results.values()].map((item) => item.n));
  return (
    <>
      {items.map((item) => {
        const event = responded(item);
        if (!event) return used.has(item.n) ? null : <Note key={item.n} context={{ episode, turn, item }} />;
        return (
          <div key={item.n} class="reply">
            <Response context={{ episode, turn, item }} event={event} other={other} />
            {event.message.calls.map((call, i) => <Call key={`${call.id}-${i}`} context={{ episode, turn, item }} call={call} index={i} result={results.get(call)} other={other} />)}
          </div>
        );
      })}
    </>
  );
}

const against = (other: Other | undefined, text: (parts: Parts) => string | undefined): Against | undefined => {
  const found = other && text(other.parts);
  return found === undefined ? undefined : { text: found, as: other?.as ?? 'new' };
};

function Response({ context, event, other }: { context: Context; event: Responded; other?: Other }) {
  const { message, stop } = event;
  return (
    <>
      {message.reasoning && (
        <div class="thinking">
          <span class="label">Thinking</span>
          <Cut context={context} pointer="/message/reasoning" text={message.reasoning} kind="prose" lines={4} label="thinking" against={against(other, (parts) => parts.reasoning)} />
        </div>
      )}
      {message.text.trim() && <div class="said"><Cut context={context} pointer="/message/text" text={message.text.trim()} kind="prose" lines={16} label="text of the model" against={against(other, (parts) => parts.text)} /></div>}
      {stop === 'length' && <p class="warn small">The response was cut off: its token limit was reached.</p>}
      {stop === 'refusal' && <p class="warn small">The model or its server refused.</p>}
    </>
  );
}

function Call({ context, call, index, result, other }: { context: Context; call: ToolCall; index: number; result?: EventItem; other?: Other }) {
  const seen = observed(result);
  const failed = seen?.message.is_error || (seen?.exit_code ?? 0) !== 0;
  return (
    <div class={`call ${failed ? 'call-failed' : ''}`}>
      <div class="call-head">
        <span class="tool"><Text>{call.name || 'unnamed tool'}</Text></span>
        <CallTitle call={call} />
        <span class="grow" />
        {seen?.exit_code !== undefined && <Badge tone={seen.exit_code === 0 ? 'plain' : 'bad'}>exit {seen.exit_code}</Badge>}
        {seen?.message.is_error && <Badge tone="bad">invalid call</Badge>}
        {seen && seen.millis > 0 && <span class="soft small nowrap" title="duration of the tool call">{duration(seen.millis)}</span>}
        {!seen && !context.episode.complete && <Badge tone="live"><span class="pulse" />running</Badge>}
      </div>
      <Arguments context={context} call={call} index={index} other={other} />
      {result && seen && <Contents context={{ ...context, item: result }} content={contentOf(seen)} label={`result of ${call.name}`} quiet={quiet(call, seen)} against={(part) => against(other, (parts) => parts.calls[index]?.results[part])} />}
    </div>
  );
}

/** The parts of a result. The exit code is shown beside the call, so it is not repeated in the text. */
function contentOf(seen: Observed | undefined): Content[] {
  if (!seen) return [];
  const { content } = seen.message;
  const [first, ...rest] = content;
  const line = `[exit code ${seen.exit_code}]`;
  if (seen.exit_code === undefined || first?.type !== 'text' || !first.text.startsWith(line)) return content;
  const after = first.text.slice(line.length);
  return after === '' || after.startsWith('\n') ? [{ ...first, text: after.slice(1) }, ...rest] : content;
}

/** Whether a result only repeats the call, as that of a created file does. */
const quiet = (call: ToolCall, seen: Observed): boolean => !seen.message.is_error && typeof call.arguments !== 'string' && ['create', 'str_replace', 'insert'].includes(String(call.arguments.command)) && typeof call.arguments.path === 'string';

function CallTitle({ call }: { call: ToolCall }) {
  if (typeof call.arguments === 'string') return <span class="bad small">arguments cannot be read{call.why ? `: ${call.why}` : ''}</span>;
  const { command, path, view_range } = call.arguments as { command?: unknown; path?: unknown; view_range?: unknown };
  if (typeof path !== 'string') return null;
  return <span class="call-path mono">{typeof command === 'string' && <span class="soft"><Text>{command}</Text> </span>}<Text>{path}</Text>{Array.isArray(view_range) && <span class="soft"> {view_range.join('–')}</span>}</span>;
}

/** A text argument of a call. */
const argument = (call: ToolCall | undefined, key: string): string | undefined => {
  const value = typeof call?.arguments === 'object' ? call.arguments[key] : undefined;
  return typeof value === 'string' ? value : undefined;
};
const json = (call: ToolCall): string => (typeof call.arguments === 'string' ? call.arguments : JSON.stringify(call.arguments, null, 2));

function Arguments({ context, call, index, other }: { context: Context; call: ToolCall; index: number; other?: Other }) {
  const at = `/message/calls/${index}/arguments`;
  const beside = other?.parts.calls[index]?.call;
  const text = (key: string) => argument(call, key);
  const same = (key: string) => against(other, () => argument(beside, key));
  const whole = against(other, () => beside && json(beside));
  if (typeof call.arguments === 'string') return <Cut context={context} pointer={at} text={call.arguments} kind="code" lines={12} label="arguments" against={whole} />;
  const path = text('path');
  if (path !== undefined) {
    const [created, before, after] = [text('file_text'), text('old_str'), text('new_str')];
    if (created !== undefined) return <Cut context={context} pointer={`${at}/file_text`} text={created} kind="code" language={languageOf(path)} lines={14} label={`content of ${path}`} against={same('file_text')} />;
    if (before !== undefined) {
      const change = other && { before: argument(beside, 'old_str') ?? before, after: argument(beside, 'new_str') ?? after ?? '', as: other.as };
      return <TextDiff before={before} after={after ?? ''} label={`change of ${path}`} against={change} />;
    }
    if (after !== undefined) return <Cut context={context} pointer={`${at}/new_str`} text={after} kind="code" language={languageOf(path)} lines={14} label="inserted text" against={same('new_str')} />;
    return null;
  }
  const [key, code] = ['command', 'code', 'cmd', 'script', 'input'].map((k) => [k, text(k)] as const).find(([, v]) => v !== undefined) ?? ['', undefined];
  if (code !== undefined) {
    const language = /python|ipython|jupyter/i.test(call.name) || key === 'code' ? 'python' : 'bash';
    return <Cut context={context} pointer={`${at}/${key}`} text={code} kind="code" language={language} lines={18} label="command" prompt={language === 'bash'} against={same(key)} />;
  }
  if (Object.keys(call.arguments).length === 0) return null;
  return <Cut context={context} pointer={at} text={json(call)} kind="code" language="json" lines={14} label="arguments" against={whole} />;
}

function Contents({ context, content, label, quiet: folded, against: other }: { context: Context; content: Content[]; label: string; quiet?: boolean; against?: (part: number) => Against | undefined }) {
  return (
    <>
      {content.map((part, i) =>
        part.type === 'image' ? <Picture key={i} part={part} /> : part.text.trim() === '' ? <p key={i} class="soft small none">no output</p> : (
          <Cut key={i} context={context} pointer={`/message/content/${i}/text`} text={part.text} kind="output" lines={folded ? 1 : 14} label={label} against={other?.(i)} />
        ),
      )}
    </>
  );
}

const PICTURES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

function Picture({ part }: { part: { media_type: string; data: string } }) {
  if (!PICTURES.includes(part.media_type) || !/^[A-Za-z0-9+/=\s]*$/.test(part.data)) return <p class="soft small">an image of type <Text>{part.media_type}</Text></p>;
  return <img class="picture" src={`data:${part.media_type};base64,${part.data}`} alt="image that the tool returned" loading="lazy" />;
}

/** An event that is neither a response nor the result of a call. */
function Note({ context }: { context: Context }) {
  const { item } = context;
  const event = item.event;
  const note = (tone: string, text: string, more?: string) => <p class={`note ${tone}`}>{text}{more && <>: <Text>{more}</Text></>}</p>;
  switch (event.kind) {
    case 'started':
    case 'ended':
      return null;
    case 'retried':
      return note('warn', `call ${event.attempt} of the model failed, again after ${duration(Number(event.wait_ms))}`, said(event.why));
    case 'observed': {
      const seen = event as Observed;
      const role = seen.message.role === 'user' ? 'Reminder' : 'Result';
      return <div class="reminder"><span class="label">{role}</span><Contents context={context} content={contentOf(seen)} label={role} /></div>;
    }
    case 'compacted':
      return note('', `old results were shortened for the model, in the first ${counted(Number(event.messages), 'message')}`);
    case 'changed':
      // Shown as the files of the turn.
      return null;
    case 'saved':
      // The name of the image is among the details.
      return note('', 'files saved as an image');
    case 'resumed':
      return note('warn', `interrupted, then resumed after turn ${event.turn ?? 0}`);
    case 'reconfigured':
      return note('', 'resumed with other settings', said(event.settings));
    case 'unreadable':
      return note('bad', `this line cannot be read`, `${said(event.why)} ${said(event.text)}`);
    default:
      return note('', `event of an unknown kind`, event.kind);
  }
}

/** A field of an event as text. */
const said = (value: unknown): string => (typeof value === 'string' ? value : value === undefined || value === null ? '' : JSON.stringify(value));

type CutProps = { context: Context; pointer: string; text: string; kind: 'output' | 'code' | 'prose'; language?: string; lines: number; label: string; prompt?: boolean; against?: Against };

function Cut({ context, pointer, text, kind, language, lines, label, prompt, against: other }: CutProps) {
  const { episode, item } = context;
  const whole = item.cut?.[pointer];
  return (
    <Block
      text={text} kind={kind} language={language} lines={lines} label={label} class={prompt ? 'prompted' : ''} whole={whole} load={whole ? () => episode.text(item.n, pointer) : undefined}
      memory={episode.folds} name={`${item.n}${pointer}`} against={other}
    />
  );
}

/** What stands for turns that a file leaves out. */
export const Omitted = ({ turns }: { turns: number }) => <p class="omitted">{counted(turns, 'turn')} omitted from this file</p>;

/** Time and tokens of a turn as bars, on the scale of the episode. */
export function TurnBars({ turn, episode }: { turn: Turn; episode: Episode }) {
  const { sums } = episode;
  const time = Math.max(1, sums ? sums.max_model_ms + sums.max_tool_ms : turn.model_ms + turn.tool_ms);
  const tokens = Math.max(1, sums ? sums.max_input + sums.max_output : turn.input + turn.output);
  const fresh = Math.max(0, turn.input - turn.cached);
  const timeLabel = `model ${duration(turn.model_ms)}, tools ${duration(turn.tool_ms)}`;
  const tokenLabel = `${count(turn.input)} tokens in${turn.cached ? `, ${count(turn.cached)} of them cached` : ''}, ${count(turn.output)} out${turn.reasoning ? `, ${count(turn.reasoning)} of them thinking` : ''}`;
  return (
    <div class="turn-bars">
      {turn.model_ms + turn.tool_ms > 0 && <span class="turn-bar"><Bar most={time} label={timeLabel} parts={[{ value: turn.model_ms, class: 'bar-model', title: 'model' }, { value: turn.tool_ms, class: 'bar-tool', title: 'tools' }]} /><span class="small soft">{duration(turn.model_ms + turn.tool_ms)}</span></span>}
      {turn.input + turn.output > 0 && <span class="turn-bar"><Bar most={tokens} label={tokenLabel} parts={[{ value: turn.cached, class: 'bar-cached', title: 'cached' }, { value: fresh, class: 'bar-in', title: 'in' }, { value: turn.output, class: 'bar-out', title: 'out' }]} /><span class="small soft" title={tokenLabel}>{short(turn.input)} → {short(turn.output)}</span></span>}
      {turn.cost ? <span class="small soft">{dollars(turn.cost)}</span> : null}
    </div>
  );
}

/** The files that a turn changed, with their differences. */
export function Changes({ episode, turn }: { episode: Episode; turn: Turn }) {
  const key = `changes-${turn.event}`;
  const [open, setOpen] = useState(episode.folds.get(key) ?? false);
  const changes = useData<TurnChanges>(open ? `${episode.base}/turns/${turn.turn}/changes` : null, turn.dropped ? { event: turn.event } : {});
  const toggle = () => {
    episode.folds.set(key, !open);
    setOpen(!open);
  };
  return (
    <div class="changes">
      <button type="button" class="fold" aria-expanded={open} onClick={toggle}><span class="turning"><Icon name="chevron" size={12} /></span>{counted(turn.files, 'file')} changed</button>
      {open && (changes.data ? <ChangeList changes={changes.data} /> : changes.error ? <p class="bad small"><Text>{changes.error.message}</Text> <button type="button" class="link" onClick={changes.reload}>Try again</button></p> : <p class="soft small">Loading…</p>)}
    </div>
  );
}

const HOW: Record<string, 'good' | 'bad' | 'plain' | 'warn'> = { created: 'good', deleted: 'bad', written: 'warn' };

/** Changes of files. */
export function ChangeList({ changes }: { changes: TurnChanges }) {
  return (
    <>
      {changes.changes.map((c, i) => <OneChange key={i} change={c} />)}
      {changes.note && !changes.complete && <p class="soft small">{changes.note}</p>}
    </>
  );
}

function OneChange({ change }: { change: FileChange }) {
  const label = `change of ${change.path}`;
  const { before, after, diff } = change;
  return (
    <div class="change">
      <div class="change-head"><Badge tone={HOW[change.how] ?? 'plain'}>{change.how}</Badge><span class="mono"><Text>{change.path}</Text></span>{change.source === 'command' && <span class="soft small">by a command</span>}</div>
      {diff && diff.length > 0 ? <ServerDiff diff={diff} label={label} /> : typeof after === 'string' && typeof before === 'string' ? <TextDiff before={before} after={after} label={label} /> : typeof after === 'string' ? <><Block text={after} kind="code" language={languageOf(change.path)} label={label} />{change.how === 'written' && <p class="soft small">The content before is not recorded.</p>}</> : change.how === 'deleted' ? null : <p class="soft small">{typeof change.size === 'number' ? `${bytes(change.size)}; ` : ''}the content is not recorded.</p>}
      {change.cut && <p class="soft small">Shortened: the whole text is in the events.</p>}
    </div>
  );
}

/** The first line of a turn, for outlines. */
export function turnTitle(turn: Turn): string {
  const call = turn.calls[0];
  if (!call) return turn.stop === 'end' ? 'text without a call' : 'no call';
  const more = turn.calls.length > 1 ? ` (+${turn.calls.length - 1})` : '';
  return `${call.text || call.name}${more}`;
}

/** Whether a call of the turn failed. */
export const turnFailed = (turn: Turn): boolean => turn.calls.some((c) => c.error || (typeof c.exit_code === 'number' && c.exit_code !== 0));
