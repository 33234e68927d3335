// One turn: what the model thought and wrote, its tool calls with their results, and what changed on disk.
import { useState } from 'preact/hooks';
import { get } from '../lib/api';
import { summary, textOf, type Episode } from '../lib/episode';
import { bytes, count, counted, dollars, duration, short } from '../lib/format';
import { languageOf } from '../lib/highlight';
import type { Content, Event, EventItem, FileChange, Message, ToolCall, Turn, TurnChanges, Usage } from '../lib/types';
import { ServerDiff, TextDiff, WordDiff } from '../ui/diff';
import { Icon } from '../ui/icons';
import { Badge, Bar } from '../ui/parts';
import { Block, Text } from '../ui/text';

type Replied = Event & { message?: Message; usage?: Usage; stop?: unknown; from_cache?: boolean };
type Observed = Event & { message?: Message & { name?: string; is_error?: boolean }; exit_code?: number | null; millis?: number };
type Context = { episode: Episode; turn: Turn; item: EventItem };

/** The events of a turn, in order. `against` marks words of calls that another episode does not have. */
export function TurnEvents({ episode, turn, items, against }: { episode: Episode; turn: Turn; items: EventItem[]; against?: string }) {
  const used = new Set<number>();
  const results = (call: ToolCall, from: number): EventItem | undefined => {
    const found = items.find((o) => o.n > from && !used.has(o.n) && o.event.kind === 'observed' && (o.event as Observed).message?.call_id === call.id);
    if (found) used.add(found.n);
    return found;
  };
  return (
    <>
      {items.map((item) => {
        if (item.event.kind === 'replied') {
          const event = item.event as Replied;
          return (
            <div key={item.n} class="reply">
              <Response context={{ episode, turn, item }} event={event} />
              {(event.message?.calls ?? []).map((call, i) => {
                const result = results(call, item.n);
                return <Call key={`${call.id}-${i}`} context={{ episode, turn, item }} call={call} index={i} result={result} against={i === 0 ? against : undefined} />;
              })}
            </div>
          );
        }
        return used.has(item.n) ? null : <Other key={item.n} context={{ episode, turn, item }} />;
      })}
    </>
  );
}

function Response({ context, event }: { context: Context; event: Replied }) {
  const { message } = event;
  const stop = typeof event.stop === 'string' ? event.stop : event.stop ? JSON.stringify(event.stop) : '';
  return (
    <>
      {message?.reasoning && (
        <div class="thinking">
          <span class="label">Thinking</span>
          <Cut context={context} pointer="/message/reasoning" text={message.reasoning} kind="prose" lines={4} label="thinking" />
        </div>
      )}
      {message?.text?.trim() && <div class="said"><Cut context={context} pointer="/message/text" text={message.text.trim()} kind="prose" lines={16} label="text of the model" /></div>}
      {stop === 'length' && <p class="warn small">The response was cut off: its token limit was reached.</p>}
      {stop === 'refusal' && <p class="warn small">The model or its server refused.</p>}
    </>
  );
}

function Call({ context, call, index, result, against }: { context: Context; call: ToolCall; index: number; result?: EventItem; against?: string }) {
  const observed = result?.event as Observed | undefined;
  const failed = observed?.message?.is_error || (typeof observed?.exit_code === 'number' && observed.exit_code !== 0);
  return (
    <div class={`call ${failed ? 'call-failed' : ''}`}>
      <div class="call-head">
        <span class="tool"><Text>{call.name}</Text></span>
        <CallTitle call={call} />
        <span class="grow" />
        {observed && typeof observed.exit_code === 'number' && <Badge tone={observed.exit_code === 0 ? 'plain' : 'bad'}>exit {observed.exit_code}</Badge>}
        {observed?.message?.is_error && <Badge tone="bad">invalid call</Badge>}
        {observed && typeof observed.millis === 'number' && observed.millis > 0 && <span class="soft small nowrap" title="duration of the tool call">{duration(observed.millis)}</span>}
        {!observed && !context.episode.complete && <Badge tone="live"><span class="pulse" />running</Badge>}
      </div>
      <Arguments context={context} call={call} index={index} against={against} />
      {result && observed && <Contents context={{ ...context, item: result }} content={observed.message?.content ?? []} label={`result of ${call.name}`} quiet={quiet(call, observed)} />}
    </div>
  );
}

/** Whether a result only repeats the call, as that of a created file does. */
const quiet = (call: ToolCall, observed: Observed): boolean => !observed.message?.is_error && typeof call.arguments !== 'string' && ['create', 'str_replace', 'insert'].includes(String(call.arguments.command)) && typeof call.arguments.path === 'string';

function CallTitle({ call }: { call: ToolCall }) {
  if (typeof call.arguments === 'string') return <span class="bad small">arguments cannot be read{call.why ? `: ${call.why}` : ''}</span>;
  const { command, path, view_range } = call.arguments as { command?: unknown; path?: unknown; view_range?: unknown };
  if (typeof path !== 'string') return null;
  return <span class="call-path mono">{typeof command === 'string' && <span class="soft"><Text>{command}</Text> </span>}<Text>{path}</Text>{Array.isArray(view_range) && <span class="soft"> {view_range.join('–')}</span>}</span>;
}

function Arguments({ context, call, index, against }: { context: Context; call: ToolCall; index: number; against?: string }) {
  const at = `/message/calls/${index}/arguments`;
  if (typeof call.arguments === 'string') return <Cut context={context} pointer={at} text={call.arguments} kind="code" lines={12} label="arguments" />;
  const args = call.arguments;
  const text = (key: string) => (typeof args[key] === 'string' ? (args[key] as string) : undefined);
  const path = text('path');
  if (path !== undefined) {
    const [created, before, after] = [text('file_text'), text('old_str'), text('new_str')];
    if (created !== undefined) return <Cut context={context} pointer={`${at}/file_text`} text={created} kind="code" language={languageOf(path)} lines={14} label={`content of ${path}`} />;
    if (before !== undefined) return <TextDiff before={before} after={after ?? ''} label={`change of ${path}`} />;
    if (after !== undefined) return <Cut context={context} pointer={`${at}/new_str`} text={after} kind="code" language={languageOf(path)} lines={14} label="inserted text" />;
    return null;
  }
  const [key, code] = ['command', 'code', 'cmd', 'script', 'input'].map((k) => [k, text(k)] as const).find(([, v]) => v !== undefined) ?? ['', undefined];
  if (code !== undefined) {
    if (against !== undefined && against !== code && code.length < 20_000) return <div class="block block-code"><pre><WordDiff before={against} after={code} /></pre></div>;
    const language = /python|ipython|jupyter/i.test(call.name) || key === 'code' ? 'python' : 'bash';
    return <Cut context={context} pointer={`${at}/${key}`} text={code} kind="code" language={language} lines={18} label="command" prompt={language === 'bash'} />;
  }
  if (Object.keys(args).length === 0) return null;
  return <Cut context={context} pointer={at} text={JSON.stringify(args, null, 2)} kind="code" language="json" lines={14} label="arguments" />;
}

function Contents({ context, content, label, quiet: folded }: { context: Context; content: Content[]; label: string; quiet?: boolean }) {
  return (
    <>
      {content.map((part, i) =>
        part.type === 'image' ? <Picture key={i} part={part} /> : part.text.trim() === '' ? <p key={i} class="soft small none">no output</p> : (
          <Cut key={i} context={context} pointer={`/message/content/${i}/text`} text={part.text} kind="output" lines={folded ? 1 : 14} label={label} />
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

function Other({ context }: { context: Context }) {
  const { item } = context;
  const event = item.event;
  const note = (tone: string, text: string, more?: string) => <p class={`note ${tone}`}>{text}{more && <>: <Text>{more}</Text></>}</p>;
  switch (event.kind) {
    case 'started':
    case 'ended':
      return null;
    case 'retried':
      return note('warn', `call ${event.attempt} of the model failed, again after ${duration(Number(event.wait_ms))}`, String(event.why ?? ''));
    case 'observed': {
      const observed = event as Observed;
      const role = observed.message?.role === 'user' ? 'Reminder' : 'Result';
      return <div class="reminder"><span class="label">{role}</span><Contents context={context} content={observed.message?.content ?? [{ type: 'text', text: textOf(observed.message) }]} label={role} /></div>;
    }
    case 'compacted':
      return note('', `old results were shortened for the model, in the first ${counted(Number(event.messages), 'message')}`);
    case 'changed':
      // Shown as the files of the turn.
      return null;
    case 'saved':
      return note('', 'files saved as an image', String(event.image ?? ''));
    case 'resumed':
      return note('warn', `interrupted, then resumed after turn ${event.turn}`);
    case 'reconfigured':
      return note('', 'resumed with other settings', JSON.stringify(event.settings));
    case 'unreadable':
      return note('bad', `this line cannot be read`, `${event.why ?? ''} ${event.text ?? ''}`);
    default:
      return note('', `event of an unknown kind`, event.kind);
  }
}

type CutProps = { context: Context; pointer: string; text: string; kind: 'output' | 'code' | 'prose'; language?: string; lines: number; label: string; prompt?: boolean };

function Cut({ context, pointer, text, kind, language, lines, label, prompt }: CutProps) {
  const { episode, item } = context;
  const whole = item.cut?.[pointer];
  return (
    <Block
      text={text} kind={kind} language={language} lines={lines} label={label} class={prompt ? 'prompted' : ''} whole={whole} load={whole ? () => episode.text(item.n, pointer) : undefined}
      memory={episode.folds} name={`${item.n}${pointer}`}
    />
  );
}

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
  const key = `changes-${turn.turn}`;
  const [open, setOpen] = useState(episode.folds.get(key) ?? false);
  const [loaded, setLoaded] = useState<TurnChanges | Error | null>(null);
  const load = () => {
    if (!loaded) Promise.resolve().then(() => get<TurnChanges>(`${episode.base}/turns/${turn.turn}/changes`)).then(setLoaded, setLoaded);
  };
  if (open && !loaded) load();
  const toggle = () => {
    episode.folds.set(key, !open);
    setOpen(!open);
  };
  return (
    <div class="changes">
      <button type="button" class="fold" aria-expanded={open} onClick={toggle}><span class="turning"><Icon name="chevron" size={12} /></span>{counted(turn.files, 'file')} changed</button>
      {open && (loaded instanceof Error ? <p class="bad small"><Text>{loaded.message}</Text></p> : loaded ? <ChangeList changes={loaded} /> : <p class="soft small">Loading…</p>)}
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

export { summary };
