// An episode: its turns, files and details. Each turn, tab and file has an address.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { address, send } from '../lib/api';
import { textOf, useEpisode, type Episode } from '../lib/episode';
import { useSearch } from '../lib/data';
import { bytes, count, counted, dollars, duration, moment, score, short } from '../lib/format';
import { useKeys } from '../lib/keys';
import { go, link, route, setQuery } from '../lib/router';
import { plain } from '../lib/visible';
import type { Attempt, Info, Message } from '../lib/types';
import { Icon } from '../ui/icons';
import { Badge, Bar, Choice, Empty, Facts, Failed, Loading, Mark, Search, StateBadge, Tabs } from '../ui/parts';
import { Block, Text } from '../ui/text';
import { VirtualList, type ListHandle } from '../ui/virtual';
import { DetailsTab } from './details';
import { FilesTab } from './files';
import { Changes, Omitted, TurnBars, TurnEvents, turnFailed, turnTitle } from './turn';

type Props = { info: Info; run: string; attempt: string };

export function EpisodeView({ info, run, attempt: id }: Props) {
  const base = address('runs', run, 'attempts', id);
  const loaded = useEpisode(base);
  const { data: attempt, episode } = loaded;
  useEffect(() => {
    if (attempt) document.title = `${plain(nameOf(attempt))} · ${plain(attempt.run.name)}`;
  }, [attempt]);
  const at = (other: string | null | undefined) => other !== null && other !== undefined && go(link(['runs', run, 'attempts', other]));
  useKeys({ n: () => at(attempt?.next), p: () => at(attempt?.previous), u: () => go(link(attempt?.run.attempt ? ['runs'] : ['runs', run])) });
  if (loaded.error) return <div class="view"><Failed error={loaded.error} retry={loaded.reload} /></div>;
  if (!attempt || !episode) return <div class="view"><Loading what="Loading the episode" /></div>;
  const { query } = route.value;
  const tab = query.get('tab') ?? 'turns';
  const here = ['runs', run, 'attempts', id];
  const files = (attempt.files?.input ?? 0) + (attempt.files?.output ?? 0);
  return (
    <div class="view">
      <Head info={info} attempt={attempt} episode={episode} run={run} />
      <Tabs label="Parts of the episode" current={tab} items={[
        { id: 'turns', name: <>Turns <span class="soft">{count(episode.count || attempt.turns)}</span></>, href: link(here) },
        { id: 'files', name: <>Files <span class="soft">{count(files)}</span></>, href: link(here, { tab: 'files' }) },
        { id: 'details', name: 'Details', href: link(here, { tab: 'details' }) },
      ]} />
      {tab === 'files' ? <FilesTab key={attempt.state} attempt={attempt} base={base} here={here} /> : tab === 'details' ? <DetailsTab attempt={attempt} episode={episode} /> : <TurnsTab info={info} attempt={attempt} episode={episode} run={run} />}
    </div>
  );
}

/** What an episode is called: its problem, or the beginning of its task. */
export function nameOf(attempt: { problem?: string | null; title?: string | null; id: string }): string {
  return attempt.problem || (attempt.title ?? '').trim().split('\n')[0]?.slice(0, 110) || attempt.id;
}

function Head({ info, attempt, episode, run }: { info: Info; attempt: Attempt; episode: Episode; run: string }) {
  const single = attempt.run.attempt !== null && attempt.run.attempt !== undefined;
  const step = (id: string | null | undefined, label: string, back: boolean) =>
    id !== null && id !== undefined && <a class={`icon-button ${back ? 'flip' : ''}`} href={link(['runs', run, 'attempts', id])} aria-label={label} title={label}><Icon name="chevron" /></a>;
  return (
    <div class="head episode-head">
      <nav class="crumbs" aria-label="Where this is">
        <a href="#/runs">Runs</a><span aria-hidden="true">/</span>
        {single ? <span><Text>{attempt.run.name}</Text></span> : <a href={link(['runs', run])}><Text>{attempt.run.name}</Text></a>}
        {attempt.task && !single && <><span aria-hidden="true">/</span><span><Text>{attempt.task}</Text>{attempt.mode ? ` · ${attempt.mode}` : ''}</span></>}
      </nav>
      <div class="title-line">
      <h1 class="one-line"><Text>{nameOf(attempt)}</Text></h1>
      {attempt.repeat ? <span class="soft">repeat {attempt.repeat}</span> : null}
      <StateBadge state={episode.complete ? (attempt.outcome ?? attempt.state) : 'running'} />
      {attempt.score !== null && attempt.score !== undefined && <span class="nowrap"><Mark score={attempt.score} /> <span class="soft">score {score(attempt.score)}</span></span>}
      </div>
      <span class="actions">
        {step(attempt.previous, 'Previous attempt (p)', true)}
        {step(attempt.next, 'Next attempt (n)', false)}
        <Actions info={info} attempt={attempt} episode={episode} run={run} />
        <Downloads attempt={attempt} base={episode.base} mode={info.mode} />
      </span>
    </div>
  );
}

function Actions({ info, attempt, episode, run }: { info: Info; attempt: Attempt; episode: Episode; run: string }) {
  const [error, setError] = useState('');
  const served = attempt.server_episode;
  if (!served) return null;
  const post = (action: string) => {
    setError('');
    send<{ id?: string }>('POST', `v1/episodes/${encodeURIComponent(served.id)}/${action}`).then(
      () => action === 'resume' && location.reload(),
      (e: Error) => setError(e.message),
    );
  };
  const running = !episode.complete;
  return (
    <>
      {error && <span class="bad small" role="alert"><Text>{error}</Text></span>}
      {served.parent && <a class="button" href={link(['runs', run, 'attempts', served.parent.id], { turn: served.parent.turn })} title="The episode this one continues">Fork of turn {served.parent.turn}</a>}
      {running && info.can.cancel && <button type="button" class="button danger" onClick={() => post('cancel')}><Icon name="stop" size={14} />Cancel</button>}
      {!running && info.can.resume && ['interrupted', 'cancelled', 'failed'].includes(served.state) && <button type="button" class="button" onClick={() => post('resume')}><Icon name="play" size={14} />Resume</button>}
    </>
  );
}

const EXPORTS: Record<string, string> = { html: 'This page as one file', events: 'Events (JSON lines)', messages: 'Messages (chat format)', atif: 'ATIF' };

function Downloads({ attempt, base, mode }: { attempt: Attempt; base: string; mode: string }) {
  const exports = attempt.exports ?? [];
  if (exports.length === 0 || mode === 'export') return null;
  return (
    <details class="menu">
      <summary class="button" aria-label="Export"><Icon name="download" size={14} /><span class="wide-only">Export</span></summary>
      <div class="menu-list">{exports.map((name) => <a key={name} href={`${base}/export/${name}`} download>{EXPORTS[name] ?? name}</a>)}</div>
    </details>
  );
}

type Filter = 'all' | 'errors' | 'changes';
type Row = { kind: 'lead' } | { kind: 'turn'; index: number } | { kind: 'end' };

function TurnsTab({ info, attempt, episode, run }: { info: Info; attempt: Attempt; episode: Episode; run: string }) {
  const { query } = route.value;
  const [typed, setTyped, search] = useSearch();
  const filter = (query.get('only') ?? 'all') as Filter;
  const list = useRef<ListHandle>(null);
  const outline = useRef<ListHandle>(null);
  const [current, setCurrent] = useState(-1);
  const wanted = useWanted(episode);
  const shown = useShown(episode, search, filter);
  const searching = search.trim() !== '' || filter !== 'all';
  useEffect(() => {
    // A search is over all turns, so all are loaded.
    if (searching && episode.turns.length > 0) episode.needTurns(0, episode.turns.length - 1);
  }, [searching, episode.turns.length]);
  const partly = searching && episode.missing > 0;
  const rows = shown.length + 2;
  const rowOf = (index: number): Row => (index === 0 ? { kind: 'lead' } : index === rows - 1 ? { kind: 'end' } : { kind: 'turn', index: shown.at(index - 1) ?? 0 });
  const placeOf = (position: number) => shown.placeOf(position) + 1;

  const last = useRef(-1);
  useEffect(() => {
    // The address names a turn: when it is opened, and when the reader goes back to it.
    if (wanted < 0 || wanted === last.current) return;
    last.current = wanted;
    setCurrent(wanted);
    list.current?.show(placeOf(wanted));
    outline.current?.show(placeOf(wanted) - 1, 'near');
  }, [wanted]);
  const choose = (place: number) => {
    const row = rowOf(Math.max(0, Math.min(rows - 1, place)));
    if (row.kind !== 'turn') return list.current?.show(row.kind === 'lead' ? 0 : rows - 1);
    last.current = row.index;
    setCurrent(row.index);
    setQuery(episode.addressOf(row.index));
    list.current?.show(place);
    outline.current?.show(place - 1, 'near');
  };
  const move = (by: 1 | -1) => {
    const place = (current < 0 ? 0 : placeOf(current)) + by;
    const row = rowOf(Math.max(0, Math.min(rows - 1, place)));
    choose(row.kind === 'turn' && episode.turns[row.index]?.omitted ? place + by : place);
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    g: () => choose(1),
    G: () => choose(rows - 2),
    o: () => document.querySelectorAll<HTMLButtonElement>('.turn.current .block-more button:first-child, .turn.current .fold').forEach((b) => b.click()),
  });
  return (
    <div class="episode">
      <div class="toolbar episode-tools">
        <Search value={typed} onInput={setTyped} label={episode.whole ? 'Search all texts' : 'Search calls'} />
        <Choice label="Which turns" value={filter} onChange={(only) => setQuery({ only: only === 'all' ? null : only })} options={[{ value: 'all', name: 'All' }, { value: 'errors', name: 'Errors' }, { value: 'changes', name: 'File changes' }]} />
        {searching && <span class="soft" role="status">{count(shown.length)} of {counted(episode.count, 'turn')}{partly ? `, ${count(episode.missing)} not read yet` : ''}</span>}
        <span class="grow" />
        {!episode.complete && <button type="button" class="button" onClick={() => list.current?.show(rows - 1)}><span class="pulse live-dot" aria-hidden="true" />Follow</button>}
        {episode.error && <span class="bad small" role="alert"><Text>{episode.error.message}</Text> <button type="button" class="link" onClick={() => episode.retry()}>Try again</button></span>}
      </div>
      <div class="episode-body">
        <div class="outline" style={{ '--digits': String(episode.count).length }}>
          <VirtualList handle={outline} length={shown.length} estimate={30} label="Outline of turns" onRange={(a, b) => episode.needTurns(shown.at(a) ?? 0, shown.at(b) ?? 0)}
            row={(i) => <OutlineRow episode={episode} index={shown.at(i) ?? 0} current={current} onChoose={() => choose(i + 1)} />} />
        </div>
        <VirtualList
          handle={list} class="turns" length={rows} estimate={260} label="Turns" role="feed" follow={!episode.complete} start={wanted >= 0 ? placeOf(wanted) : undefined}
          rowKey={(i) => (i === 0 ? 'lead' : i === rows - 1 ? 'end' : (shown.at(i - 1) ?? 0))}
          onRange={(a, b) => episode.needTurns(shown.at(Math.max(0, a - 1)) ?? 0, shown.at(Math.min(shown.length - 1, Math.max(0, b - 1))) ?? 0)}
          row={(i) => {
            const row = rowOf(i);
            if (row.kind === 'lead') return <Lead attempt={attempt} episode={episode} />;
            if (row.kind === 'end') return <End attempt={attempt} episode={episode} filtered={shown.length !== episode.turns.length} />;
            return <TurnRow info={info} attempt={attempt} episode={episode} run={run} index={row.index} current={current} onChoose={() => choose(i)} />;
          }}
        />
      </div>
    </div>
  );
}

/** The position of the turn that the address names; -1 where it names none, or the turns are not known yet. */
function useWanted(episode: Episode): number {
  const { query } = route.value;
  const [turn, at] = [query.get('turn'), Number(query.get('at') ?? 0)];
  const length = episode.turns.length;
  // What an address means is settled when it is opened: it stays the same turn while others arrive.
  return useMemo(() => (turn === null || length === 0 ? -1 : at > 0 ? Math.min(at, length) - 1 : episode.locate(Number(turn))), [episode, turn, at, length > 0]);
}

/** The positions of the turns that are shown. All of a long episode are not made into a list. */
type Shown = { length: number; at: (i: number) => number | undefined; placeOf: (position: number) => number };

function useShown(episode: Episode, search: string, filter: Filter): Shown {
  const needle = search.trim().toLowerCase();
  const plain = needle === '' && filter === 'all';
  return useMemo(() => {
    if (plain) {
      const length = episode.turns.length;
      return { length, at: (i) => (i >= 0 && i < length ? i : undefined), placeOf: (position) => Math.min(position, length - 1) };
    }
    const kept: number[] = [];
    episode.turns.forEach((turn, index) => {
      if (!turn || turn.omitted) return;
      if (filter === 'errors' && !turnFailed(turn)) return;
      if (filter === 'changes' && turn.files === 0) return;
      if (needle && !textOfTurn(episode, index).includes(needle)) return;
      kept.push(index);
    });
    return { length: kept.length, at: (i) => kept[i], placeOf: (position) => Math.max(0, kept.findIndex((index) => index >= position)) };
    // While turns arrive, a long list is made again only now and then.
  }, [plain, needle, filter, plain ? episode.turns.length : episode.missing > 5000 ? -Math.floor(episode.missing / 10_000) - 1 : episode.version]);
}

function textOfTurn(episode: Episode, index: number): string {
  const turn = episode.turns[index];
  const calls = turn?.calls.map((c) => `${c.name} ${c.text}`).join(' ') ?? '';
  if (!episode.whole) return calls.toLowerCase();
  const [first, last] = episode.rangeOf(index);
  let text = calls;
  for (let n = first; n <= last; n++) text += JSON.stringify(episode.events.get(n)?.event ?? '');
  return text.toLowerCase();
}

function OutlineRow({ episode, index, current, onChoose }: { episode: Episode; index: number; current: number; onChoose: () => void }) {
  const turn = episode.turns[index];
  if (!turn) return <div class="outline-row"><span class="n">{index + 1}</span><span class="ghost" /></div>;
  if (turn.omitted) return <div class="outline-row"><span class="n">…</span><span class="soft">{counted(turn.omitted, 'turn')} omitted</span></div>;
  const most = Math.max(1, episode.sums ? episode.sums.max_model_ms + episode.sums.max_tool_ms : 1);
  return (
    <button type="button" class={`outline-row ${index === current ? 'current' : ''} ${turnFailed(turn) ? 'failed' : ''} ${turn.dropped ? 'dropped' : ''}`} onClick={onChoose} aria-current={index === current ? 'true' : undefined}>
      <span class="n">{turn.turn}</span>
      <span class="mono outline-text"><Text>{turnTitle(turn)}</Text></span>
      <Bar most={most} label={`model ${duration(turn.model_ms)}, tools ${duration(turn.tool_ms)}`} parts={[{ value: turn.model_ms, class: 'bar-model', title: '' }, { value: turn.tool_ms, class: 'bar-tool', title: '' }]} />
    </button>
  );
}

function TurnRow({ info, attempt, episode, run, index, current, onChoose }: { info: Info; attempt: Attempt; episode: Episode; run: string; index: number; current: number; onChoose: () => void }) {
  const turn = episode.turns[index];
  const number = episode.numberAt(index);
  if (turn?.omitted) return <section class="turn" aria-label="Omitted turns"><Omitted turns={turn.omitted} /></section>;
  const items = episode.eventsOf(index);
  return (
    <section class={`turn ${index === current ? 'current' : ''} ${turn?.dropped ? 'dropped' : ''}`} aria-label={`Turn ${number}${turn?.dropped ? ', undone' : ''}`}>
      <div class="turn-head">
        <a class="turn-number" href={link(['runs', run, 'attempts', attempt.id], episode.addressOf(index))} onClick={(e) => { e.preventDefault(); onChoose(); }}>{count(number)}</a>
        {turn?.dropped && <Badge tone="warn" title="The episode was resumed before this turn">undone</Badge>}
        {turn && <TurnBars turn={turn} episode={episode} />}
        <span class="grow" />
        {turn?.at && attempt.started ? <span class="soft small" title={moment(turn.at)}>+{duration(Math.max(0, turn.at - attempt.started))}</span> : null}
        {turn && !turn.dropped && <Fork info={info} attempt={attempt} turn={number} />}
      </div>
      {!turn || !items ? <div class="ghost-turn" aria-hidden="true"><span class="ghost" /><span class="ghost" /><span class="ghost" /></div> : <TurnEvents episode={episode} turn={turn} items={items} />}
      {turn && turn.files > 0 && <Changes episode={episode} turn={turn} />}
    </section>
  );
}

function Fork({ info, attempt, turn }: { info: Info; attempt: Attempt; turn: number }) {
  const [error, setError] = useState('');
  const served = attempt.server_episode;
  if (!info.can.fork || !served?.forkable?.includes(turn)) return null;
  const fork = () => {
    send<{ id: string }>('POST', `v1/episodes/${encodeURIComponent(served.id)}/fork`, { turn }).then(
      (made) => made && go(link(['runs', attempt.run.id, 'attempts', made.id])),
      (e: Error) => setError(e.message),
    );
  };
  return (
    <>
      {error && <span class="bad small" role="alert"><Text>{error}</Text></span>}
      <button type="button" class="link fork" onClick={fork} title="Start a new episode that continues after this turn"><Icon name="fork" size={14} /> Fork from here</button>
    </>
  );
}

function Lead({ attempt, episode }: { attempt: Attempt; episode: Episode }) {
  const spent = attempt.spent;
  const usage = spent?.usage;
  const sums = episode.sums;
  const model = spent?.model_ms ?? attempt.model_ms ?? sums?.model_ms ?? 0;
  const tool = spent?.tool_ms ?? attempt.tool_ms ?? sums?.tool_ms ?? 0;
  const input = usage?.input ?? attempt.tokens?.input ?? sums?.input ?? 0;
  const output = usage?.output ?? attempt.tokens?.output ?? sums?.output ?? 0;
  const modelName = attempt.model;
  const live = attempt.state === 'running' ? episode.turns.reduce((n, t) => n + Math.max(1, t?.calls.length ?? 0), 0) : 0;
  return (
    <div class="lead">
      {attempt.has_events === false && <div class="notice"><p>The events of this attempt are missing: only its result is shown.</p></div>}
      {attempt.damage && <div class="notice"><p>This record can be read only in part: <Text>{attempt.damage}</Text></p></div>}
      <Facts items={[
        modelName ? ['Model', <Text key="m">{modelName}</Text>] : null,
        ['Turns · steps', `${count(Math.max(attempt.turns ?? 0, episode.count))} · ${count(Math.max(attempt.steps, live))}`],
        model + tool > 0 && ['Time in model · tools', <span key="t" class="fact-bar"><Bar most={model + tool} label="share of time" parts={[{ value: model, class: 'bar-model', title: 'model' }, { value: tool, class: 'bar-tool', title: 'tools' }]} /><span>{duration(model)} · {duration(tool)}</span></span>],
        input + output > 0 && ['Tokens in · out', <span key="u">{short(input)}{usage?.cached ? <span class="soft"> ({Math.round((usage.cached / Math.max(1, input)) * 100)}% cached)</span> : null} · {short(output)}</span>],
        attempt.cost !== null && attempt.cost !== undefined && ['Cost', dollars(attempt.cost)],
        attempt.started ? ['Started', moment(attempt.started)] : null,
        attempt.events.bytes > 0 && ['Record', `${counted(attempt.events.total, 'event')}, ${bytes(attempt.events.bytes)}`],
      ]} />
      {(attempt.answer || attempt.expected) && (
        <div class="answers">
          {attempt.answer && <div><span class="label">Answer</span><Block text={attempt.answer} kind="output" lines={6} label="answer" /></div>}
          {attempt.expected && <div><span class="label">Expected</span><Block text={attempt.expected} kind="output" lines={6} label="expected answer" /></div>}
        </div>
      )}
      <Prompt attempt={attempt} episode={episode} />
    </div>
  );
}

function Prompt({ attempt, episode }: { attempt: Attempt; episode: Episode }) {
  const messages = attempt.messages ?? [];
  const task = attempt.task_text ?? attempt.title ?? '';
  const rest: Message[] = messages.filter((m) => textOf(m).trim() !== task.trim());
  return (
    <>
      {task && <div class="prompt"><span class="label">Task</span><Block text={task.trim()} kind="prose" lines={14} label="task" memory={episode.folds} name="task" /></div>}
      {rest.length > 0 && (
        <details class="prompts">
          <summary>{counted(rest.length, 'message')} before the first turn</summary>
          {rest.map((m, i) => <div key={i} class="prompt"><span class="label">{m.role}</span><Block text={textOf(m)} kind="prose" lines={20} label={`${m.role} message`} memory={episode.folds} name={`message-${i}`} /></div>)}
        </details>
      )}
    </>
  );
}

function End({ attempt, episode, filtered }: { attempt: Attempt; episode: Episode; filtered: boolean }) {
  if (!episode.complete) {
    return (
      <div class="end live" role="status">
        {episode.partial && <div class="reply partial"><pre><Text>{episode.partial}</Text></pre></div>}
        <span class="badge badge-live"><span class="pulse" />the model is working</span>
      </div>
    );
  }
  if (filtered) return <div class="end" />;
  if (episode.turns.length === 0 && episode.total > 0 && attempt.turns) return <div class="end"><Loading /></div>;
  if (episode.turns.length === 0) return <Empty title="No turns were recorded"><p>{attempt.cause ? <Text>{attempt.cause}</Text> : 'The model was not called, or its events are missing.'}</p></Empty>;
  return (
    <div class="end">
      <StateBadge state={attempt.outcome ?? attempt.state} />
      {attempt.outcome_text && <span><Text>{attempt.outcome_text}</Text></span>}
      {attempt.cause && <span class="bad"><Text>{attempt.cause}</Text></span>}
      {attempt.ended ? <span class="soft">{moment(attempt.ended)}</span> : null}
    </div>
  );
}
