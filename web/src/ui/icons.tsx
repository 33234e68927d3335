// Icons: 16 by 16, drawn with the text's colour.
type Name = keyof typeof PATHS;

const PATHS = {
  check: 'M3.5 8.5 6.5 11.5 12.5 4.5',
  cross: 'M4.5 4.5l7 7M11.5 4.5l-7 7',
  chevron: 'M6 4l4 4-4 4',
  copy: 'M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z',
  sun: 'M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15M3 3l1.2 1.2M11.8 11.8 13 13M3 13l1.2-1.2M11.8 4.2 13 3',
  moon: 'M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7z',
  auto: 'M2 3.5h12v8H2zM5.5 14h5M8 11.5V14',
  search: 'M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.5 10.5l3.5 3.5',
  download: 'M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11',
  fork: 'M4 2.5v11M4 9.5c5 0 8-1 8-5M12 4.5v-2M10 4.5l2-2 2 2',
  play: 'M4.5 3v10l8-5z',
  stop: 'M4 4h8v8H4z',
  file: 'M4 1.5h5l3.5 3.5v9.5H4zM9 1.5V5h3.5',
  folder: 'M1.5 3.5h4.5l1.5 2h7v7.5h-13z',
  image: 'M2 3h12v10H2zM2 11l3.5-3.5 3 3 2-2L14 12M10.5 6h.01',
  terminal: 'M2 3h12v10H2zM4.5 6 7 8l-2.5 2M8.5 10.5h3',
  key: 'M10 6a3 3 0 1 0-2.8 3L8.5 10.5h1.5V12h1.5v1.5H14V11L9.8 6.8',
  external: 'M6.5 3h-4v10.5H13v-4M9 2.5h4.5V7M13.5 2.5l-6 6',
  question: 'M5.5 6a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.8M8 12.6v.1',
  minus: 'M3.5 8h9',
  clock: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 4.5V8l2.5 1.5',
  columns: 'M2 3h12v10H2zM8 3v10',
  menu: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h11',
} as const;

/** An icon. It says nothing by itself: the element around it needs a label or a text. */
export function Icon({ name, size = 16 }: { name: Name; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
