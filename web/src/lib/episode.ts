// The turns and events of one episode: loaded in parts as they are scrolled to, and followed while it runs.
import { signal } from '@preact/signals';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { follow, get, mayPass, withQuery } from './api';
import { useData, type Loaded } from './data';
import { attempt as attemptOf, eventItem } from './records';
import type { Attempt, EventItem, EventPage, Message, Observed, Responded, Sums, ToolCall, Turn, TurnCall, TurnPage } from './types';

const TURNS = 1000;
const EVENTS = 120;
/** Episodes of at most so many events are loaded whole, so that a search sees every text. */
const WHOLE = 1500;
/** Milliseconds until what failed is asked for again: at first, and at most. */
const AGAIN = [1000, 30_000] as const;

/** The records of an episode. Whoever reads its turns, events or state in a view is drawn again when they change. */
export class Episode {
  private readonly tick = signal(0);
  private readonly list: (Turn | undefined)[] = [];
  private readonly store = new Map<number, EventItem>();
  /** Which parts the reader has unfolded. */
  readonly folds = new Map<string, boolean>();
  total = 0;
  sums: Sums | null = null;
  error: Error | null = null;
  /** Partial text of the response that is being generated. */
  partial = '';
  private done = false;
  private known = 0;
  private omitted = 0;
  /** Positions of the turns that were undone, as ranges. */
  private undone: [number, number][] = [];
  private frame = 0;
  private readonly asked = new Set<string>();
  /** What failed, and how to ask for it again. */
  private readonly failed = new Map<string, { again: () => void; timer: number }>();
  private stop: (() => void) | null = null;
  private closed = false;
  /** The last event that the stream need not send. */
  private followed: number;

  constructor(
    readonly base: string,
    attempt: Attempt,
    private readonly follows = true,
  ) {
    this.total = this.followed = attempt.events.total;
    this.done = attempt.events.complete || attempt.state !== 'running';
    this.needTurns(0, 0);
    if (this.total <= WHOLE) for (let n = 1; n <= this.total; n += EVENTS) this.needEvents(n, Math.min(n + EVENTS - 1, this.total));
    else this.needEvents(1, Math.min(EVENTS, this.total));
  }

  /** The turns; those that are not here yet are undefined. */
  get turns(): (Turn | undefined)[] {
    this.tick.value;
    return this.list;
  }

  /** How many turns there are, with those that a file leaves out. */
  get count(): number {
    return this.turns.length === 0 || this.omitted === 0 ? this.turns.length : this.turns.length - 1 + this.omitted;
  }

  /** The events by number. */
  get events(): Map<number, EventItem> {
    this.tick.value;
    return this.store;
  }

  /** Whether nothing will be added any more. */
  get complete(): boolean {
    this.tick.value;
    return this.done;
  }

  /** A number that grows with every change. */
  get version(): number {
    return this.tick.value;
  }

  close(): void {
    this.closed = true;
    this.stop?.();
    cancelAnimationFrame(this.frame);
    for (const { timer } of this.failed.values()) clearTimeout(timer);
    this.failed.clear();
  }

  /** Whether all texts are here. */
  get whole(): boolean {
    return this.events.size >= this.total;
  }

  /** How many turns are not here yet. */
  get missing(): number {
    this.tick.value;
    return this.list.length - this.known;
  }

  /** The position of the turn with a number; of several the one that was not undone. */
  locate(number: number): number {
    const { turns } = this;
    if (this.missing === 0) {
      const found = turns.findLastIndex((t) => t?.turn === number && !t.dropped && !t.omitted);
      return found >= 0 ? found : Math.max(turns.findLastIndex((t) => t?.turn === number && !t.omitted), 0);
    }
    let position = number - 1;
    for (const [first, last] of this.undone) if (first <= position) position += last - first + 1;
    return Math.max(0, Math.min(turns.length - 1, position));
  }

  /** The number of the turn at a position. */
  numberAt(position: number): number {
    const turn = this.turns[position];
    if (turn) return turn.turn;
    const before = this.undone.filter(([first]) => first < position);
    return position + 1 - before.reduce((sum, [first, last]) => sum + Math.min(last, position - 1) - first + 1, 0);
  }

  /** How an address names the turn at a position: by its number, and by its position where another one has that number. */
  addressOf(position: number): { turn: number; at: number | null } {
    const turn = this.numberAt(position);
    return { turn, at: this.locate(turn) === position ? null : position + 1 };
  }

  /** Loads turns, by position. */
  needTurns(first: number, last: number): void {
    for (let page = Math.floor(first / TURNS); page <= Math.floor(last / TURNS); page++) {
      this.once(`turns ${page}`, async () => this.addTurns(page * TURNS, await get0<TurnPage>(`${this.base}/turns`, { from: page * TURNS, limit: TURNS })));
    }
  }

  /** Loads events, by number. */
  needEvents(first: number, last: number): void {
    for (let chunk = Math.floor((first - 1) / EVENTS); chunk <= Math.floor((last - 1) / EVENTS); chunk++) {
      this.once(`events ${chunk}`, () => this.loadEvents(chunk * EVENTS + 1, (chunk + 1) * EVENTS));
    }
  }

  /** Asks again for what failed. */
  retry(): void {
    for (const { again, timer } of [...this.failed.values()]) {
      clearTimeout(timer);
      again();
    }
  }

  /** The numbers of the events of a turn, by position. */
  rangeOf(index: number): [number, number] {
    const turn = this.turns[index];
    if (!turn) return [0, -1];
    const next = this.turns[index + 1];
    return [turn.event, next ? next.event - 1 : index + 1 < this.turns.length ? turn.event + 1 : this.total];
  }

  /** The events of a turn; null while they are not here. */
  eventsOf(index: number): EventItem[] | null {
    const [first, last] = this.rangeOf(index);
    if (last < first) return null;
    const out: EventItem[] = [];
    for (let n = first; n <= last; n++) {
      const item = this.events.get(n);
      if (item) out.push(item);
      else if (n === first) {
        this.needEvents(first, Math.min(last, first + 2000));
        return null;
      } else this.needEvents(n, n);
    }
    return out;
  }

  /** The text of one event as a whole. */
  async text(n: number, pointer: string): Promise<string> {
    const item = await get0<{ event: unknown }>(`${this.base}/events/${n}`, {});
    let value: unknown = item.event;
    for (const part of pointer.split('/').slice(1)) value = (value as Record<string, unknown> | undefined)?.[part.replaceAll('~1', '/').replaceAll('~0', '~')];
    return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  }

  /** Loads a part, unless that was asked for. What fails for reasons that may pass is asked for again, less and less often. */
  private once(key: string, load: () => Promise<void>): void {
    if (this.asked.has(key)) return;
    this.asked.add(key);
    let wait: number = AGAIN[0];
    const attempt = () => {
      load().then(
        () => {
          if (this.failed.delete(key) && this.failed.size === 0) this.error = null;
          this.changed();
        },
        (error: Error) => {
          this.error = error;
          this.changed();
          this.failed.set(key, { again: attempt, timer: mayPass(error) ? window.setTimeout(attempt, wait) : 0 });
          wait = Math.min(AGAIN[1], wait * 2);
        },
      );
    };
    attempt();
  }

  private async loadEvents(first: number, last: number): Promise<void> {
    let from = first;
    while (from <= Math.min(last, this.total)) {
      const page = await get0<EventPage>(`${this.base}/events`, { from, limit: last - from + 1 });
      const items = page.events.map(eventItem);
      for (const item of items) this.store.set(item.n, item);
      this.total = Math.max(this.total, page.total);
      this.changed();
      const end = items.at(-1)?.n;
      if (end === undefined || end < from) break;
      from = end + 1;
    }
  }

  private addTurns(offset: number, answer: TurnPage): void {
    if (this.list.length < answer.total) this.list.length = answer.total;
    answer.turns.forEach((turn, i) => {
      if (!this.list[offset + i]) this.known++;
      this.list[offset + i] = turn;
    });
    if (answer.sums) this.sums = answer.sums;
    this.undone = answer.undone ?? [];
    this.omitted = answer.omitted?.turns ?? 0;
    // Only now: turns that the stream sends belong after these.
    if (!this.done && this.follows && !this.stop && !this.closed) this.live();
    this.changed();
  }

  private live(): void {
    let refresh = 0;
    this.stop = follow(() => withQuery(`${this.base}/events/stream`, { from: this.followed + 1 }), {
      event: (data) => {
        this.add(eventItem(data));
        clearTimeout(refresh);
        refresh = window.setTimeout(() => {
          const from = Math.max(0, this.list.length - 5);
          get0<TurnPage>(`${this.base}/turns`, { from, limit: 50 }).then((answer) => this.addTurns(from, answer), () => undefined);
        }, 700);
      },
      partial: (data) => {
        const { text } = data as { text?: unknown };
        this.partial = typeof text === 'string' ? text : '';
        this.changed();
      },
      end: () => {
        this.done = true;
        this.stop?.();
        this.changed();
      },
    });
  }

  private add(item: EventItem): void {
    if (item.n <= this.followed) return;
    this.followed = item.n;
    this.store.set(item.n, item);
    this.total = Math.max(this.total, item.n);
    const { event } = item;
    const update = (change: (turn: Turn) => Turn) => {
      const at = this.list.findLastIndex((t) => t?.turn === event.turn);
      const turn = this.list[at];
      if (turn) this.list[at] = change(turn);
    };
    if (event.kind === 'replied') {
      this.partial = '';
      if (!this.list.some((t) => t?.event === item.n)) {
        this.list.push(turnOf(item));
        this.known++;
      }
    } else if (event.kind === 'observed') update((turn) => ({ ...turn, tool_ms: turn.tool_ms + (event as Observed).millis }));
    else if (event.kind === 'changed' && Array.isArray(event.files)) {
      const files = event.files.length;
      update((turn) => ({ ...turn, files }));
    } else if (event.kind === 'resumed') {
      const last = event.turn ?? 0;
      this.list.forEach((turn, i) => turn && turn.turn > last && (this.list[i] = { ...turn, dropped: true }));
    }
    this.changed();
  }

  /** Draws once for all changes of a frame. */
  private changed(): void {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.tick.value++;
    });
  }
}

/** All about an attempt, and its records once it is known; `live` follows them while it runs. */
export function useEpisode(base: string, live = true): Loaded<Attempt> & { episode: Episode | null } {
  const loaded = useData<Attempt>(base);
  const data = useMemo(() => loaded.data && attemptOf(loaded.data), [loaded.data]);
  const [episode, setEpisode] = useState<Episode | null>(null);
  useEffect(() => {
    if (!data) return;
    const made = new Episode(base, data, live);
    setEpisode(made);
    return () => made.close();
  }, [base, data !== null]);
  const ended = episode?.complete ?? false;
  useEffect(() => {
    // What is known only at the end: outcome, score, files. They are stored a moment after the last event.
    if (!ended || data?.state !== 'running') return undefined;
    const again = setTimeout(loaded.reload, 200);
    return () => clearTimeout(again);
  }, [ended, data]);
  return { ...loaded, data, episode };
}

/** What a call does, in one line. */
export function summary(call: ToolCall): string {
  if (typeof call.arguments === 'string') return call.arguments;
  const { command, path } = call.arguments as { command?: unknown; path?: unknown };
  if (typeof path === 'string') return typeof command === 'string' ? `${command} ${path}` : path;
  if (typeof command === 'string') return command;
  const text = JSON.stringify(call.arguments);
  return text === '{}' ? '' : text;
}

/** The text of a message. */
export function textOf(message: Message): string {
  return (message.content ?? []).map((c) => (c.type === 'text' ? c.text : `[${c.media_type}]`)).join('\n');
}

function turnOf(item: EventItem): Turn {
  const event = item.event as Responded;
  const calls = event.message.calls.map((c): TurnCall => ({ name: c.name, text: summary(c).slice(0, 120), exit_code: null }));
  const { input = 0, cached = 0, output = 0, reasoning = 0 } = event.usage;
  return { turn: event.turn ?? 0, event: item.n, at: event.at ?? 0, model_ms: event.millis, tool_ms: 0, input, cached, output, reasoning, cost: event.cost ?? null, calls, stop: event.stop || null, files: 0 };
}

const get0 = <T,>(path: string, query: Record<string, string | number>): Promise<T> => Promise.resolve().then(() => get<T>(path, query));
