// The npm package ws as an origin that says everything back: node ws_origin.mjs MODULE ADDRESS PORT CERTIFICATE KEY
import { readFileSync } from 'node:fs';
import https from 'node:https';
import { createRequire } from 'node:module';

const [module, address, port, certificate, key] = process.argv.slice(2);
const { WebSocketServer } = createRequire(import.meta.url)(module);
const server = https.createServer({ cert: readFileSync(certificate), key: readFileSync(key) });
const sockets = new WebSocketServer({ server, perMessageDeflate: { threshold: 0 }, maxPayload: 64 << 20, handleProtocols: () => 'chat.v2' });
sockets.on('connection', (socket) => socket.on('message', (message, binary) => socket.send(message, { binary })));
server.listen(Number(port), address);
