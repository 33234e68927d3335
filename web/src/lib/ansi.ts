// Colours of terminal output. Only colours and weights take effect: every other control sequence is dropped, and a
// carriage return keeps the last state of its line, as a terminal would show a progress bar.

/** A run of text with one style, as class names. */
export type Styled = { text: string; style: string };

const ESC = '\u001b';
const SEQUENCE = /\u001b(?:\[([0-9;:?]*)([ -/]*)([@-~])|\][^\u0007\u001b]{0,4096}(?:\u0007|\u001b\\)|[()][A-Z0-9]|[=>78cDEHM])/g;

/** Splits output at changes of style. Without control sequences the text comes back as it is. */
export function ansi(source: string): Styled[] {
  const text = overwrite(source);
  if (!text.includes(ESC)) return [{ text, style: '' }];
  const out: Styled[] = [];
  const state: State = { fg: '', bg: '', bold: false, dim: false, italic: false, under: false, inverse: false };
  let from = 0;
  const push = (part: string) => {
    if (part) out.push({ text: part, style: classes(state) });
  };
  for (const match of text.matchAll(SEQUENCE)) {
    push(text.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[3] === 'm') apply(state, match[1] ?? '');
  }
  push(text.slice(from));
  return out;
}

/** The text without sequences, for copying and for comparing. */
export function withoutAnsi(source: string): string {
  return source.includes(ESC) || source.includes('\r') ? ansi(source).map((s) => s.text).join('') : source;
}

type State = { fg: string; bg: string; bold: boolean; dim: boolean; italic: boolean; under: boolean; inverse: boolean };

function overwrite(text: string): string {
  if (!/\r(?!\n)/.test(text)) return text.includes('\r') ? text.replaceAll('\r\n', '\n') : text;
  const lines = text.replace(/\r+\n/g, '\n').split('\n');
  return lines.map((line) => (line.includes('\r') ? lastPart(line) : line)).join('\n');
}

function lastPart(line: string): string {
  const parts = line.split('\r').filter((part) => part !== '');
  return parts[parts.length - 1] ?? '';
}

function apply(state: State, parameters: string): void {
  const codes = parameters.split(/[;:]/).map((p) => (p === '' ? 0 : Number(p)));
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0;
    if (code === 0) Object.assign(state, { fg: '', bg: '', bold: false, dim: false, italic: false, under: false, inverse: false });
    else if (code === 1) state.bold = true;
    else if (code === 2) state.dim = true;
    else if (code === 3) state.italic = true;
    else if (code === 4) state.under = true;
    else if (code === 7) state.inverse = true;
    else if (code === 22) state.bold = state.dim = false;
    else if (code === 23) state.italic = false;
    else if (code === 24) state.under = false;
    else if (code === 27) state.inverse = false;
    else if (code >= 30 && code <= 37) state.fg = String(code - 30);
    else if (code >= 90 && code <= 97) state.fg = String(code - 90 + 8);
    else if (code === 39) state.fg = '';
    else if (code >= 40 && code <= 47) state.bg = String(code - 40);
    else if (code >= 100 && code <= 107) state.bg = String(code - 100 + 8);
    else if (code === 49) state.bg = '';
    else if (code === 38 || code === 48) {
      const [value, used] = extended(codes, i + 1);
      if (code === 38) state.fg = value;
      else state.bg = value;
      i += used;
    }
  }
}

/** Colours of 256 and of 16 million, brought to the 16 of the palette, which keep their contrast in both themes. */
function extended(codes: number[], at: number): [string, number] {
  if (codes[at] === 5) {
    const n = codes[at + 1] ?? 0;
    if (n < 16) return [String(n), 2];
    if (n >= 232) return [n < 244 ? '8' : '7', 2];
    const c = n - 16;
    return [nearest(Math.floor(c / 36) * 51, (Math.floor(c / 6) % 6) * 51, (c % 6) * 51), 2];
  }
  if (codes[at] === 2) return [nearest(codes[at + 1] ?? 0, codes[at + 2] ?? 0, codes[at + 3] ?? 0), 4];
  return ['', 0];
}

function nearest(r: number, g: number, b: number): string {
  const bit = (v: number) => (v > 110 ? 1 : 0);
  const base = bit(r) + bit(g) * 2 + bit(b) * 4;
  return String(base + (Math.max(r, g, b) > 200 && base !== 7 ? 8 : 0));
}

function classes(state: State): string {
  const names: string[] = [];
  const [fg, bg] = state.inverse ? [state.bg || 'paper', state.fg || 'ink'] : [state.fg, state.bg];
  if (fg) names.push(`af-${fg}`);
  if (bg) names.push(`ab-${bg}`);
  if (state.bold) names.push('a-bold');
  if (state.dim) names.push('a-dim');
  if (state.italic) names.push('a-italic');
  if (state.under) names.push('a-under');
  return names.join(' ');
}
