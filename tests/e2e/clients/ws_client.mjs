// The npm package ws as the workload: node ws_client.mjs MODULE URL. Prints what it saw.
import { createRequire } from 'node:module';
import { randomBytes } from 'node:crypto';

const [module, url] = process.argv.slice(2);
const WebSocket = createRequire(import.meta.url)(module);
const socket = new WebSocket(url, ['chat.v2']);
const data = randomBytes(2000000);
const say = (...words) => console.log(...words);

socket.on('open', () => {
  say('open', socket.protocol, socket.extensions.split(';')[0]);
  socket.send('héllo €');
});
socket.on('message', (message, binary) => {
  if (!binary) {
    say('text', message.toString());
    socket.ping('still there?');
  } else {
    say('bytes', data.equals(message));
    socket.close(4001, 'done');
  }
});
socket.on('pong', (payload) => {
  say('pong', payload.toString());
  // One message in fragments.
  socket.send(data.subarray(0, 700001), { fin: false });
  socket.send(data.subarray(700001, 700001), { fin: false });
  socket.send(data.subarray(700001));
});
socket.on('close', (code, reason) => say('closed', code, reason.toString()));
socket.on('unexpected-response', (request, response) => {
  let body = '';
  response.on('data', (block) => { body += block; });
  response.on('end', () => {
    say('status', response.statusCode, response.statusMessage);
    say('body', JSON.parse(body).suggest);
    process.exit(0);
  });
});
socket.on('error', (error) => say('error', error.message));
