// A WebSocket over HTTP/2 (RFC 8441), its frames by hand:  h2_ws_client.mjs ORIGIN PATH TEXT [wait]
// Says what was offered, the status, each frame that comes, and the end; with `wait` it does not close by itself.
import http2 from 'node:http2';

const [origin, path, text, wait] = process.argv.slice(2);
const session = http2.connect(origin);
session.on('error', (error) => { console.error(error); process.exit(1); });

function frame(opcode, payload) {
  const mask = Buffer.from([1, 2, 3, 4]);
  const body = Buffer.from(payload).map((byte, at) => byte ^ mask[at % 4]);
  const length = body.length < 126 ? [0x80 | body.length] : [0x80 | 126, body.length >> 8, body.length & 255];
  return Buffer.concat([Buffer.from([0x80 | opcode, ...length]), mask, body]);
}

session.on('remoteSettings', (settings) => {
  console.log('offered', settings.enableConnectProtocol);
  const stream = session.request({':method': 'CONNECT', ':protocol': 'websocket', ':path': path, 'sec-websocket-version': '13'});
  let bytes = Buffer.alloc(0);
  stream.on('response', (headers) => {
    console.log('status', headers[':status']);
    if (headers[':status'] === 200) stream.write(frame(1, text)); else stream.end();
  });
  stream.on('data', (chunk) => {
    bytes = Buffer.concat([bytes, chunk]);
    for (;;) {
      const long = (bytes[1] & 127) === 126;
      const start = long ? 4 : 2;
      if (bytes.length < start) return;
      const size = long ? bytes.readUInt16BE(2) : bytes[1] & 127;
      if (bytes.length < start + size) return;
      const opcode = bytes[0] & 15;
      const payload = bytes.subarray(start, start + size);
      if (opcode === 8) console.log('close', payload.readUInt16BE(0), payload.subarray(2).toString());
      else console.log('frame', opcode, payload.toString());
      if (opcode === 1 && !wait) stream.write(frame(8, Buffer.concat([Buffer.from([0x0f, 0xa1]), Buffer.from('done')])));
      if (opcode === 8) stream.end();
      bytes = bytes.subarray(start + size);
    }
  });
  stream.on('error', (error) => console.log('error', error.message));
  stream.on('close', () => { console.log('end', stream.rstCode); session.close(); });
});
