// Opens page.html in a real browser and checks that it shows and acks what is sent over REST.
//
//   node run.mjs --gateway http://127.0.0.1:8080 --page http://127.0.0.1:5173/ [--idle SECONDS]
//
// With --idle the page is only left alone for so long and must receive again afterwards, on the same socket.
//
// Starts nothing but the browser. --gateway is a running gateway, --page an address on 127.0.0.1 that serves page.html
// and that the gateway was told with --allow-origin. CHROMIUM names the browser's program, /usr/bin/chromium unless set.
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const { values } = parseArgs({
  options: { gateway: { type: "string" }, page: { type: "string" }, idle: { type: "string" } },
});
if (!values.gateway || !values.page) {
  console.error("usage: node run.mjs --gateway URL --page URL");
  process.exit(2);
}
const gateway = new URL(values.gateway);
const api = `${gateway.origin}/v1/ns/default`;
const LIMIT_MS = 15_000;
// More than the credit the page starts with, so that it has to grant more as it acks.
const MESSAGES = 25;

function check(condition, what) {
  if (!condition) throw new Error(what);
}

async function call(method, path, body) {
  const headers = body ? { "content-type": "application/json" } : {};
  const answer = await fetch(api + path, { method, headers, body: body && JSON.stringify(body) });
  const text = await answer.text();
  check(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return JSON.parse(text);
}

async function send(names) {
  for (const text of names) await call("POST", "/topics/hello/messages", { text });
}

// What the group has not settled: numbers over all queues.
async function unsettled() {
  const lag = await call("GET", "/groups/page/lag");
  const queues = lag.queues ?? lag.items;
  check(Array.isArray(queues) && queues.length > 0, `lag lists queues: ${JSON.stringify(lag)}`);
  return queues.reduce((sum, queue) => sum + queue.ready + queue.inFlight + queue.retrying, 0);
}

async function until(what, condition) {
  const end = performance.now() + LIMIT_MS;
  while (!(await condition())) {
    check(performance.now() < end, `${what}: not within ${LIMIT_MS} ms`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

function names(variant) {
  return Array.from({ length: MESSAGES }, (_, n) => `${variant} ${n} – äöü "<b>" \u{1F980}`);
}

function shown(page) {
  return page.locator("li").allTextContents();
}

// The page gets what was sent before and after it was opened, each once, and acks all of it.
async function receives(context, variant, url) {
  const page = await context.newPage();
  const [before, after] = [names(`${variant} before`), names(`${variant} after`)];
  await send(before);
  await page.goto(url);
  await until(`${variant}: messages sent before`, async () => (await shown(page)).length >= before.length);
  await send(after);
  const expected = [...before, ...after].sort();
  await until(`${variant}: messages sent after`, async () => (await shown(page)).length >= expected.length);
  await until(`${variant}: lag 0`, async () => (await unsettled()) === 0);
  const texts = (await shown(page)).sort();
  check(JSON.stringify(texts) === JSON.stringify(expected), `${variant}: shows ${JSON.stringify(texts)}`);
  await page.close();
  console.log(`ok ${variant}: ${expected.length} messages shown and acked`);
}

// Nothing is sent and the page says nothing: the socket stays, and what is sent then arrives at once.
async function idles(context, url, seconds) {
  const page = await context.newPage();
  await send(["before"]);
  await page.goto(url);
  await until("message before the silence", async () => (await shown(page)).length === 1);
  await page.evaluate(() => {
    window.ended = null;
    window.pings = 0;
    socket.addEventListener("close", ({ code, reason }) => (window.ended = `${code} ${reason}`));
    socket.addEventListener("message", ({ data }) => (window.pings += JSON.parse(data).op === "ping"));
  });
  await new Promise((done) => setTimeout(done, seconds * 1000));
  const [ended, pings, state] = await page.evaluate(() => [window.ended, window.pings, socket.readyState]);
  check(ended === null && state === 1, `after ${seconds} s: closed ${ended}, state ${state}`);
  check(pings >= Math.floor(seconds / 25), `after ${seconds} s: ${pings} pings`);
  await send(["after"]);
  await until("message after the silence", async () => (await shown(page)).length === 2);
  await until("lag 0", async () => (await unsettled()) === 0);
  console.log(`ok idle: ${seconds} s, ${pings} pings, still receiving`);
}

// A page of an origin the gateway was not told gets no socket.
async function refused(context, url) {
  const page = await context.newPage();
  await page.goto(url);
  await until("foreign origin: closed", () => page.evaluate(() => socket.readyState === WebSocket.CLOSED));
  check((await shown(page)).length === 0, "foreign origin: shows nothing");
  await page.close();
  console.log("ok foreign origin: refused");
}

const profile = await mkdtemp(join(tmpdir(), "gantry-browser-"));
const context = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    // A page that comes from page.route has no address; the browser would take it for one of the Internet.
    "--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets"],
});
try {
  const query = `?gateway=${gateway.host}`;
  if (values.idle) {
    await idles(context, values.page + query, Number(values.idle));
  } else {
    const html = await readFile(new URL("page.html", import.meta.url), "utf8");
    const serve = (route) => route.fulfill({ contentType: "text/html; charset=utf-8", body: html });
    await receives(context, "other origin", values.page + query);
    // The same page as if the gateway itself served it.
    await context.route(`${gateway.origin}/page.html*`, serve);
    await receives(context, "same origin", `${gateway.origin}/page.html${query}`);
    // By another name the page's server is an origin that the gateway was not told.
    const stranger = new URL(values.page + query);
    stranger.hostname = "localhost";
    await refused(context, stranger.href);
  }
} finally {
  await context.close();
  await rm(profile, { recursive: true, force: true });
}
