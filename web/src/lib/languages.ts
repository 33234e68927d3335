// The languages that are coloured: a chunk of its own.
import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import cpp from 'highlight.js/lib/languages/cpp';
import css from 'highlight.js/lib/languages/css';
import diff from 'highlight.js/lib/languages/diff';
import go from 'highlight.js/lib/languages/go';
import ini from 'highlight.js/lib/languages/ini';
import java from 'highlight.js/lib/languages/java';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import latex from 'highlight.js/lib/languages/latex';
import markdown from 'highlight.js/lib/languages/markdown';
import python from 'highlight.js/lib/languages/python';
import r from 'highlight.js/lib/languages/r';
import rust from 'highlight.js/lib/languages/rust';
import sql from 'highlight.js/lib/languages/sql';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';
import type { Token } from './highlight';

const all = { bash, cpp, css, diff, go, ini, java, javascript, json, latex, markdown, python, r, rust, sql, typescript, xml, yaml };
for (const [name, language] of Object.entries(all)) hljs.registerLanguage(name, language);

/** The tokens of a code. */
export function tokens(code: string, language: string): Token[] | null {
  if (!hljs.getLanguage(language)) return null;
  try {
    const result = hljs.highlight(code, { language, ignoreIllegals: true }) as unknown as { _emitter?: { rootNode?: Node } };
    const root = result._emitter?.rootNode;
    return root ? root.children.map(token) : null;
  } catch {
    return null;
  }
}

type Node = { scope?: string; children: (Node | string)[] };

function token(node: Node | string): Token {
  if (typeof node === 'string') return node;
  const children = node.children.map(token);
  return { scope: (node.scope ?? '').split('.')[0]?.replace(/[^a-z_-]/gi, '') ?? '', children };
}
