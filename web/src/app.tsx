// The frame: header, the view that the address names, help, and the form that asks for a key.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { locked, login, lost } from './lib/api';
import { useData } from './lib/data';
import { embedded } from './lib/embedded';
import { focusSearch, useFrameKeys } from './lib/keys';
import { go, link, route } from './lib/router';
import { choose, theme, type Theme } from './lib/theme';
import type { Info } from './lib/types';
import { Icon } from './ui/icons';
import { Badge, Boundary, Dialog, Empty, Failed, Loading } from './ui/parts';
import { CompareView } from './views/compare';
import { EpisodeView } from './views/episode';
import { RunView } from './views/run';
import { RunsView } from './views/runs';
import { SideView } from './views/side';
import { TerminalView } from './views/terminal';
import { TrainingView } from './views/training';
import { TryView } from './views/try';

export function App() {
  return locked.value ? <Login /> : <Page />;
}

function Page() {
  const info = useData<Info>('page/api/info');
  const [help, setHelp] = useState(false);
  const { path } = route.value;
  const place = path[0] ?? 'runs';
  useFrameKeys({
    '?': () => setHelp(true),
    '/': focusSearch,
    g: () => go(link(['runs'])),
  });
  const view = viewKey(path);
  const first = useRef(view);
  useEffect(() => {
    // A view that knows a better name sets it once it is loaded.
    document.title = [TITLES[place], info.data?.title || 'llm-in-sandbox'].filter(Boolean).join(' · ');
  }, [view, info.data]);
  useEffect(() => {
    // Who navigates by keys or listens goes on in the new view.
    if (first.current !== view) document.getElementById('main')?.focus({ preventScroll: true });
    first.current = view;
  }, [view]);
  return (
    <>
      <Header place={place} info={info.data} onHelp={() => setHelp(true)} />
      <main id="main" tabIndex={-1}>
        {info.error ? <Failed error={info.error} retry={info.reload} /> : !info.data ? <Loading /> : (
          <Boundary key={view} failed={(error, retry) => <div class="view"><Failed error={error} retry={retry} /></div>}><View info={info.data} path={path} /></Boundary>
        )}
      </main>
      {help && <Help onClose={() => setHelp(false)} />}
    </>
  );
}

const TITLES: Record<string, string> = { runs: 'Runs', compare: 'Compare', side: 'Side by side', training: 'Training', try: 'Try it', terminal: 'Terminal' };

/** A new view starts fresh; the options of a view do not make a new one. */
const viewKey = (path: string[]): string => path.join('/');

function View({ info, path }: { info: Info; path: string[] }) {
  const [place = 'runs', id, part, attempt] = path;
  if (place === 'runs' && !id) return <RunsView info={info} />;
  if (place === 'runs' && id && part === 'attempts' && attempt !== undefined) return <EpisodeView info={info} run={id} attempt={attempt} />;
  if (place === 'runs' && id) return <RunView info={info} run={id} />;
  if (place === 'compare') return <CompareView info={info} />;
  if (place === 'side') return <SideView />;
  if (place === 'training') return <TrainingView />;
  if (place === 'try') return <TryView info={info} />;
  if (place === 'terminal') return <TerminalView info={info} />;
  return <Empty title="There is no such view"><p>The address may be old or mistyped.</p><p><a href="#/runs">All runs</a></p></Empty>;
}

function Header({ place, info, onHelp }: { place: string; info: Info | null; onHelp: () => void }) {
  const item = (id: string, name: string, show = true) =>
    show && <a href={`#/${id}`} aria-current={place === id || (id === 'compare' && place === 'side') ? 'page' : undefined}>{name}</a>;
  return (
    <header class="top">
      <a class="skip-link" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById('main')?.focus(); }}>Skip to content</a>
      <a class="brand" href="#/runs">llm-in-sandbox</a>
      <nav aria-label="Views">
        {item('runs', 'Runs')}
        {item('compare', 'Compare')}
        {item('training', 'Training')}
        {item('try', 'Try it', info?.can.start ?? false)}
        {item('terminal', 'Terminal', (info?.can.terminal ?? false) && !SINGLE)}
      </nav>
      <div class="tools">
        {lost.value > 0 && <span role="status"><Badge tone="warn">connection lost, trying again</Badge></span>}
        {info?.mode === 'export' && <span class="badge">copy</span>}
        <ThemeSwitch />
        <button type="button" class="icon-button" aria-label="Keyboard and help" title="Keyboard and help (?)" onClick={onHelp}><Icon name="question" /></button>
      </div>
    </header>
  );
}

const NEXT: Record<Theme, Theme> = { system: 'light', light: 'dark', dark: 'system' };
const ICON = { system: 'auto', light: 'sun', dark: 'moon' } as const;

function ThemeSwitch() {
  const now = theme.value;
  const label = `Theme: ${now}. Switch to ${NEXT[now]}`;
  return <button type="button" class="icon-button" aria-label={label} title={label} onClick={() => choose(NEXT[now])}><Icon name={ICON[now]} /></button>;
}

function Help({ onClose }: { onClose: () => void }) {
  const keys: [string, ComponentChildren][] = [
    ['j / k', 'next, previous turn or row'],
    ['Enter', 'open the chosen row'],
    ['o', 'unfold or fold the turn'],
    ['n / p', 'next, previous attempt'],
    ['g / G', 'in an episode: first turn, last turn'],
    ['u', 'up: from an episode to its run'],
    ['/', 'search'],
    ['?', 'this help'],
    ['Esc', 'leave a field, close'],
  ];
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <table class="wide keys">
        <tbody>{keys.map(([key, what]) => <tr key={key}><th scope="row">{key.split(' / ').map((k, i) => <>{i > 0 && ' '}<kbd>{k}</kbd></>)}</th><td>{what}</td></tr>)}</tbody>
      </table>
      <p class="soft small">Every view, filter, turn and file has an address of its own: copy it from the address bar.</p>
    </Dialog>
  );
}

function Login() {
  const [error, setError] = useState('');
  const [busy, setBusy] = useState(false);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const token = new FormData(event.currentTarget as HTMLFormElement).get('token');
    setBusy(true);
    login(String(token ?? '')).then(
      () => setBusy(false),
      (e: Error) => {
        setBusy(false);
        setError(e.message);
      },
    );
  };
  if (embedded) return null;
  return (
    <>
      <header class="top"><span class="brand">llm-in-sandbox</span><div class="tools"><ThemeSwitch /></div></header>
      <main>
        <form class="state login" onSubmit={submit}>
          <h2><Icon name="key" /> This page needs a key</h2>
          <p>Open the address that <code>llm-in-sandbox view</code> printed, or enter the server's key.</p>
          <div class="login-row field">
            <input type="password" name="token" aria-label="Key" placeholder="Key" autocomplete="current-password" autofocus required />
            <button type="submit" class="button primary" disabled={busy}>Sign in</button>
          </div>
          {error && <p class="bad" role="alert">{error}</p>}
        </form>
      </main>
    </>
  );
}
