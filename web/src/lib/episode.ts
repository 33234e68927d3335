// The turns and events of one episode: loaded in parts as they are scrolled to, and followed while it runs.
import { signal } from '@preact/signals';
import { useEffect, useState } from 'preact/hooks';
import { follow, get, withQuery } from './api';
import { embedded } from './embedded';
import type { Attempt, Event, EventItem, EventPage, Message, Sums, ToolCall, Turn, TurnCall, TurnPage, Usage } from './types';

const TURNS = 1000;
const EVENTS = 120;
/** Episodes of at most so many events are loaded whole, so that a search sees every text. */
const WHOLE = 1500;

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
  connected = true;
  private done = false;
  private known = 0;
  private frame = 0;
  private readonly askedTurns = new Set<number>();
  private readonly askedEvents = new Set<number>();
  private stop: (() => void) | null = null;

  constructor(
    readonly base: string,
    attempt: Attempt,
  ) {
    this.total = attempt.events.total;
    this.done = attempt.events.complete || attempt.state !== 'running';
    this.needTurns(0, 0);
    if (this.total <= WHOLE) for (let n = 1; n <= this.total; n += EVENTS) this.needEvents(n, Math.min(n + EVENTS - 1, this.total));
    else this.needEvents(1, Math.min(EVENTS, this.total));
    if (!this.done && !embedded) this.live();
  }

  /** The turns; those that are not here yet are undefined. */
  get turns(): (Turn | undefined)[] {
    this.tick.value;
    return this.list;
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
    this.stop?.();
    cancelAnimationFrame(this.frame);
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

  /** Loads turns, by index. */
  needTurns(first: number, last: number): void {
    for (let page = Math.floor(first / TURNS); page <= Math.floor(last / TURNS); page++) {
      if (this.askedTurns.has(page)) continue;
      this.askedTurns.add(page);
      get0<TurnPage>(`${this.base}/turns`, { from: page * TURNS, limit: TURNS }).then(
        (answer) => this.addTurns(page * TURNS, answer),
        (error: Error) => this.fail(error),
      );
    }
  }

  /** Loads events, by number. */
  needEvents(first: number, last: number): void {
    for (let chunk = Math.floor((first - 1) / EVENTS); chunk <= Math.floor((last - 1) / EVENTS); chunk++) {
      if (this.askedEvents.has(chunk)) continue;
      this.askedEvents.add(chunk);
      void this.loadEvents(chunk * EVENTS + 1, (chunk + 1) * EVENTS);
    }
  }

  /** The numbers of the events of a turn, by index. */
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
    const item = await get0<EventItem>(`${this.base}/events/${n}`, {});
    let value: unknown = item.event;
    for (const part of pointer.split('/').slice(1)) value = (value as Record<string, unknown> | undefined)?.[part.replaceAll('~1', '/').replaceAll('~0', '~')];
    return typeof value === 'string' ? value : JSON.stringify(value);
  }

  private async loadEvents(first: number, last: number): Promise<void> {
    let from = first;
    try {
      while (from <= Math.min(last, this.total)) {
        const page = await get0<EventPage>(`${this.base}/events`, { from, limit: last - from + 1 });
        for (const item of page.events) this.store.set(item.n, item);
        this.total = Math.max(this.total, page.total);
        this.changed();
        const end = page.events.at(-1)?.n;
        if (end === undefined) break;
        from = end + 1;
      }
    } catch (error) {
      this.fail(error as Error);
    }
  }

  private addTurns(offset: number, answer: TurnPage): void {
    if (this.list.length < answer.total) this.list.length = answer.total;
    answer.turns.forEach((turn, i) => {
      if (!this.list[offset + i]) this.known++;
      this.list[offset + i] = turn;
    });
    if (answer.sums) this.sums = answer.sums;
    this.changed();
  }

  private live(): void {
    let refresh = 0;
    this.stop = follow(
      withQuery(`${this.base}/events/stream`, { from: this.total + 1 }),
      {
        event: (data) => {
          this.add(data as EventItem);
          clearTimeout(refresh);
          refresh = window.setTimeout(() => {
            const from = Math.max(0, this.list.length - 5);
            get0<TurnPage>(`${this.base}/turns`, { from, limit: 50 }).then((answer) => this.addTurns(from, answer), () => undefined);
          }, 700);
        },
        partial: (data) => {
          this.partial = (data as { text: string }).text;
          this.changed();
        },
        end: () => {
          this.done = true;
          this.stop?.();
          this.changed();
        },
      },
      (open) => {
        this.connected = open;
        this.changed();
      },
    );
  }

  private add(item: EventItem): void {
    this.store.set(item.n, item);
    this.total = Math.max(this.total, item.n);
    const { event } = item;
    if (event.kind === 'replied') {
      this.partial = '';
      if (!this.list.some((t) => t?.event === item.n)) {
        this.list.push(turnOf(item));
        this.known++;
      }
    }
    if (event.kind === 'observed') {
      const at = this.list.findLastIndex((t) => t?.turn === event.turn);
      const turn = this.list[at];
      if (turn) this.list[at] = { ...turn, tool_ms: turn.tool_ms + Number(event.millis ?? 0) };
    }
    if (event.kind === 'changed') {
      const at = this.list.findLastIndex((t) => t?.turn === event.turn);
      const turn = this.list[at];
      if (turn && Array.isArray(event.files)) this.list[at] = { ...turn, files: event.files.length };
    }
    this.changed();
  }

  private fail(error: Error): void {
    this.error = error;
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

/** The records of an attempt, once it is known. */
export function useEpisode(base: string, attempt: Attempt | null): Episode | null {
  const [episode, setEpisode] = useState<Episode | null>(null);
  useEffect(() => {
    if (!attempt) return;
    const made = new Episode(base, attempt);
    setEpisode(made);
    return () => made.close();
  }, [base, attempt !== null]);
  return episode;
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
export function textOf(message: Message | undefined): string {
  if (!message) return '';
  if (typeof message.text === 'string' && !message.content) return message.text;
  return (message.content ?? []).map((c) => (c.type === 'text' ? c.text : `[${c.media_type}]`)).join('\n');
}

function turnOf(item: EventItem): Turn {
  const event = item.event as Event & { message?: Message; usage?: Usage; millis?: number; stop?: string; cost?: number };
  const calls = (event.message?.calls ?? []).map((c): TurnCall => ({ name: c.name, text: summary(c).slice(0, 120), exit_code: null }));
  const usage = event.usage ?? {};
  return {
    turn: Number(event.turn ?? 0), event: item.n, at: Number(event.at ?? 0), model_ms: Number(event.millis ?? 0), tool_ms: 0, input: usage.input ?? 0, cached: usage.cached ?? 0,
    output: usage.output ?? 0, reasoning: usage.reasoning ?? 0, cost: event.cost ?? null, calls, stop: typeof event.stop === 'string' ? event.stop : null, files: 0,
  };
}

const get0 = <T,>(path: string, query: Record<string, string | number>): Promise<T> => Promise.resolve().then(() => get<T>(path, query));
