// Sixty calls at once on one HTTP/2 connection, their bodies in pieces, every third to a method that the policy denies:
//   h2_bodies.js ORIGIN PATH
const http2 = require('http2');

const [origin, path] = process.argv.slice(2);
const session = http2.connect(origin);
session.on('error', (error) => { console.error(error); process.exit(1); });
const call = (number) => new Promise((resolve) => {
  const body = JSON.stringify({jsonrpc: '2.0', id: number, method: number % 3 ? 'good' : 'evil', params: ['x'.repeat(number * 3000)]});
  const stream = session.request({':method': 'POST', ':path': path, 'content-type': 'application/json'});
  const got = {wanted: number % 3 ? 200 : 403};
  stream.on('response', (head) => { got.status = head[':status']; });
  stream.on('error', (error) => { got.error = error.message; });
  let text = '';
  stream.setEncoding('utf8');
  stream.on('data', (chunk) => { text += chunk; });
  stream.on('close', () => {
    got.whole = got.status === 200 ? JSON.parse(text).length === body.length : null;
    resolve(got);
  });
  const size = Math.ceil(body.length / 4);
  const piece = (at) => {
    if (at + size >= body.length) return stream.end(body.slice(at));
    stream.write(body.slice(at, at + size));
    setTimeout(piece, 10, at + size);
  };
  piece(0);
});
Promise.all([...Array(60).keys()].map(call)).then((all) => { console.log(JSON.stringify(all)); session.close(); });
