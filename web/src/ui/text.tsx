// Texts of models, commands and files. They are text nodes, whatever they contain, and hidden characters are spelled out.
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useMemo, useState } from 'preact/hooks';
import { ansi, withoutAnsi } from '../lib/ansi';
import { differing, type Span } from '../lib/diff';
import { bytes, count } from '../lib/format';
import { highlighter, type Token } from '../lib/highlight';
import { hasHidden, pieces } from '../lib/visible';
import { Icon } from './icons';

/** A text as it is. */
export function Text({ children }: { children: string }) {
  if (!hasHidden(children)) return <>{children}</>;
  return <>{pieces(children).map((p, i) => (p.hidden ? <Hidden key={i} name={p.text} /> : p.text))}</>;
}

function Hidden({ name }: { name: string }) {
  return (
    <span class="hidden-char" title={`hidden character ${name}`}>
      {name}
    </span>
  );
}

/** The text that another column has at this place. `old` marks what only this text has as removed, `new` as added. */
export type Against = { text: string; as: 'old' | 'new' };
/** Words to mark. */
export type Marks = { spans: Span[]; as: Against['as'] };

/** The words of a text that another one does not have; null where nothing is marked. */
export function marksOf(text: string, against: Against | undefined): Marks | null {
  if (!against) return null;
  const { text: other, as } = against;
  const spans = as === 'old' ? differing(text, other).old : differing(other, text).new;
  return spans.length > 0 ? { spans, as } : null;
}

/** Turns the parts of a text, one after the other, into nodes with marked words. */
export class Brush {
  private next = 0;

  constructor(
    private readonly marks: Marks | null | undefined,
    private at = 0,
  ) {}

  paint(text: string): ComponentChildren {
    if (!this.marks) return <Text>{text}</Text>;
    const { spans, as } = this.marks;
    const out: ComponentChildren[] = [];
    const [start, end] = [this.at, this.at + text.length];
    let from = start;
    const push = (to: number, marked: boolean) => {
      const part = <Text key={out.length}>{text.slice(from - start, to - start)}</Text>;
      if (to > from) out.push(!marked ? part : as === 'old' ? <del key={out.length} class="word">{part}</del> : <ins key={out.length} class="word">{part}</ins>);
      from = Math.max(from, to);
    };
    for (let span = spans[this.next]; span && span[0] < end; span = spans[this.next]) {
      push(Math.min(span[0], end), false);
      push(Math.min(span[1], end), true);
      if (span[1] > end) break;
      this.next++;
    }
    push(end, false);
    this.at = end;
    return <>{out}</>;
  }
}

/** Output of a command, with its colours. */
function Output({ text, marks }: { text: string; marks: Marks | null }) {
  const nodes = useMemo(() => {
    const brush = new Brush(marks);
    return ansi(text).map((p, i) => (p.style ? <span key={i} class={p.style}>{brush.paint(p.text)}</span> : brush.paint(p.text)));
  }, [text, marks]);
  return <>{nodes}</>;
}

/** A code with syntax colours, where its language is known. They are kept while the list around it is drawn again. */
export function Code({ text, language, marks = null }: { text: string; language?: string; marks?: Marks | null }) {
  const colors = highlighter(language);
  const nodes = useMemo(() => {
    const brush = new Brush(marks);
    const part = (token: Token, i: number): ComponentChildren => (typeof token === 'string' ? brush.paint(token) : <span key={i} class={`hl-${token.scope}`}>{token.children.map(part)}</span>);
    return colors?.(text)?.map(part) ?? brush.paint(text);
  }, [text, colors, marks]);
  return <>{nodes}</>;
}

/** A text with the words marked that another one does not have. */
export function Marked({ text, against }: { text: string; against?: Against }) {
  const nodes = useMemo(() => new Brush(marksOf(text, against)).paint(text), [text, against?.text, against?.as]);
  return <>{nodes}</>;
}

type BlockProps = {
  text: string;
  kind?: 'output' | 'code' | 'prose';
  language?: string;
  /** Lines shown while folded. */
  lines?: number;
  label: string;
  /** The length of the whole text where this is its beginning, and how to get the rest. */
  whole?: number;
  load?: () => Promise<string>;
  class?: string;
  copy?: boolean;
  open?: boolean;
  /** Where to remember whether it is unfolded, while the row is out of view. */
  memory?: Map<string, boolean>;
  name?: string;
  against?: Against;
};

const STEP = 200_000;
const FOLDED = 6_000;

/** A block of text that is folded where it is long, and shown in parts where it is huge. */
export function Block(props: BlockProps) {
  const name = props.name ?? '';
  const [open, setState] = useState(props.memory?.get(name) ?? props.open ?? false);
  const setOpen = (next: boolean) => {
    props.memory?.set(name, next);
    setState(next);
  };
  const [most, setMost] = useState(STEP);
  const [loaded, setLoaded] = useState<string | null>(null);
  const [failed, setFailed] = useState('');
  const id = useId();
  const limit = props.lines ?? 14;
  const text = loaded ?? props.text;
  const cut = useMemo(() => fold(text, limit), [text, limit]);
  const shown = open ? text.slice(0, most) : cut.text;
  const kind = props.kind ?? 'output';
  const { against } = props;
  const marks = useMemo(() => {
    // Colours are not part of what is shown, so they are not part of what is compared.
    const seen = kind === 'output' ? withoutAnsi : (it: string) => it;
    return marksOf(seen(text), against && { ...against, text: seen(against.text) });
  }, [text, kind, against?.text, against?.as]);
  const hidden = !open && marks !== null && (marks.spans.at(-1)?.[1] ?? 0) > (kind === 'output' ? withoutAnsi(shown) : shown).length;
  const missing = props.whole !== undefined && loaded === null && props.whole > props.text.length;
  const load = () => {
    props.load?.().then(setLoaded, (error: Error) => setFailed(error.message));
  };
  const classes = `block block-${kind} ${props.class ?? ''}`;
  const foldable = cut.folded || missing;
  return (
    <div class={classes}>
      {props.copy !== false && <CopyButton text={() => text} label={`Copy ${props.label}`} />}
      <pre id={id} class={cut.folded && !open ? 'faded' : undefined} aria-label={props.label} role="group">
        {kind === 'output' ? <Output text={shown} marks={marks} /> : <Code text={shown} language={kind === 'code' ? props.language : undefined} marks={marks} />}
      </pre>
      {foldable && (
        <div class="block-more">
          {cut.folded && (
            <button type="button" class="link" aria-expanded={open} aria-controls={id} onClick={() => setOpen(!open)}>
              {open ? 'Show less' : `Show all · ${cut.lines > 1 ? `${count(cut.lines)} lines` : bytes(text.length)}${hidden ? ', with differences' : ''}`}
            </button>
          )}
          {open && text.length > most && (
            <button type="button" class="link" onClick={() => setMost(most + STEP)}>
              Show {bytes(Math.min(STEP, text.length - most))} more of {bytes(text.length)}
            </button>
          )}
          {missing && (props.load ? (
            <button type="button" class="link" onClick={load}>
              Load the whole text · {bytes(props.whole)}
            </button>
          ) : (
            <span class="soft">first {bytes(props.text.length)} of {bytes(props.whole)}</span>
          ))}
          {failed && <span class="bad">{failed}</span>}
        </div>
      )}
    </div>
  );
}

/** The first lines of a text, and how many it has. */
function fold(text: string, limit: number): { text: string; folded: boolean; lines: number } {
  let lines = 1;
  let end = -1;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) {
    lines++;
    // A fold that hides two lines or fewer would be longer than what it hides.
    if (lines === limit + 1) end = at;
  }
  const folded = lines > limit + 3 || text.length > FOLDED;
  if (!folded) return { text, folded, lines };
  return { text: text.slice(0, Math.min(end >= 0 && lines > limit + 3 ? end : text.length, FOLDED)), folded, lines };
}

/** A button that copies a text. */
export function CopyButton({ text, label, children }: { text: () => string; label: string; children?: ComponentChildren }) {
  const [done, setDone] = useState<'' | 'copied' | 'failed'>('');
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(''), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = () => {
    copyText(text()).then((ok) => setDone(ok ? 'copied' : 'failed'));
  };
  return (
    <button type="button" class={`copy ${done}`} onClick={copy} aria-label={done ? `${label}: ${done}` : label} title={done || label}>
      <Icon name={done === 'copied' ? 'check' : 'copy'} size={14} />
      {children}
    </button>
  );
}

/** Copies a text; pages in files and on plain HTTP have no clipboard, so the old way is the second one. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'off-screen';
    document.body.append(area);
    area.select();
    const ok = document.execCommand('copy');
    area.remove();
    return ok;
  }
}

/** A command line with a button that copies it. */
export function CommandLine({ text }: { text: string }) {
  return (
    <div class="command-line">
      <code><Code text={text} language="bash" /></code>
      <CopyButton text={() => text} label="Copy the command line" />
    </div>
  );
}
