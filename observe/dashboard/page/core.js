const $ = (id) => document.getElementById(id);
const longest = Number(document.body.dataset.span), judged = Number(document.body.dataset.judged); // seconds
let span = longest;      // seconds that are drawn: up to longest, since the start
const address = location.pathname + location.search;

// What the page knows, and draws.
let rows = [];           // rules in force, as the server numbers them
let series = [];         // of each row: {asked, refused}, span numbers, or null
let outcomes = [];       // of each outcome: span numbers
let names = [];          // of outcomes
let last = null;         // the latest figures
let acts = false;        // the viewer may act
let selected = null;     // a row's identity, or null for all requests
let order = "most";      // of keys
let skew = 0;            // the server's clock less ours, in ms

// Text is only ever set as text: strangers choose the keys.
const el = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) {
    if (k === "on") for (const [event, f] of Object.entries(v)) node.addEventListener(event, f);
    else if (v === true) node.setAttribute(k, "");
    else if (v !== false && v !== undefined) node.setAttribute(k, v);
  }
  node.append(...children);
  return node;
};
const svg = (name, attributes = {}) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
  return node;
};
const say = (node, text) => { if (node && node.textContent !== text) node.textContent = text; };
const identity = (row) => row.rule + "\n" + (row.tier || "") + "\n" + (row.for || "");

const whole = new Intl.NumberFormat("en");
const rate = (n) => n === 0 ? "0" : n < 0.1 ? "<0.1" : n < 10 ? n.toFixed(1) : whole.format(Math.round(n));
const count = (n) => n < 10000 ? whole.format(n) : new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(n);
const percent = (part, all) => {
  if (!all || !part) return "0%";
  const p = 100 * part / all;
  return p < 1 ? "<1%" : p > 99 && p < 100 ? ">99%" : Math.round(p) + "%";
};
const until = (ms) => {
  const s = Math.max(0, Math.ceil((ms - Date.now() - skew) / 1000));
  if (s === 0) return "ending";
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  if (d) return d + " d " + h + " h left";
  if (h) return h + " h " + m + " min left";
  return m ? m + " min " + (s % 60) + " s left" : s + " s left";
};
const clock = (ms, seconds) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: seconds ? "2-digit" : undefined, hourCycle: "h23" }) +
  (Math.abs(ms - Date.now()) > 12 * 3600e3 ? " on " + new Date(ms).toLocaleDateString() : "");
const zeros = () => new Array(span).fill(0);
// The mean of the seconds that the verdict is about.
const mean = (list) => {
  const n = Math.max(1, Math.min(judged, last.second));
  let sum = 0;
  for (let i = list.length - n; i < list.length; i++) sum += list[i] || 0;
  return sum / n;
};
const total = (list) => list.reduce((a, b) => a + b, 0);

// items returns the n items of a list, and adds or removes items as needed.
function items(list, n, make) {
  while (list.childElementCount > n) list.lastChild.remove();
  while (list.childElementCount < n) list.append(make());
  return [...list.children];
}

// Cards are drawn one after the other when new figures arrive. Each file adds its own.
const cards = [];

// post sends an action, and returns the answer: {error} if there is none.
async function post(ask) {
  try {
    const response = await fetch(address, {
      method: "POST", headers: { "Content-Type": "application/json", Accept: "application/json" }, body: JSON.stringify(ask),
    });
    const text = await response.text();
    refresh();
    try { return JSON.parse(text); } catch { return { error: text.trim() || response.statusText }; }
  } catch (error) {
    return { error: "The service does not answer: " + error.message };
  }
}
