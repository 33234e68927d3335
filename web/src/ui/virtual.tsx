// A list that draws only the rows in view. Rows have any height and may change it; what the reader looks at does not
// move then. Browsers cannot scroll arbitrarily far, so a very long list is scrolled in a shorter frame.
import type { ComponentChildren, RefObject } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Heights } from '../lib/heights';
import { Boundary } from './parts';
import { Text } from './text';

/** What callers do with a list. */
export type ListHandle = {
  /** Scrolls a row to the top, or just into view. */
  show: (index: number, where?: 'top' | 'near') => void;
  /** The first row in view. */
  first: () => number;
  /** Whether the end is in view. */
  atEnd: () => boolean;
};

type Props = {
  length: number;
  row: (index: number) => ComponentChildren;
  /** A key that stays with a row; a changed one makes a new row. */
  rowKey?: (index: number) => string | number;
  estimate: number;
  label: string;
  handle?: RefObject<ListHandle | null>;
  onRange?: (first: number, last: number) => void;
  class?: string;
  /** Accessibility role of the list; rows get the matching one. */
  role?: 'list' | 'feed' | 'rowgroup';
  /** Where to start. */
  start?: number;
  /** Stays at the end while rows are added, if the reader is there. */
  follow?: boolean;
  children?: ComponentChildren;
};

/** The longest frame. Firefox stops at about 17 million pixels. */
const MOST = 8_000_000;
const OVERSCAN = 600;
/** No row to stay at, and the end of a list that grows. */
const NONE = -1;
const END = -2;

/** The list. It fills its parent, which must have a height. */
export function VirtualList(props: Props) {
  const { length, row, estimate, label, onRange } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const heights = useMemo(() => new Heights(length, estimate), [estimate]);
  if (heights.length !== length) heights.resize(length);
  const [, redraw] = useState(0);
  const state = useRef({ top: 0, view: 800, shift: 0, last: 0, own: -1, idle: 0, frame: 0, wasAtEnd: false, target: NONE, placed: 0 });
  const s = state.current;

  const total = heights.total;
  const frame = Math.min(total, MOST);
  const virtualTop = Math.max(0, s.top + s.shift);
  const first = length === 0 ? 0 : heights.at(Math.max(0, virtualTop - OVERSCAN));
  const last = length === 0 ? -1 : heights.at(virtualTop + s.view + OVERSCAN);

  const schedule = () => {
    if (s.frame) return;
    s.frame = requestAnimationFrame(() => {
      s.frame = 0;
      redraw((n) => n + 1);
    });
  };

  const place = (offset: number) => {
    const el = scroller.current;
    if (!el) return;
    const whole = heights.total;
    const wanted = Math.max(0, Math.min(offset, whole - s.view));
    const short = Math.min(whole, MOST);
    const top = whole <= MOST ? wanted : (wanted / Math.max(1, whole - s.view)) * (short - s.view);
    s.own = Math.round(top);
    el.scrollTop = top;
    s.top = el.scrollTop;
    s.last = s.top;
    s.placed = s.top;
    s.shift = whole <= MOST ? 0 : wanted - s.top;
    s.wasAtEnd = wanted + s.view >= whole - 4;
    redraw((n) => n + 1);
  };

  const onScroll = () => {
    const el = scroller.current;
    if (!el) return;
    const top = el.scrollTop;
    const whole = heights.total;
    if (Math.abs(top - s.placed) > s.view / 2) s.target = NONE;
    if (whole > MOST && Math.round(top) !== s.own) {
      const jump = Math.abs(top - s.last) > s.view * 2;
      if (jump) s.shift = (top / (MOST - s.view)) * (whole - s.view) - top;
      clearTimeout(s.idle);
      // Not while a scroll is on its way of which no event has told yet: that one comes here again.
      s.idle = window.setTimeout(() => el.scrollTop === s.top && place(s.top + s.shift), 160);
    } else if (whole <= MOST) s.shift = 0;
    s.own = -1;
    s.top = top;
    s.last = top;
    s.wasAtEnd = top + s.shift + s.view >= whole - 4;
    schedule();
  };

  /** Goes to a row and stays there while rows are loaded and measured, until the reader moves. */
  const goTo = (index: number) => {
    const target = props.follow && index === length - 1 ? END : index;
    s.target = target;
    place(offsetOf(target));
    requestAnimationFrame(() => requestAnimationFrame(() => s.target === target && place(offsetOf(target))));
  };
  const offsetOf = (target: number) => (target === END ? heights.total : heights.before(target));

  const handle: ListHandle = {
    show: (index, where = 'top') => {
      const start = heights.before(index);
      const height = heights.of(index);
      const view = s.top + s.shift;
      if (where === 'near' && start >= view && start + Math.min(height, s.view) <= view + s.view) return;
      goTo(index);
    },
    first: () => heights.at(s.top + s.shift + 1),
    atEnd: () => s.wasAtEnd,
  };
  if (props.handle) props.handle.current = handle;

  const observer = useMemo(
    () =>
      new ResizeObserver((entries) => {
        let above = 0;
        let changed = false;
        const top = s.top + s.shift;
        for (const entry of entries) {
          const el = entry.target as HTMLElement;
          const index = Number(el.dataset.index);
          if (!el.isConnected || Number.isNaN(index)) continue;
          const height = entry.borderBoxSize[0]?.blockSize ?? el.offsetHeight;
          const start = heights.before(index);
          const old = heights.of(index);
          const change = heights.set(index, height);
          if (change === 0) continue;
          changed = true;
          if (start + old <= top + above + 1 && start < top + above) above += change;
        }
        if (!changed) return;
        if (s.target !== NONE) return place(offsetOf(s.target));
        if (above !== 0 && scroller.current) {
          if (heights.total <= MOST) {
            scroller.current.scrollTop += above;
            s.top = scroller.current.scrollTop;
            s.last = s.top;
          } else s.shift += above;
        }
        redraw((n) => n + 1);
      }),
    [heights],
  );

  useLayoutEffect(() => {
    const el = scroller.current;
    if (!el) return;
    s.view = el.clientHeight || 800;
    const resize = new ResizeObserver(() => {
      if (el.clientHeight && el.clientHeight !== s.view) {
        s.view = el.clientHeight;
        schedule();
      }
    });
    resize.observe(el);
    const moved = () => {
      s.target = NONE;
    };
    const inputs = ['wheel', 'touchstart', 'pointerdown', 'keydown'] as const;
    for (const input of inputs) el.addEventListener(input, moved, { passive: true });
    if (props.start) goTo(props.start);
    else redraw((n) => n + 1);
    return () => {
      for (const input of inputs) el.removeEventListener(input, moved);
      resize.disconnect();
      observer.disconnect();
      cancelAnimationFrame(s.frame);
      clearTimeout(s.idle);
    };
  }, []);

  useEffect(() => {
    if (length > 0) onRange?.(first, last);
  }, [first, last, length]);

  useLayoutEffect(() => {
    if (props.follow && s.wasAtEnd) place(heights.total);
  }, [length, total]);

  const rows = [];
  let y = heights.before(first) - s.shift;
  for (let index = first; index <= last; index++) {
    rows.push(
      <Row key={props.rowKey?.(index) ?? index} index={index} length={length} y={y} observer={observer} role={props.role}>
        <Boundary failed={(error) => <p class="row-failed bad small" role="alert">This row cannot be shown: <Text>{error.message}</Text></p>}>{row(index)}</Boundary>
      </Row>,
    );
    y += heights.of(index);
  }
  // Rows of a table belong to the element that scrolls; other lists are a region with a list in it.
  const table = props.role === 'rowgroup';
  // A list without rows is none to a screen reader.
  const plain = table || length === 0;
  return (
    <div
      ref={scroller}
      class={`virtual ${props.class ?? ''}`}
      onScroll={onScroll}
      tabIndex={0}
      role={table ? 'rowgroup' : 'region'}
      aria-label={table ? undefined : label}
    >
      {props.children}
      <div class="virtual-frame" role={plain ? undefined : (props.role ?? 'list')} aria-label={plain ? undefined : label} style={{ height: `${frame}px` }}>
        {rows}
      </div>
    </div>
  );
}

/** The width of the scrollbar of the list in an element, for a head above it. */
export function useBarWidth(ref: RefObject<HTMLElement | null>, length: number): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const el = ref.current?.querySelector<HTMLElement>('.virtual');
    if (el) setWidth(el.offsetWidth - el.clientWidth);
  }, [length]);
  return width;
}

type RowProps = { index: number; length: number; y: number; observer: ResizeObserver; role?: Props['role']; children: ComponentChildren };

function Row({ index, length, y, observer, role, children }: RowProps) {
  const ref = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const el = ref.current;
    if (!el) return;
    // Observed again, a row is measured again: with another index its height belongs elsewhere.
    observer.observe(el);
    return () => observer.unobserve(el);
  }, [observer, index]);
  const own = role === 'rowgroup' ? 'row' : role === 'feed' ? 'article' : 'listitem';
  const position = own === 'row' ? { 'aria-rowindex': index + 2 } : { 'aria-posinset': index + 1, 'aria-setsize': length };
  return (
    <div ref={ref} class="virtual-row" data-index={index} role={own} {...position} style={{ transform: `translateY(${y}px)` }}>
      {children}
    </div>
  );
}
