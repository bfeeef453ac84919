// Node's fetch and http modules, as a program without any proxy setting uses them: fetch.mjs MODE METHOD URL
import https from "node:https";
import http from "node:http";
import net from "node:net";

const [mode, method, url] = process.argv.slice(2);
try {
  if (mode === "fetch") {
    const answer = await fetch(url, { method, body: method === "POST" ? "{}" : undefined });
    console.log(answer.status, await answer.text());
  } else if (mode === "http") {
    const module = url.startsWith("https") ? https : http;
    await new Promise((resolve, reject) => {
      const request = module.request(url, { method }, (answer) => {
        let body = "";
        answer.on("data", (block) => (body += block));
        answer.on("end", () => resolve(console.log(answer.statusCode, answer.statusMessage, body)));
      });
      request.on("error", reject);
      request.end();
    });
  } else {
    await new Promise((resolve, reject) => net.connect({ host: method, port: Number(url) }, resolve).on("error", reject));
    console.log("connected");
    process.exit(0);
  }
} catch (error) {
  console.log("error", error.code ?? error.cause?.code ?? error.message);
}
