// What else is known about an attempt: limits, protection, settings, the grade, and command lines to copy.
import type { Episode } from '../lib/episode';
import type { Attempt } from '../lib/types';
import { Empty } from '../ui/parts';
import { Block, CommandLine, Text } from '../ui/text';

export function DetailsTab({ attempt, episode }: { attempt: Attempt; episode: Episode }) {
  const limits = limitsOf(attempt.settings);
  const saved = [...episode.events.values()].flatMap(({ event }) => (event.kind === 'saved' && typeof event.image === 'string' ? [[`after turn ${event.turn ?? 0}`, event.image] as const] : []));
  return (
    <div class="page narrow details">
      {attempt.commands && attempt.commands.length > 0 && (
        <section><h2>Command lines</h2>{attempt.commands.map((c) => <div key={c.label} class="labelled"><span class="label">{c.label}</span><CommandLine text={c.command} /></div>)}</section>
      )}
      {(hasContent(attempt.grade) || hasContent(attempt.judgement)) && (
        <section>
          <h2>Grade</h2>
          {hasContent(attempt.grade) && <Values value={attempt.grade} />}
          {hasContent(attempt.judgement) && <div class="labelled"><span class="label">Judge</span><Values value={attempt.judgement} /></div>}
        </section>
      )}
      {limits && <section><h2>Limits</h2><Values value={limits} /></section>}
      <section><h2>Protection</h2>{hasContent(attempt.protection) ? <Values value={attempt.protection} /> : <p class="soft">The record does not say how the sandbox was protected.</p>}</section>
      <section><h2>Settings</h2>{hasContent(attempt.settings) ? <Values value={attempt.settings} /> : <p class="soft">No settings are recorded.</p>}</section>
      {episode.whole && saved.length > 0 && <section><h2>Saved images</h2><Values value={Object.fromEntries(saved)} /></section>}
      {attempt.program && <p class="soft small">Recorded by version <Text>{attempt.program}</Text>.</p>}
      {!hasContent(attempt.settings) && !hasContent(attempt.protection) && !attempt.commands?.length && <Empty title="Nothing else is recorded" />}
    </div>
  );
}

const hasContent = (value: unknown): boolean => value !== null && value !== undefined && (typeof value !== 'object' || Object.keys(value).length > 0);

function limitsOf(settings: unknown): Record<string, unknown> | null {
  if (typeof settings !== 'object' || settings === null) return null;
  const limits = (settings as Record<string, unknown>).limits;
  return typeof limits === 'object' && limits !== null ? (limits as Record<string, unknown>) : null;
}

/** Any JSON as a table of names and values; what is nested is indented. */
export function Values({ value }: { value: unknown }) {
  if (typeof value !== 'object' || value === null) return <Scalar value={value} />;
  const entries: [string, unknown][] = Array.isArray(value) ? value.map((v, i): [string, unknown] => [String(i + 1), v]) : Object.entries(value);
  if (entries.length === 0) return <span class="soft">none</span>;
  if (Array.isArray(value) && value.every((v) => typeof v !== 'object' || v === null)) return <span class="list-value"><Text>{value.map((v) => String(v)).join(', ')}</Text></span>;
  return (
    <table class="values">
      <tbody>{entries.slice(0, 300).map(([k, v]) => <tr key={k}><th scope="row"><Text>{k.replaceAll('_', ' ')}</Text></th><td><Values value={v} /></td></tr>)}</tbody>
    </table>
  );
}

function Scalar({ value }: { value: unknown }) {
  if (value === null || value === undefined || value === '') return <span class="soft">–</span>;
  if (typeof value === 'boolean') return <span>{value ? 'yes' : 'no'}</span>;
  if (typeof value === 'string' && (value.length > 160 || value.includes('\n'))) return <Block text={value} kind="output" lines={6} label="value" />;
  return <span class="scalar"><Text>{String(value)}</Text></span>;
}
