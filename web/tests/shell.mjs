// A WebSocket that behaves like a terminal, as far as a test needs it: it greets, echoes what is typed, reports the size,
// and ends at `exit`.
import { createHash } from 'node:crypto';

const frame = (code, data) => {
  const bytes = Buffer.from(data);
  const head = bytes.length < 126 ? Buffer.from([0x80 | code, bytes.length]) : Buffer.from([0x80 | code, 126, bytes.length >> 8, bytes.length & 255]);
  return Buffer.concat([head, bytes]);
};

/** Answers an upgrade of a connection. */
export function shell(request, socket) {
  // A browser may leave at any moment.
  socket.on('error', () => undefined);
  if (request.url.includes('/gone/')) return socket.end('HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n');
  const key = createHash('sha1').update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${key}\r\n\r\n`);
  const say = (text) => socket.write(frame(2, text));
  if (request.url.includes('/broken/')) {
    socket.write(frame(1, JSON.stringify({ error: 'the shell cannot start: <b>no space left</b>' })));
    return socket.end(frame(8, Buffer.from([3, 232])));
  }
  say('\u001b[32muser@sandbox\u001b[0m:~$ ');
  let line = '';
  let rest = Buffer.alloc(0);
  socket.on('data', (data) => {
    rest = Buffer.concat([rest, data]);
    while (rest.length >= 6) {
      const length = rest[1] & 127;
      if (length > 125 || rest.length < 6 + length) return;
      const mask = rest.subarray(2, 6);
      const body = Buffer.from(rest.subarray(6, 6 + length).map((b, i) => b ^ mask[i % 4]));
      const code = rest[0] & 15;
      rest = rest.subarray(6 + length);
      if (code === 8) return socket.end(frame(8, body));
      if (code === 1) continue;
      for (const c of body.toString()) {
        if (c !== '\r') {
          line += c;
          say(c);
        } else if (line === 'exit') {
          socket.write(frame(1, '{"exit": 0}'));
          return socket.end(frame(8, Buffer.from([3, 232])));
        } else {
          if (line === 'link') say('\r\n\u001b]8;;https://example.invalid/?stolen\u0007a link of a program\u001b]8;;\u0007\r\n$ ');
          else say(line === 'colors' ? '\r\n\u001b[38;2;160;20;80mof its own\u001b[0m \u001b[30;42mon green\u001b[0m\r\n$ ' : `\r\nyou typed: ${line}\r\n$ `);
          line = '';
        }
      }
    }
  });
}
