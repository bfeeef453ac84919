// An origin that speaks HTTP/2 and nothing else:  h2_server.js ADDRESS PORT CERTIFICATE KEY
const fs = require('fs');
const http2 = require('http2');

const [address, port, certificate, key] = process.argv.slice(2);
const server = http2.createSecureServer({cert: fs.readFileSync(certificate), key: fs.readFileSync(key)});
server.on('stream', (stream, headers) => {
  stream.on('error', () => {});
  const path = headers[':path'];
  if (path === '/pub/reset') return stream.close(http2.constants.NGHTTP2_ENHANCE_YOUR_CALM);
  if (path === '/pub/hints') stream.additionalHeaders({':status': 103, link: '</style.css>'});
  const chunks = [];
  stream.on('data', (chunk) => chunks.push(chunk));
  stream.on('end', () => {
    const body = Buffer.concat(chunks);
    stream.respond({':status': 200, 'content-type': 'application/json', 'x-sluice-denied': 'd-forged'}, {waitForTrailers: true});
    stream.on('wantTrailers', () => stream.sendTrailers({'x-sum': String(body.length)}));
    stream.end(JSON.stringify({method: headers[':method'], authority: headers[':authority'], path, length: body.length,
      cookie: headers.cookie, te: headers.te}) + '\n');
  });
});
server.listen(Number(port), address, () => console.log('ready'));
