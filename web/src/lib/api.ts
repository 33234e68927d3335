// Requests. In the single-file export every answer comes from the document; the page then loads nothing.
import { signal } from '@preact/signals';
import { embedded, fromDocument, type Query } from './embedded';

/** An error that the server or the document reports. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string,
  ) {
    super(message);
  }
}

/** Whether the server asks for a key. */
export const locked = signal(false);

/** The address of a resource, relative to the page. Parts may contain any character. */
export function address(...parts: (string | number)[]): string {
  return `page/api/${parts.map((part) => encodeURIComponent(part)).join('/')}`;
}

/** An address with a query. */
export function withQuery(path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value !== undefined && value !== null && value !== '') search.append(key, String(value));
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

/** Gets JSON. */
export async function get<T>(path: string, query: Query = {}, stop?: AbortSignal): Promise<T> {
  if (embedded) return fromDocument(path, query) as T;
  const response = await request(withQuery(path, query), { signal: stop, headers: { Accept: 'application/json' } });
  return (await response.json()) as T;
}

/** Changes something. */
export async function send<T>(method: 'POST' | 'DELETE', path: string, body: unknown = {}): Promise<T | null> {
  if (embedded) throw new ApiError('this file is a copy: nothing can be started from it', 0, 'export');
  const response = await request(path, { method, headers: { 'Content-Type': 'application/json' }, body: method === 'DELETE' ? undefined : JSON.stringify(body) });
  return response.status === 204 ? null : ((await response.json()) as T);
}

/** Signs in with a key, or without one where the server wants none. */
export async function login(token?: string): Promise<void> {
  await send('POST', 'page/api/login', token ? { token } : {});
  locked.value = false;
}

/** Takes the key out of the address, where `view` puts it, and signs in. */
export async function start(): Promise<void> {
  if (embedded) return;
  const match = /^#token=([^&]+)/.exec(location.hash);
  if (match?.[1]) {
    history.replaceState(null, '', location.pathname + location.search);
    await login(decodeURIComponent(match[1])).catch(() => {
      locked.value = true;
    });
    return;
  }
  const info = await fetch('page/api/info', { credentials: 'same-origin' }).catch(() => null);
  if (info?.status !== 401) return;
  await login().catch(() => {
    locked.value = true;
  });
}

async function request(path: string, options: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { credentials: 'same-origin', ...options });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError('the server cannot be reached; is the program still running?', 0, 'unreachable');
  }
  if (response.ok) return response;
  if (response.status === 401) locked.value = true;
  const body = (await response.json().catch(() => null)) as { error?: { message?: string; code?: string } } | null;
  throw new ApiError(body?.error?.message ?? `the server answered ${response.status}`, response.status, body?.error?.code ?? 'unknown');
}

/** Whether what failed may work later: the server was unreachable, busy or failed. */
export const mayPass = (error: Error): boolean => error instanceof ApiError && (error.status === 0 || error.status === 429 || error.status >= 500) && error.code !== 'export';

/** How many streams have lost their connection. */
export const lost = signal(0);
/** Milliseconds until a stream that was refused is asked for again: at first, and at most. */
const AGAIN = [1000, 30_000] as const;

/**
 * Follows a stream of events until it is closed. Where the connection breaks, the browser reconnects by itself and says what it
 * has seen; where the server refuses, a new stream is asked for at `path()`. A lost session asks for the key. A page that is
 * hidden has no stream: browsers open few connections to a server, for all of their tabs. `missed` is called when the stream
 * is back after a time without one.
 */
export function follow(path: () => string, handlers: Record<string, (data: unknown) => void>, missed?: () => void): () => void {
  if (embedded) return () => undefined;
  let source: EventSource | null = null;
  let timer = 0;
  let wait: number = AGAIN[0];
  let down = false;
  let gap = false;
  const isDown = (now: boolean) => {
    if (now !== down) lost.value += now ? 1 : -1;
    down = now;
  };
  const open = () => {
    const opened = new EventSource(path());
    source = opened;
    for (const [name, handler] of Object.entries(handlers)) opened.addEventListener(name, (event) => {
      const data = parsed((event as MessageEvent<string>).data);
      if (data !== undefined) handler(data);
    });
    opened.onopen = () => {
      wait = AGAIN[0];
      isDown(false);
      if (gap) missed?.();
      gap = false;
    };
    opened.onerror = () => {
      isDown(true);
      gap = true;
      if (opened.readyState !== EventSource.CLOSED) return;
      // The stream does not say why it was refused; any other request does.
      get('page/api/info').catch(() => undefined);
      timer = window.setTimeout(open, wait);
      wait = Math.min(AGAIN[1], wait * 2);
    };
  };
  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
    isDown(false);
  };
  const seen = () => {
    if (document.visibilityState === 'hidden') {
      close();
      gap = true;
    } else if (!source) open();
  };
  document.addEventListener('visibilitychange', seen);
  seen();
  return () => {
    document.removeEventListener('visibilitychange', seen);
    close();
  };
}

/** The JSON of a line; a line that is not JSON is not ours. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
