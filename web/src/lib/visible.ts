// Makes characters visible that hide or reorder text. The ranges are those of `trajectory::is_hidden` in Rust.

const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb\u{110bd}\u{110cd}\u{13430}-\u{1343f}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
const SHORT: Record<number, string> = { 0: 'NUL', 7: 'BEL', 8: 'BS', 13: 'CR', 27: 'ESC', 127: 'DEL', 0x200b: 'ZWSP', 0x202e: 'RLO', 0xfeff: 'BOM' };

/** A run of plain text, or the name of a hidden character. */
export type Piece = { text: string; hidden: boolean };

/** Splits a text at its hidden characters. Line ends and tabs are not hidden; `\r\n` counts as a line end. */
export function pieces(source: string): Piece[] {
  const text = source.includes('\r\n') ? source.replaceAll('\r\n', '\n') : source;
  const out: Piece[] = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > from) out.push({ text: text.slice(from, match.index), hidden: false });
    out.push({ text: nameOf(match[0]), hidden: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) out.push({ text: text.slice(from), hidden: false });
  return out;
}

/** The same as one line of text, for attributes and titles. */
export function plain(text: unknown): string {
  const source = typeof text === 'string' ? text : text === undefined || text === null ? '' : String(text);
  return pieces(source).map((p) => (p.hidden ? `[${p.text}]` : p.text)).join('');
}

/** Whether a text has such characters. */
export function hasHidden(text: string): boolean {
  // `test` would leave its place in a global expression, and the next search would start there.
  return text.search(HIDDEN) >= 0;
}

function nameOf(char: string): string {
  const code = char.codePointAt(0) ?? 0;
  return SHORT[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, '0')}`;
}
