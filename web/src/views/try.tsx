// A task for the model: text, files, limits. It starts an episode and goes to it.
import { useRef, useState } from 'preact/hooks';
import { send } from '../lib/api';
import { bytes, count } from '../lib/format';
import { go, link } from '../lib/router';
import type { Info } from '../lib/types';
import { Icon } from '../ui/icons';
import { Empty } from '../ui/parts';
import { CommandLine, Text } from '../ui/text';

const MOST = 6 * 1024 * 1024;
type Chosen = { path: string; file: File };

export function TryView({ info }: { info: Info }) {
  const [task, setTask] = useState('');
  const [files, setFiles] = useState<Chosen[]>([]);
  const [model, setModel] = useState(info.models?.[0] ?? '');
  const [limits, setLimits] = useState<Record<string, string>>({});
  const [over, setOver] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState('');
  const input = useRef<HTMLInputElement>(null);
  const starting = useRef(false);
  if (!info.can.start) return <Empty title="Nothing can be started from here"><p>Episodes are started from the page of a server that has a model.</p><CommandLine text="llm-in-sandbox serve --model NAME --base-url http://localhost:8000/v1" /></Empty>;
  const size = files.reduce((sum, f) => sum + f.file.size, 0);
  const add = (list: FileList | null | undefined) => {
    const added = [...(list ?? [])].map((file) => ({ path: file.name, file }));
    setFiles((old) => [...old.filter((f) => !added.some((a) => a.path === f.path)), ...added]);
  };
  const ready = !busy && task.trim() !== '' && size <= MOST;
  const start = async () => {
    // Two presses come before the first one is drawn.
    if (!ready || starting.current) return;
    starting.current = true;
    setBusy(true);
    setError('');
    try {
      const chosen = Object.entries(limits).filter(([, v]) => v !== '').map(([k, v]) => [k, Number(v)] as const);
      const body = { task, files: await Promise.all(files.map(encode)), ...(model ? { model } : {}), ...(chosen.length > 0 ? { limits: Object.fromEntries(chosen) } : {}), keep: 'every_turn' };
      const made = await send<{ id: string }>('POST', 'v1/episodes', body);
      if (made) go(link(['runs', 'episodes', 'attempts', made.id]));
    } catch (e) {
      setError((e as Error).message);
    } finally {
      starting.current = false;
      setBusy(false);
    }
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    add(event.dataTransfer?.files);
  };
  const field = (name: string, label: string, most: number | null | undefined) => (
    <label class="field"><span>{label}</span><input type="number" min="0" step="any" max={most ?? undefined} placeholder={most ? count(most) : 'none'} value={limits[name] ?? ''} onInput={(e) => setLimits({ ...limits, [name]: e.currentTarget.value })} /></label>
  );
  return (
    <div class="view">
      <div class="page narrow">
        <div class="head"><h1>Try it</h1></div>
        <form class={`try ${over ? 'over' : ''}`} onSubmit={(e) => { e.preventDefault(); void start(); }} onDragOver={(e) => { e.preventDefault(); setOver(true); }} onDragLeave={(e) => !e.currentTarget.contains(e.relatedTarget as Node | null) && setOver(false)} onDrop={drop}>
          <label class="field"><span>Task</span><textarea rows={7} required value={task} onInput={(e) => setTask(e.currentTarget.value)} placeholder="What should the model do? It works in a sandbox with a shell, and finds your files in its input directory."
            onKeyDown={(e) => { if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) void start(); }} /></label>
          <div class="drop">
            <Icon name="file" /><span class="grow">Drop files here, or <button type="button" class="link" onClick={() => input.current?.click()}>choose files</button></span>
            <span class={size > MOST ? 'bad small' : 'soft small'} role="status">{size > MOST ? 'too large: ' : ''}{bytes(size)} of {bytes(MOST)}</span>
            <input ref={input} type="file" multiple class="off-screen" tabIndex={-1} aria-label="Files" onChange={(e) => { add(e.currentTarget.files); e.currentTarget.value = ''; }} />
          </div>
          {files.length > 0 && <ul class="chosen-files">{files.map((f) => <li key={f.path}><Icon name="file" size={14} /><span><Text>{f.path}</Text></span><button type="button" class="icon-button" aria-label={`Remove ${f.path}`} onClick={() => setFiles(files.filter((o) => o !== f))}><Icon name="cross" size={12} /></button><span class="grow" /><span class="soft small nowrap">{bytes(f.file.size)}</span></li>)}</ul>}
          <div class="fields">
            {(info.models?.length ?? 0) > 0 && <label class="field"><span>Model</span><select value={model} onChange={(e) => setModel(e.currentTarget.value)}>{info.models?.map((m) => <option key={m}>{m}</option>)}</select></label>}
            {field('turns', 'Turn limit', info.limits?.turns)}
            {field('tokens', 'Token limit', info.limits?.tokens)}
            {field('time', 'Time limit, seconds', info.limits?.time)}
            {field('cost', 'Cost limit, dollars', info.limits?.cost)}
          </div>
          {error && <div class="notice error" role="alert"><p><Text>{error}</Text></p></div>}
          <div class="try-foot"><button type="submit" class="button primary" disabled={!ready}><Icon name="play" size={14} />{busy ? 'Starting…' : 'Start'}</button><span class="soft small">Ctrl+Enter starts it. You can watch, cancel and fork it.</span></div>
        </form>
      </div>
    </div>
  );
}

async function encode({ path, file }: Chosen): Promise<{ path: string; base64: string }> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let binary = '';
  for (let i = 0; i < bytes.length; i += 0x8000) binary += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return { path, base64: btoa(binary) };
}
