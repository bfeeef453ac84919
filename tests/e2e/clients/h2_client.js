// Four exchanges at once on one HTTP/2 connection, one of them denied:  h2_client.js ORIGIN
const http2 = require('http2');

const session = http2.connect(process.argv[2]);
session.on('error', (error) => { console.error(error); process.exit(1); });
const exchange = (headers, body) => new Promise((resolve) => {
  const stream = session.request(headers);
  const got = {};
  stream.on('response', (head) => { got.status = head[':status']; got.denied = head['x-sluice-denied']; });
  stream.on('headers', (head) => { got.interim = head[':status']; });
  stream.on('trailers', (trailers) => { got.sum = trailers['x-sum']; });
  stream.on('error', (error) => { got.error = error.message; });
  let text = '';
  stream.setEncoding('utf8');
  stream.on('data', (chunk) => { text += chunk; });
  stream.on('close', () => { got.text = text.slice(0, 400); got.rst = stream.rstCode; resolve(got); });
  stream.end(body);
});
Promise.all([
  exchange({':path': '/pub/hints', cookie: ['a=1', 'b=2']}),
  exchange({':path': '/pub/put', ':method': 'PUT'}, 'x'.repeat(1000000)),
  exchange({':path': '/secret'}),
  exchange({':path': '/pub/reset'}),
]).then((all) => { console.log(JSON.stringify(all)); session.close(); });
