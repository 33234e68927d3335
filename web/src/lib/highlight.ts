// Syntax colours. The result is a tree of plain data that becomes text nodes: no markup is made from what a model or a
// file contains. The library is loaded when the first code is shown.
import { signal } from '@preact/signals';

/** A text, or a coloured part with its own parts. */
export type Token = string | { scope: string; children: Token[] };

type Highlighter = { tokens: (code: string, language: string) => Token[] | null };

const MOST = 60_000;
const loaded = signal<Highlighter | null>(null);
const known = new Map<string, Highlight>();
let asked = false;

/** Colours of a code, or null where its language has none. */
export type Highlight = (code: string) => Token[] | null;

/** The colours of a language; null while they are not known (yet). It stays the same function, so results can be kept. */
export function highlighter(language: string | undefined): Highlight | null {
  if (!language) return null;
  if (!loaded.value && !asked) {
    asked = true;
    import('./languages').then(
      (module) => {
        loaded.value = module;
      },
      () => undefined,
    );
  }
  const { value } = loaded;
  if (!value) return null;
  const found = known.get(language) ?? ((code: string) => (code.length > MOST ? null : value.tokens(code, language)));
  known.set(language, found);
  return found;
}

const BY_ENDING: Record<string, string> = {
  py: 'python', sh: 'bash', bash: 'bash', json: 'json', jsonl: 'json', html: 'xml', xml: 'xml', svg: 'xml', md: 'markdown', js: 'javascript', mjs: 'javascript',
  ts: 'typescript', tsx: 'typescript', css: 'css', yaml: 'yaml', yml: 'yaml', toml: 'ini', ini: 'ini', cfg: 'ini', sql: 'sql', c: 'cpp', h: 'cpp', cc: 'cpp', cpp: 'cpp',
  rs: 'rust', go: 'go', java: 'java', tex: 'latex', r: 'r', diff: 'diff', patch: 'diff',
};

/** The language of a file, by the end of its name. */
export function languageOf(path: string): string | undefined {
  const name = path.slice(path.lastIndexOf('/') + 1).toLowerCase();
  if (name === 'makefile' || name === 'dockerfile') return 'bash';
  return BY_ENDING[name.slice(name.lastIndexOf('.') + 1)];
}
