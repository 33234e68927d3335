// Small parts that all views share: states, badges, bars, tabs, dialogs.
import { Component, type ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { plain } from '../lib/visible';
import { Icon } from './icons';
import { Text } from './text';

/** A view that has nothing to show. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="state">
      <h2>{title}</h2>
      {children && <div class="state-body">{children}</div>}
    </div>
  );
}

/** A view that could not be loaded. */
export function Failed({ error, retry }: { error: Error; retry?: () => void }) {
  return (
    <div class="state" role="alert">
      <h2><span class="bad"><Icon name="cross" /></span> Cannot show this</h2>
      <div class="state-body">
        <p><Text>{error.message}</Text></p>
        <p class="state-actions">{retry && <button type="button" class="button" onClick={retry}>Try again</button>}<a class="button" href="#/runs">All runs</a></p>
      </div>
    </div>
  );
}

type BoundaryProps = { children: ComponentChildren; failed: (error: Error, retry: () => void) => ComponentChildren };

/** Shows something else where what is inside cannot be drawn, so that the rest of the page stays. */
export class Boundary extends Component<BoundaryProps, { error: Error | null }> {
  override state = { error: null as Error | null };

  static override getDerivedStateFromError(error: unknown) {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override render() {
    const { error } = this.state;
    return error ? this.props.failed(error, () => this.setState({ error: null })) : this.props.children;
  }
}

/** A view that is being loaded. It appears only after a moment, so quick answers do not flicker. */
export function Loading({ what = 'Loading' }: { what?: string }) {
  return <div class="state loading" role="status"><span class="spinner" aria-hidden="true" />{what}…</div>;
}

/** Good, bad, or neither. */
export type Tone = 'good' | 'bad' | 'warn' | 'live' | 'plain';

/** A word in a small box. */
export function Badge({ tone = 'plain', children, title }: { tone?: Tone; children: ComponentChildren; title?: string }) {
  return <span class={`badge badge-${tone}`} title={title}>{children}</span>;
}

const TONES: Record<string, Tone> = {
  running: 'live', queued: 'plain', interrupted: 'warn', cancelled: 'warn', failed: 'bad', infrastructure: 'bad',
  max_turns: 'warn', max_tokens: 'warn', context_full: 'warn', deadline: 'warn', cost: 'warn', no_tool_calls: 'warn', error: 'bad',
};

/** A state or an outcome. */
export function StateBadge({ state }: { state: string | null | undefined }) {
  if (!state) return <span class="soft">–</span>;
  if (state === 'ended') return <span class="soft">ended</span>;
  return (
    <Badge tone={TONES[state] ?? 'plain'}>
      {state === 'running' && <span class="pulse" aria-hidden="true" />}
      {plain(state).replaceAll('_', ' ')}
    </Badge>
  );
}

/** Passed, failed or partly: with a sign, not only a colour. */
export function Mark({ score }: { score: number | null | undefined }) {
  if (score === null || score === undefined) return <span class="mark mark-none" title="no valid score"><Icon name="minus" size={14} /><span class="off-screen">no score</span></span>;
  if (score >= 1) return <span class="mark mark-good" title="solved"><Icon name="check" size={14} /><span class="off-screen">solved</span></span>;
  if (score <= 0) return <span class="mark mark-bad" title="not solved"><Icon name="cross" size={14} /><span class="off-screen">not solved</span></span>;
  return <span class="mark mark-part" title={`score ${score.toFixed(2)}`}>{score.toFixed(2).replace(/^0/, '')}</span>;
}

/** A horizontal bar of parts whose sum is at most `most`. */
export function Bar({ parts, most, label }: { parts: { value: number; class: string; title: string }[]; most: number; label: string }) {
  return (
    <span class="bar" role="img" aria-label={label} title={label}>
      {parts.map((p, i) => <span key={i} class={`bar-part ${p.class}`} style={{ width: `${most > 0 ? Math.min(100, (p.value / most) * 100) : 0}%` }} />)}
    </span>
  );
}

/** Progress of something that runs. */
export function Progress({ done, total, label }: { done: number; total: number; label: string }) {
  const share = total > 0 ? Math.min(1, done / total) : 0;
  return (
    <span class="progress" role="progressbar" aria-valuemin={0} aria-valuemax={total} aria-valuenow={done} aria-label={label}>
      <span class="progress-done" style={{ width: `${share * 100}%` }} />
    </span>
  );
}

/** Links that choose a part of a view. */
export function Tabs({ items, current, label }: { items: { id: string; name: ComponentChildren; href: string; hidden?: boolean }[]; current: string; label: string }) {
  return (
    <nav class="tabs" aria-label={label}>
      {items.filter((i) => !i.hidden).map((i) => (
        <a key={i.id} href={i.href} aria-current={i.id === current ? 'page' : undefined}>{i.name}</a>
      ))}
    </nav>
  );
}

/** Buttons of which one is chosen. */
export function Choice<T extends string>({ label, options, value, onChange }: { label: string; options: { value: T; name: ComponentChildren }[]; value: T; onChange: (value: T) => void }) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map((o) => (
        <button key={o.value} type="button" aria-pressed={o.value === value} onClick={() => onChange(o.value)}>{o.name}</button>
      ))}
    </div>
  );
}

/** A field for searching, with its label for screen readers. */
export function Search({ value, onInput, label, id }: { value: string; onInput: (value: string) => void; label: string; id?: string }) {
  return (
    <label class="search">
      <Icon name="search" size={14} />
      <input id={id} type="search" value={value} onInput={(event) => onInput(event.currentTarget.value)} placeholder={label} aria-label={label} autocomplete="off" spellcheck={false} data-search />
    </label>
  );
}

/** A dialog of the browser: it keeps the focus and closes with Escape. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current;
    if (dialog && !dialog.open) dialog.showModal();
  }, []);
  return (
    <dialog ref={ref} class="dialog" aria-label={title} onClose={onClose} onClick={(e) => e.target === ref.current && ref.current?.close()}>
      <div class="dialog-inside">
        <header>
          <h2>{title}</h2>
          <button type="button" class="icon-button" aria-label="Close" onClick={() => ref.current?.close()}><Icon name="cross" /></button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

/** Names with values, in two columns. */
export function Facts({ items }: { items: ([string, ComponentChildren] | null | false | undefined)[] }) {
  return (
    <dl class="facts">
      {items.map((item) => item && <div key={item[0]}><dt>{item[0]}</dt><dd>{item[1]}</dd></div>)}
    </dl>
  );
}
