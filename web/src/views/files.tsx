// Files that a task came with and that the model left, with previews, and all files that the tool calls changed.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { get, withQuery } from '../lib/api';
import { useData } from '../lib/data';
import { embedded, fileOf } from '../lib/embedded';
import { bytes, count } from '../lib/format';
import { languageOf } from '../lib/highlight';
import { link, route, setQuery } from '../lib/router';
import type { AllChanges, Attempt, FileEntry, Files, FileText } from '../lib/types';
import { Icon } from '../ui/icons';
import { Badge, Choice, Empty, Failed, Loading } from '../ui/parts';
import { Block, Text } from '../ui/text';

type Props = { attempt: Attempt; base: string; here: string[] };

export function FilesTab({ attempt, base, here }: Props) {
  const files = useData<Files>(`${base}/files`);
  const changes = useData<AllChanges>(`${base}/changes`);
  const chosen = route.value.query.get('file');
  if (files.error && !changes.data) return <Failed error={files.error} retry={files.reload} />;
  if (!files.data && !files.error) return <Loading what="Loading the files" />;
  const all = [...(files.data?.output ?? []).map((f) => ({ area: 'output', file: f })), ...(files.data?.input ?? []).map((f) => ({ area: 'input', file: f }))];
  const current = all.find((f) => `${f.area}/${f.file.path}` === chosen) ?? (chosen ? undefined : all[0]);
  const changed = changes.data?.files ?? [];
  const none = noOutput(attempt, files.data);
  if (all.length === 0 && changed.length === 0) return <Empty title="No files are recorded"><p>{none}</p></Empty>;
  return (
    <div class="files">
      <nav class="file-list" aria-label="Files">
        <Area title="Output" area="output" archive={files.data?.truncated ? undefined : `${base}/archive`} files={files.data?.output ?? []} here={here} current={current?.area === 'output' ? current.file.path : ''} none={none} />
        <Area title="Input" area="input" files={files.data?.input ?? []} here={here} current={current?.area === 'input' ? current.file.path : ''} none={files.data?.input_known === false ? 'The input is not recorded.' : 'The task came without files.'} />
        {changed.length > 0 && (
          <section>
            <h2>Changed files</h2>
            {changed.map((f) => (
              <div key={f.path} class="file-row changed">
                <span class="mono"><Text>{f.path}</Text></span>
                <span class="turn-links"><Badge>{f.how}</Badge><span class="soft">{f.turns.length === 1 ? 'turn' : 'turns'}</span>{f.turns.slice(0, 12).map((t) => <a key={t} href={link(here, { turn: t })} aria-label={`turn ${t}`}>{t}</a>)}{f.turns.length > 12 && <span class="soft">…</span>}</span>
              </div>
            ))}
          </section>
        )}
        {files.data?.truncated && <p class="soft small">Not all files are listed.</p>}
      </nav>
      <div class="preview">{current ? <Preview key={`${current.area}/${current.file.path}`} base={base} area={current.area} file={current.file} /> : chosen ? <Empty title="There is no such file" /> : null}</div>
    </div>
  );
}

/** Why there are no output files: records of some kinds keep none, whatever the model left. */
function noOutput(attempt: Attempt, files: Files | null): string {
  if (attempt.run.kind === 'file') return 'The trajectory has no copy of the files.';
  if (attempt.state === 'running') return 'Files are copied when the episode ends.';
  return files?.output_known ? 'The model left no files.' : 'This record does not keep the files that the model left.';
}

function Area({ title, area, archive, files, here, current, none }: { title: string; area: string; archive?: string; files: FileEntry[]; here: string[]; current: string; none: string }) {
  return (
    <section>
      <h2>{title}{archive && !embedded && files.length > 1 && <a class="archive" href={archive} download>All as ZIP</a>}</h2>
      {files.length === 0 ? <p class="soft small">{none}</p> : files.map((f) => (
        <a key={f.path} class="file-row" href={link(here, { tab: 'files', file: `${area}/${f.path}` })} aria-current={f.path === current ? 'true' : undefined}>
          <Icon name={f.show === 'image' || f.show === 'svg' ? 'image' : 'file'} size={14} /><span class="grow"><Text>{f.path}</Text></span><span class="soft small">{bytes(f.size)}</span>
        </a>
      ))}
    </section>
  );
}

function Preview({ base, area, file }: { base: string; area: string; file: FileEntry }) {
  const path = `${base}/files/${area}/${file.path.split('/').map(encodeURIComponent).join('/')}`;
  const source = useSource(path, file);
  return (
    <>
      <div class="preview-head">
        <h2><Text>{file.path}</Text></h2>
        <span class="soft">{bytes(file.size)} · <Text>{file.type}</Text></span>
        <span class="grow" />
        {source && <a class="button" href={embedded ? source : withQuery(path, { download: 1 })} download={file.path.split('/').at(-1)}><Icon name="download" size={14} />Download</a>}
      </div>
      <div class="preview-body">{source === null ? <p class="soft">This file is not part of the copy.</p> : <Shown path={path} source={source} file={file} />}</div>
    </>
  );
}

/** The address of the bytes. In an export they are in the document. */
function useSource(path: string, file: FileEntry): string | null {
  const [source, setSource] = useState<string | null>(embedded ? null : path);
  useEffect(() => {
    if (!embedded) return;
    const found = fileOf(path);
    // HTML and SVG of an export are shown as text: a blob would have the document's origin.
    if (!found) return;
    const type = ['html', 'svg'].includes(file.show) ? 'text/plain' : found.type;
    const made = URL.createObjectURL(new Blob([found.bytes], { type }));
    setSource(made);
    return () => URL.revokeObjectURL(made);
  }, [path]);
  return source;
}

function Shown({ path, source, file }: { path: string; source: string; file: FileEntry }) {
  switch (file.show) {
    case 'image':
      return <img class="picture" src={source} alt={`content of ${file.path}`} />;
    case 'svg':
      return <>{!embedded && <img class="picture" src={source} alt={`content of ${file.path}`} />}<TextPreview path={path} file={file} /></>;
    case 'pdf':
      return <PdfPreview source={source} file={file} />;
    case 'audio':
      return <audio controls src={source} preload="metadata" />;
    case 'video':
      return <video class="picture" controls src={source} preload="metadata" />;
    case 'html':
      return <HtmlPreview path={path} source={source} file={file} />;
    case 'csv':
    case 'text':
    case 'json':
    case 'markdown':
      return <TextPreview path={path} file={file} />;
    default:
      return <p class="soft">There is no preview for this type.</p>;
  }
}

/** The browser's viewer runs scripts of a document: they cannot reach the page, but open messages, so the reader decides. */
function PdfPreview({ source, file }: { source: string; file: FileEntry }) {
  const [open, setOpen] = useState(false);
  if (open) return <iframe class="frame" src={source} title={`content of ${file.path}`} />;
  return (
    <div class="notice">
      <p>The browser's viewer runs scripts that a document may have. They cannot reach this page, but may open messages. <button type="button" class="link" onClick={() => setOpen(true)}>Show the document</button></p>
    </div>
  );
}

function HtmlPreview({ path, source, file }: { path: string; source: string; file: FileEntry }) {
  const text = !!embedded || isText();
  return (
    <>
      {!embedded && <ShownAs text={text} names={['Page', 'Source']} />}
      {text ? <TextPreview path={path} file={file} /> : <iframe class="frame" sandbox="" src={source} title={`content of ${file.path}, without scripts`} referrerpolicy="no-referrer" />}
    </>
  );
}

/** Whether the address asks for the text of a file that can be shown in another way. */
const isText = (): boolean => route.value.query.get('as') === 'text';

function ShownAs({ text, names: [drawn, plain] }: { text: boolean; names: [string, string] }) {
  return <Choice label="How to show it" value={text ? 'text' : ''} onChange={(as) => setQuery({ as })} options={[{ value: '', name: drawn }, { value: 'text', name: plain }]} />;
}

const PART = 262144;

function TextPreview({ path, file }: { path: string; file: FileEntry }) {
  const [parts, setParts] = useState<FileText[]>([]);
  const [error, setError] = useState<Error | null>(null);
  const raw = isText();
  const load = (from: number) => {
    Promise.resolve().then(() => get<FileText>(path, { text: 1, from, limit: PART })).then((part) => setParts((old) => (old.some((p) => p.from === part.from) ? old : [...old, part])), setError);
  };
  useEffect(() => load(0), [path]);
  if (error) return <Failed error={error} />;
  const last = parts.at(-1);
  if (!last) return <Loading />;
  const text = parts.map((p) => p.text).join('');
  return (
    <>
      {!last.utf8 && <p class="warn small">Not all of it is text: other bytes are shown as �.</p>}
      {file.show === 'csv' && <ShownAs text={raw} names={['Table', 'Text']} />}
      {file.show === 'csv' && !raw ? <Csv text={text} tabs={file.path.endsWith('.tsv')} partly={last.end < last.size} /> : <Block text={text} kind="code" language={languageOf(file.path)} lines={200} open label={`content of ${file.path}`} />}
      {last.end < last.size && <button type="button" class="link" onClick={() => load(last.end)}>Load {bytes(Math.min(PART, last.size - last.end))} more of {bytes(last.size)}</button>}
    </>
  );
}

const ROWS = 500;
const COLUMNS = 60;
/** Rows that are read. */
const PARSED = 5000;
const NUMBER = /^-?[\d.,]+%?$/;

function Csv({ text, tabs, partly }: { text: string; tabs: boolean; partly: boolean }) {
  const rows = useMemo(() => parseCsv(text, tabs ? '\t' : ','), [text, tabs]);
  const [head = [], ...body] = rows;
  const shown = body.slice(0, ROWS);
  // A column of numbers, with its head, is aligned to the right.
  const numbers = head.slice(0, COLUMNS).map((_, i) => shown.some((r) => r[i]) && shown.every((r) => !r[i] || NUMBER.test(r[i])));
  const more = partly || rows.length > PARSED;
  const align = (i: number) => (numbers[i] ? 'n' : undefined);
  return (
    <div class="table-wrap" tabIndex={0} role="region" aria-label="table">
      <table class="csv">
        <thead><tr>{head.slice(0, COLUMNS).map((c, i) => <th key={i} scope="col" class={align(i)}><Text>{c}</Text></th>)}</tr></thead>
        <tbody>{shown.map((r, i) => <tr key={i}>{r.slice(0, COLUMNS).map((c, j) => <td key={j} class={align(j)}><Text>{c}</Text></td>)}</tr>)}</tbody>
      </table>
      {(body.length > ROWS || head.length > COLUMNS) && <p class="soft small">Shown: {body.length > ROWS ? `the first ${ROWS} of ${more ? 'more than ' : ''}${count(body.length)} rows` : 'all rows'}{head.length > COLUMNS ? `, the first ${COLUMNS} of ${count(head.length)} columns` : ''}.</p>}
    </div>
  );
}

/** Rows of a CSV file; quotes may contain separators and line ends. */
export function parseCsv(text: string, separator: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let field = '';
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c === '"' && text[i + 1] === '"') {
        field += '"';
        i++;
      } else if (c === '"') quoted = false;
      else field += c;
    } else if (c === '"' && field === '') quoted = true;
    else if (c === separator) {
      row.push(field);
      field = '';
    } else if (c === '\n') {
      row.push(field.replace(/\r$/, ''));
      rows.push(row);
      row = [];
      field = '';
    } else field += c;
    if (rows.length > PARSED) return rows;
  }
  if (field !== '' || row.length > 0) rows.push([...row, field]);
  return rows;
}
