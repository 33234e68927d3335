// The shapes of the server's answers. Absent values are null or missing.

type Maybe<T> = T | null | undefined;

export type Info = {
  program: string;
  mode: 'view' | 'serve' | 'export';
  title: string;
  root: string | null;
  read_only: boolean;
  can: { start?: boolean; cancel?: boolean; resume?: boolean; fork?: boolean; terminal?: boolean };
  models?: string[];
  limits?: Limits;
};
export type Limits = { turns?: Maybe<number>; tokens?: Maybe<number>; time?: Maybe<number>; cost?: Maybe<number> };
export type Tokens = { input: number; output: number };

export type RunRow = {
  id: string;
  kind: 'run' | 'benchmark' | 'training' | 'episodes' | 'file';
  name: string;
  path: string;
  model: Maybe<string>;
  task: Maybe<string>;
  tasks?: string[];
  modes?: string[];
  score: Maybe<number>;
  state: string;
  attempts: Maybe<{ planned: Maybe<number>; done: number; running: number; passed: number; failed: number; invalid: number }>;
  /** The only attempt of what holds one episode. */
  attempt: Maybe<string>;
  steps: Maybe<{ done: number; planned: Maybe<number> }>;
  turns: Maybe<number>;
  tokens: Maybe<Tokens>;
  cost: Maybe<number>;
  started: Maybe<number>;
  updated: Maybe<number>;
  format: string;
  problem: Maybe<string>;
};
export type RunList = { version: number; total: number; matched: number; offset: number; truncated: boolean; kinds: Record<string, number>; runs: RunRow[] };
export type Command = { label: string; command: string };
export type Result = {
  task: string;
  mode: string;
  score: Maybe<number>;
  se: Maybe<number>;
  interval: Maybe<[number, number]>;
  attempts: number;
  valid: number;
  passed: number;
  problems: number;
  pass_at?: { k: number; value: number }[];
  outcomes?: Record<string, number>;
  turns_mean: Maybe<number>;
  cost: Maybe<number>;
};
export type Run = RunRow & { settings?: unknown; program?: Maybe<string>; results?: Result[]; commands?: Command[]; directory?: string; problems?: string[] };

export type AttemptRow = {
  id: string;
  task: Maybe<string>;
  mode: Maybe<string>;
  problem: Maybe<string>;
  repeat: Maybe<number>;
  title: Maybe<string>;
  model: Maybe<string>;
  state: string;
  result: Maybe<string>;
  score: Maybe<number>;
  reward: Maybe<number>;
  outcome: Maybe<string>;
  cause: Maybe<string>;
  answer: Maybe<string>;
  expected: Maybe<string>;
  turns: Maybe<number>;
  tokens: Maybe<Tokens>;
  cost: Maybe<number>;
  model_ms: Maybe<number>;
  tool_ms: Maybe<number>;
  wall_ms: Maybe<number>;
  started: Maybe<number>;
  step: Maybe<number>;
  set: Maybe<string>;
  group: Maybe<number>;
  member: Maybe<number>;
  has_events: boolean;
};
export type AttemptList = { total: number; matched: number; offset: number; facets: Record<string, Record<string, number>>; attempts: AttemptRow[] };

export type Content = { type: 'text'; text: string } | { type: 'image'; media_type: string; data: string };
export type Message = { role: string; text?: string; content?: Content[] };
export type ToolCall = { id: string; name: string; arguments: Record<string, unknown> | string; why?: string };
export type Usage = { input?: number; cached?: number; cache_writes?: number; output?: number; reasoning?: number; estimated?: boolean };
export type Spent = { turns: number; usage: Usage; context: number; cost: Maybe<number>; model_ms: number; tool_ms: number };

export type Attempt = AttemptRow & {
  run: { id: string; name: string; kind: string; format?: string; attempt: Maybe<string> };
  number: Maybe<number>;
  previous: Maybe<string>;
  next: Maybe<string>;
  task_text: Maybe<string>;
  messages?: Message[];
  settings?: unknown;
  protection?: unknown;
  program?: Maybe<string>;
  outcome_text: Maybe<string>;
  spent: Maybe<Spent>;
  grade?: unknown;
  judgement?: Maybe<{ judge?: unknown; replies?: unknown }>;
  events: { total: number; bytes: number; complete: boolean };
  steps: number;
  ended: Maybe<number>;
  server_episode?: Maybe<{ id: string; state: string; keep?: string; forkable?: number[]; parent?: Maybe<{ id: string; turn: number }>; owner?: string }>;
  files?: { input: number; output: number };
  exports?: string[];
  commands?: Command[];
  /** Why it can be read only in part. */
  damage?: Maybe<string>;
};

export type Event = { at?: number; kind: string; turn?: number; [field: string]: unknown };
/** A response of the model; recorded as `replied`. */
export type Responded = Event & { message: { text: string; reasoning: string; calls: ToolCall[] }; usage: Usage; stop: string; millis: number; cost?: number };
export type Observed = Event & { message: { role: string; call_id: string; name: string; content: Content[]; is_error: boolean }; exit_code?: number; millis: number };
export type EventItem = { n: number; event: Event; cut?: Record<string, number> };
export type EventPage = { from: number; total: number; complete: boolean; events: EventItem[] };

export type TurnCall = { name: string; text: string; exit_code: Maybe<number>; error?: boolean };
export type Turn = {
  turn: number;
  event: number;
  at: number;
  model_ms: number;
  tool_ms: number;
  input: number;
  cached: number;
  output: number;
  reasoning: number;
  cost: Maybe<number>;
  calls: TurnCall[];
  stop: Maybe<string>;
  files: number;
  dropped?: boolean;
  /** How many turns a file leaves out here: then this is no turn. */
  omitted?: number;
};
export type Sums = { model_ms: number; tool_ms: number; input: number; output: number; max_model_ms: number; max_tool_ms: number; max_output: number; max_input: number };
export type TurnPage = { total: number; turns: Turn[]; sums?: Sums; undone?: [number, number][]; omitted?: { at: number; turns: number; event: number } };

export type DiffLine = { type: 'hunk' | 'same' | 'removed' | 'added'; text: string };
export type FileChange = { path: string; how: string; source: string; call: Maybe<number>; before: Maybe<string>; after: Maybe<string>; diff?: Maybe<DiffLine[]>; cut?: boolean; size?: number };
export type TurnChanges = { turn: number; complete: boolean; note: Maybe<string>; changes: FileChange[] };
export type AllChanges = { files: { path: string; turns: number[]; how: string }[] };

export type FileEntry = { path: string; size: number; type: string; show: string };
export type Files = { input: FileEntry[]; output: FileEntry[]; truncated: boolean; input_known: boolean; output_known?: boolean };
export type FileText = { size: number; from: number; text: string; end: number; utf8: boolean };

export type Paired = {
  problems: number;
  difference: number;
  se: Maybe<number>;
  normal: Maybe<[number, number]>;
  bootstrap: Maybe<[number, number]>;
  p: Maybe<number>;
  test: Maybe<string>;
  detectable: Maybe<number>;
  better: number;
  worse: number;
};
export type Comparison = {
  baseline: { run: number; mode: string };
  other: { run: number; mode: string };
  task: Maybe<string>;
  baseline_score: Maybe<number>;
  other_score: Maybe<number>;
  difference: Maybe<Paired>;
  p_holm: Maybe<number>;
  left_out: { only_baseline: number; only_other: number; different: number; invalid: number; invalid_attempts: number };
};
export type Compare = {
  runs: { id: string; label: string; name: string }[];
  baseline: number;
  tasks: string[];
  notes: string[];
  settings: { differing: { name: string; values: Maybe<string>[] }[]; same: [string, string][] };
  comparisons: Comparison[];
};
export type Cell = { score: Maybe<number>; valid: number; passed: number; attempts: { id: string; score: Maybe<number>; outcome: Maybe<string>; turns: Maybe<number>; answer: Maybe<string> }[] };
export type ProblemRow = { task: string; mode: string; problem: string; title: Maybe<string>; expected: Maybe<string>; cells: Maybe<Cell>[] };
export type ProblemList = { total: number; matched: number; offset: number; problems: ProblemRow[] };

export type Metric = { name: string; title: Maybe<string>; section: Maybe<string>; axis?: Maybe<string>; values: Maybe<number>[]; se: Maybe<Maybe<number>[]> };
export type Metrics = { steps: number[]; metrics: Metric[]; bad_lines: number; sets: string[] };
export type StepRow = { step: number; set: string; round: Maybe<number>; groups: number; episodes: number; score_mean: Maybe<number>; spread: Maybe<number> };
export type StepList = { total: number; steps: StepRow[] };
export type Group = { group: number; problem: Maybe<string>; title: Maybe<string>; mean: Maybe<number>; members: { attempt: Maybe<string>; member: number; score: Maybe<number>; end: Maybe<string>; turns: Maybe<number>; tokens: Maybe<number> }[] };
export type GroupList = { total: number; groups: Group[] };

export type Sandbox = { id: string; template: string; started: Maybe<number>; ends: Maybe<number>; state: string };
