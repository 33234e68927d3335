// A terminal in a sandbox. Its library is loaded when it is opened.
import { useEffect, useRef, useState } from 'preact/hooks';
import { address, ApiError, get, send } from '../lib/api';
import { useData } from '../lib/data';
import { moment } from '../lib/format';
import { link, route, setQuery } from '../lib/router';
import { shown } from '../lib/theme';
import type { Info, Sandbox } from '../lib/types';
import { Dialog, Empty, Failed, Loading, StateBadge } from '../ui/parts';
import { CommandLine, Text } from '../ui/text';

export function TerminalView({ info }: { info: Info }) {
  const list = useData<{ sandboxes: Sandbox[] }>(info.can.terminal ? 'page/api/sandboxes' : null);
  const [error, setError] = useState('');
  const [ending, setEnding] = useState<string | null>(null);
  const chosen = route.value.query.get('sandbox');
  if (SINGLE || !info.can.terminal) return <Empty title="There is no terminal here"><p>A server gives a terminal in a sandbox.</p><CommandLine text="llm-in-sandbox serve" /></Empty>;
  if (list.error) return <Failed error={list.error} retry={list.reload} />;
  if (!list.data) return <Loading />;
  const create = () => {
    setError('');
    send<{ id: string }>('POST', 'page/api/sandboxes').then(
      (made) => {
        list.reload();
        setQuery({ sandbox: made?.id });
      },
      (e: Error) => setError(e.message),
    );
  };
  const remove = (id: string) => {
    setEnding(null);
    send('DELETE', address('sandboxes', id)).then(
      () => {
        if (id === chosen) setQuery({ sandbox: null });
        list.reload();
      },
      (e: Error) => setError(e.message),
    );
  };
  const sandboxes = list.data.sandboxes;
  return (
    <div class="view">
      <div class="head">
        <h1>Terminal</h1>
        <span class="grow" />
        {error && <span class="bad small" role="alert"><Text>{error}</Text></span>}
        <button type="button" class="button primary" onClick={create}>New sandbox</button>
      </div>
      <div class="terminal-body">
        {sandboxes.length > 0 && (
          <nav class="outline" aria-label="Sandboxes">
            {sandboxes.map((s) => (
              <div key={s.id} class={`sandbox-row ${s.id === chosen ? 'current' : ''}`}>
                <a class="grow mono" href={link(['terminal'], { sandbox: s.id })} aria-current={s.id === chosen ? 'true' : undefined}><Text>{s.id}</Text></a>
                <StateBadge state={s.state} />
                <button type="button" class="link danger" onClick={() => setEnding(s.id)} aria-label={`End sandbox ${s.id}`}>End</button>
                <span class="soft small">{s.template} · since {moment(s.started)}</span>
              </div>
            ))}
          </nav>
        )}
        {ending !== null && (
          <Dialog title="End the sandbox?" onClose={() => setEnding(null)}>
            <p>Its processes end, and its files are lost.</p>
            <footer><button type="button" class="button" onClick={() => setEnding(null)}>Keep it</button><button type="button" class="button danger" onClick={() => remove(ending)}>End it</button></footer>
          </Dialog>
        )}
        {chosen ? <Screen key={chosen} sandbox={chosen} /> : <Empty title={sandboxes.length > 0 ? 'Choose a sandbox' : 'No sandbox is running'}><p>A new sandbox has the image and the limits of the server. It ends with its time limit, or when you end it.</p></Empty>}
      </div>
    </div>
  );
}

function Screen({ sandbox }: { sandbox: string }) {
  const ref = useRef<HTMLDivElement>(null);
  const [state, setState] = useState<'connecting' | 'open' | 'closed' | 'failed'>('connecting');
  const [exit, setExit] = useState<number | null>(null);
  const [error, setError] = useState('');
  const [again, setAgain] = useState(0);
  const recolor = useRef(() => undefined as void);
  const theme = shown.value;
  useEffect(() => recolor.current(), [theme]);
  useEffect(() => {
    const el = ref.current;
    // The export has no terminal, and its bundle not its library.
    if (!el) return;
    let close = () => undefined as void;
    let gone = false;
    setState('connecting');
    setExit(null);
    setError('');
    const library = SINGLE ? Promise.reject(new Error('no terminal')) : import('../lib/terminal');
    library.then(
      ({ open }) => {
        if (gone) return;
        const url = new URL(address('sandboxes', sandbox, 'terminal'), location.href);
        url.protocol = url.protocol.replace('http', 'ws');
        url.hash = '';
        const onState = (now: typeof state) => {
          setState(now);
          // A socket does not say why it was refused; the same address without it does, and refuses what comes without one.
          if (now === 'failed') get(address('sandboxes', sandbox, 'terminal')).catch((e: Error) => e instanceof ApiError && e.status !== 400 && setError(e.message));
        };
        ({ close, recolor: recolor.current } = open(el, url, { onState, onExit: setExit, onError: setError }));
      },
      () => setState('failed'),
    );
    return () => {
      gone = true;
      recolor.current = () => undefined;
      close();
    };
  }, [sandbox, again]);
  return (
    <div class="terminal-screen">
      <div ref={ref} class="terminal" aria-label={`Terminal of sandbox ${sandbox}`} role="group" />
      {(state === 'closed' || state === 'failed') && <div class={`notice ${error ? 'error' : ''}`} role="alert"><p>{error ? <Text>{error}</Text> : exit !== null ? `The shell ended with status ${exit}.` : 'The connection ended.'} <button type="button" class="link" onClick={() => setAgain(again + 1)}>Connect again</button></p></div>}
    </div>
  );
}
