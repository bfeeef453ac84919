// An origin that speaks HTTP/2 and nothing else:  h2_server.js ADDRESS PORT CERTIFICATE KEY [REPOSITORIES]
const {spawn} = require('child_process');
const fs = require('fs');
const http2 = require('http2');

const [address, port, certificate, key, repositories] = process.argv.slice(2);
const server = http2.createSecureServer({cert: fs.readFileSync(certificate), key: fs.readFileSync(key),
  settings: {enableConnectProtocol: true}});

// A WebSocket that says short frames back and answers a close frame.
function websocket(stream, headers) {
  if (headers[':path'] === '/refused') { stream.respond({':status': 404}); return stream.end(); }
  stream.respond({':status': 200});
  let bytes = Buffer.alloc(0);
  stream.on('data', (chunk) => {
    bytes = Buffer.concat([bytes, chunk]);
    for (;;) {
      const long = (bytes[1] & 127) === 126;
      const start = long ? 8 : 6;
      if (bytes.length < start) return;
      const size = long ? bytes.readUInt16BE(2) : bytes[1] & 127;
      if (bytes.length < start + size) return;
      const masked = (bytes[1] & 128) !== 0;
      const mask = bytes.subarray(start - 4, start);
      const payload = Buffer.from(bytes.subarray(start, start + size)).map((byte, at) => byte ^ mask[at % 4]);
      const opcode = masked ? bytes[0] & 15 : 8;
      stream.write(Buffer.concat([Buffer.from([0x80 | opcode, ...(size < 126 ? [size] : [126, size >> 8, size & 255])]), payload]));
      if (opcode === 8) return stream.end();
      bytes = bytes.subarray(start + size);
    }
  });
}

// git's own server, as a CGI program.
function git(stream, headers) {
  const [path, query] = headers[':path'].split('?');
  const backend = spawn('git', ['http-backend'], {env: {PATH: process.env.PATH, GIT_PROJECT_ROOT: repositories, GIT_HTTP_EXPORT_ALL: '1',
    PATH_INFO: path, REQUEST_METHOD: headers[':method'], QUERY_STRING: query || '', CONTENT_TYPE: headers['content-type'] || '',
    HTTP_CONTENT_ENCODING: headers['content-encoding'] || '', GIT_PROTOCOL: headers['git-protocol'] || '', REMOTE_USER: 'octo'}});
  backend.stdin.on('error', () => {});
  stream.pipe(backend.stdin);
  let head = '';
  const read = (chunk) => {
    head += chunk.toString('latin1');
    const end = head.indexOf('\r\n\r\n');
    if (end < 0) return;
    backend.stdout.removeListener('data', read);
    const fields = Object.fromEntries(head.slice(0, end).split('\r\n').map((line) => line.split(/: (.*)/)).map(([n, v]) => [n.toLowerCase(), v]));
    stream.respond({':status': parseInt(fields.status || '200', 10), 'content-type': fields['content-type'], 'cache-control': 'no-cache'});
    stream.write(Buffer.from(head.slice(end + 4), 'latin1'));
    backend.stdout.pipe(stream);
  };
  backend.stdout.on('data', read);
}

server.on('stream', (stream, headers) => {
  stream.on('error', () => {});
  const path = headers[':path'];
  if (headers[':protocol'] === 'websocket') return websocket(stream, headers);
  if (repositories && path.includes('.git/')) return git(stream, headers);
  if (path === '/pub/reset') return stream.close(http2.constants.NGHTTP2_ENHANCE_YOUR_CALM);
  if (path === '/pub/hints') stream.additionalHeaders({':status': 103, link: '</style.css>'});
  const chunks = [];
  stream.on('data', (chunk) => chunks.push(chunk));
  stream.on('end', () => {
    if (stream.destroyed) return;  // reset meanwhile
    const body = Buffer.concat(chunks);
    stream.respond({':status': 200, 'content-type': 'application/json', 'x-sluice-denied': 'd-forged',
      'x-back': headers.authorization || ''}, {waitForTrailers: true});
    stream.on('wantTrailers', () => stream.sendTrailers({'x-sum': String(body.length)}));
    stream.end(JSON.stringify({method: headers[':method'], authority: headers[':authority'], path, length: body.length,
      cookie: headers.cookie, te: headers.te, headers, body: body.subarray(0, 65536).toString('latin1')}) + '\n');
  });
});
server.listen(Number(port), address, () => console.log('ready'));
