// A table of many rows: the head, and a list that draws the rows in view.
import type { ComponentChildren, RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { savedRow, saveRow } from '../lib/router';
import { useBarWidth, VirtualList, type ListHandle } from './virtual';

/** A column. `hide` names the width below which it is left out. */
export type Column<T> = {
  id: string;
  name: ComponentChildren;
  width: string;
  cell: (row: T, index: number) => ComponentChildren;
  number?: boolean;
  sort?: boolean;
  hide?: 'medium' | 'wide';
  title?: string;
};

type Props<T> = {
  columns: Column<T>[];
  length: number;
  at: (index: number) => T | undefined;
  need?: (first: number, last: number) => void;
  label: string;
  sort?: { by: string; order: 'asc' | 'desc' };
  onSort?: (by: string, order: 'asc' | 'desc') => void;
  selected?: number;
  handle?: RefObject<ListHandle | null>;
  rowClass?: (row: T) => string;
};

/** The table. It fills its parent. */
export function GridTable<T>(props: Props<T>) {
  const { columns, sort } = props;
  const ref = useRef<HTMLDivElement>(null);
  const bar = useBarWidth(ref, props.length);
  const own = useRef<ListHandle>(null);
  const handle = props.handle ?? own;
  useEffect(() => {
    let timer = 0;
    const el = ref.current?.querySelector<HTMLElement>('.virtual');
    const save = () => {
      if (timer) saveRow(handle.current?.first() ?? 0);
      clearTimeout(timer);
      timer = 0;
    };
    const soon = () => {
      clearTimeout(timer);
      timer = window.setTimeout(save, 200);
    };
    el?.addEventListener('scroll', soon);
    // What is clicked or pressed may lead elsewhere.
    for (const act of ['click', 'keydown'] as const) addEventListener(act, save, true);
    return () => {
      clearTimeout(timer);
      el?.removeEventListener('scroll', soon);
      for (const act of ['click', 'keydown'] as const) removeEventListener(act, save, true);
    };
  }, []);
  const back = useRef(savedRow());
  useEffect(() => {
    // The rows come after the list: it can be scrolled only then.
    if (back.current > 0 && props.length > back.current) {
      handle.current?.show(back.current);
      back.current = 0;
    }
  }, [props.length]);
  const widths = (which: (c: Column<T>) => boolean) => columns.filter(which).map((c) => c.width).join(' ');
  const style = {
    '--columns-wide': widths(() => true),
    '--columns-medium': widths((c) => c.hide !== 'wide'),
    '--columns-narrow': widths((c) => !c.hide),
    '--bar-width': `${bar}px`,
  };
  const classOf = (c: Column<T>) => `${c.number ? 'n ' : ''}${c.hide ? `hide-${c.hide}` : ''}`;
  return (
    <div ref={ref} class="grid-table" role="table" aria-label={props.label} aria-rowcount={props.length + 1} style={style}>
      <div role="rowgroup">
        <div class="grid-row grid-head" role="row" aria-rowindex={1}>
          {columns.map((c) => (
            <div key={c.id} role="columnheader" class={classOf(c)} title={c.title} aria-sort={sort?.by === c.id ? (sort.order === 'asc' ? 'ascending' : 'descending') : undefined}>
              {c.sort && props.onSort ? (
                <button type="button" onClick={() => props.onSort?.(c.id, sort?.by === c.id ? (sort.order === 'asc' ? 'desc' : 'asc') : c.number ? 'desc' : 'asc')}>{c.name}</button>
              ) : c.name}
            </div>
          ))}
        </div>
      </div>
      <VirtualList
        length={props.length}
        estimate={39}
        label={props.label}
        role="rowgroup"
        handle={handle}
        onRange={props.need}
        row={(index) => {
          const row = props.at(index);
          return (
            <div class={`grid-row ${props.selected === index ? 'selected' : ''} ${row ? (props.rowClass?.(row) ?? '') : 'pending'}`}>
              {columns.map((c) => (
                <div key={c.id} role="cell" class={classOf(c)}>{row === undefined ? <span class="ghost" /> : c.cell(row, index)}</div>
              ))}
            </div>
          );
        }}
      />
    </div>
  );
}
