// The terminal itself: xterm.js on a WebSocket. A chunk of its own.
import { FitAddon } from '@xterm/addon-fit';
import { Terminal, type ITheme } from '@xterm/xterm';

type State = 'connecting' | 'open' | 'closed' | 'failed';
type Handlers = { onState: (state: State) => void; onExit: (code: number) => void; onError: (message: string) => void };

/** Opens a terminal in an element. Returns how to close it, and how to take over the colors of the page again. */
export function open(el: HTMLElement, url: URL, handlers: Handlers): { close: () => void; recolor: () => void } {
  loadStyle();
  const restore = adoptStyles();
  const terminal = new Terminal({
    fontFamily: 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace', fontSize: 13, cursorBlink: true, scrollback: 10_000, allowProposedApi: false,
    // Programs choose colors for terminals that are dark, or light.
    minimumContrastRatio: 4.5,
    // Links that a program prints lead nowhere: by default, a click asks and then opens them.
    linkHandler: { activate: () => undefined },
    theme: themeOf(el),
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
    const message = JSON.parse(event.data) as { exit?: unknown; error?: unknown };
    if (typeof message.error === 'string') handlers.onError(message.error);
    else if (typeof message.exit === 'number') handlers.onExit(message.exit);
  };
  const resize = new ResizeObserver(() => fit.fit());
  resize.observe(el);
  const close = () => {
    resize.disconnect();
    socket.onclose = null;
    socket.close();
    terminal.dispose();
    restore();
  };
  const recolor = () => {
    terminal.options.theme = themeOf(el);
  };
  return { close, recolor };
}

/** The colors of an element, and of the 16 of a terminal those that can be read on them. */
function themeOf(el: HTMLElement): ITheme {
  const { backgroundColor: background, color: foreground } = getComputedStyle(el);
  const names = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'] as const;
  const palette: ITheme = {};
  names.forEach((name, i) => {
    const color = colorOf(el, `af-${i}`);
    palette[name] = color;
    palette[`bright${name[0]?.toUpperCase()}${name.slice(1)}` as 'brightRed'] = color;
  });
  // Black is mostly written on other colors; where it is not, the ratio of contrast lightens it.
  return { background, foreground, cursor: foreground, selectionBackground: 'rgba(60, 140, 130, 0.4)', ...palette, black: '#14181c' };
}

function colorOf(el: HTMLElement, style: string): string {
  const probe = document.createElement('span');
  probe.className = style;
  el.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
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
 * The library writes its rules into `style` elements, and colors beyond the palette into `style` attributes, which the page's
 * policy forbids. While a terminal is open, such elements hand their rules to style sheets of the document, and such attributes
 * are set as properties, which the policy allows.
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
  const { setAttribute } = Element.prototype;
  Element.prototype.setAttribute = function set(name: string, value: string): void {
    if (name === 'style' && this instanceof HTMLElement) this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };
  return () => {
    document.createElement = original;
    Element.prototype.setAttribute = setAttribute;
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => !sheets.includes(s));
  };
}
