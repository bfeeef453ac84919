// Node's http server, writing down what it understood: origin.mjs LOG ADDRESS PORT strict|lenient …
import { appendFileSync } from 'node:fs';
import http from 'node:http';

const [log, address, ...rest] = process.argv.slice(2);
for (let i = 0; i < rest.length; i += 2) {
  const lenient = rest[i + 1] === 'lenient';
  const server = http.createServer({ insecureHTTPParser: lenient, requireHostHeader: false, maxHeaderSize: 100000 }, (request, response) => {
    const body = [];
    request.on('data', (block) => body.push(block));
    request.on('end', () => {
      appendFileSync(log, JSON.stringify({
        server: lenient ? 'lenient node' : 'node', method: request.method, target: request.url, host: request.headers.host,
        body: Buffer.concat(body).toString('latin1'),
      }) + '\n');
      response.end('seen\n');
    });
  });
  // A switch of protocols that it knows nothing of, and a request for a tunnel, are requests like others to it.
  server.on('connect', (request, socket) => {
    appendFileSync(log, JSON.stringify({ server: 'node', method: request.method, target: request.url, host: request.headers.host, body: '' }) + '\n');
    socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
  });
  server.on('clientError', (_, socket) => socket.destroy());
  server.listen(Number(rest[i]), address, 1024);
}
