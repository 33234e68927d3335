// The terminal itself: xterm.js on a WebSocket. A chunk of its own.
import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';

type State = 'connecting' | 'open' | 'closed' | 'failed';
type Handlers = { onState: (state: State) => void; onExit: (code: number) => void };

/** Opens a terminal in an element. Returns how to close it. */
export function open(el: HTMLElement, url: URL, handlers: Handlers): () => void {
  loadStyle();
  const restore = adoptStyles();
  const style = getComputedStyle(el);
  const terminal = new Terminal({
    fontFamily: 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace', fontSize: 13, cursorBlink: true, scrollback: 10_000, allowProposedApi: false,
    theme: { background: style.backgroundColor, foreground: style.color, cursor: style.color, selectionBackground: 'rgba(60, 140, 130, 0.4)' },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(el);
  fit.fit();
  url.searchParams.set('cols', String(terminal.cols));
  url.searchParams.set('rows', String(terminal.rows));
  const socket = new WebSocket(url);
  socket.binaryType = 'arraybuffer';
  const encoder = new TextEncoder();
  const say = (data: string | Uint8Array<ArrayBuffer>) => socket.readyState === WebSocket.OPEN && socket.send(data);
  terminal.onData((data) => say(encoder.encode(data)));
  terminal.onBinary((data) => say(Uint8Array.from(data, (c) => c.charCodeAt(0))));
  terminal.onResize(({ cols, rows }) => say(JSON.stringify({ resize: { cols, rows } })));
  socket.onopen = () => {
    handlers.onState('open');
    terminal.focus();
  };
  socket.onclose = () => handlers.onState('closed');
  socket.onerror = () => handlers.onState('failed');
  socket.onmessage = (event: MessageEvent<ArrayBuffer | string>) => {
    if (typeof event.data !== 'string') return terminal.write(new Uint8Array(event.data));
    const message = JSON.parse(event.data) as { exit?: number };
    if (typeof message.exit === 'number') handlers.onExit(message.exit);
  };
  const resize = new ResizeObserver(() => fit.fit());
  resize.observe(el);
  return () => {
    resize.disconnect();
    socket.onclose = null;
    socket.close();
    terminal.dispose();
    restore();
  };
}

function loadStyle(): void {
  if (document.querySelector('link[data-terminal]')) return;
  const link = document.createElement('link');
  link.rel = 'stylesheet';
  link.dataset.terminal = '';
  link.href = new URL('terminal.css', import.meta.url).href;
  document.head.append(link);
}

/**
 * The library writes its rules into `style` elements, which the page's policy forbids. While a terminal is open, such
 * elements hand their rules to style sheets of the document, which the policy allows.
 */
function adoptStyles(): () => void {
  const original = document.createElement;
  const sheets: CSSStyleSheet[] = [];
  const create = original as (tag: string, options?: ElementCreationOptions) => HTMLElement;
  document.createElement = ((tag: string, options?: ElementCreationOptions): HTMLElement => {
    if (tag.toLowerCase() !== 'style') return create.call(document, tag, options);
    const stand = create.call(document, 'template');
    const sheet = new CSSStyleSheet();
    sheets.push(sheet);
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    Object.defineProperty(stand, 'textContent', { set: (css: string) => sheet.replaceSync(css), get: () => '' });
    return stand;
  }) as typeof document.createElement;
  return () => {
    document.createElement = original;
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => !sheets.includes(s));
  };
}
