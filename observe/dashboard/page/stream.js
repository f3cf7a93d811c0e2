// The stream.

let stream = null, silence = 0, retry = 0;
const often = 10000; // ms between two looks of a page that is not live
function connect() {
  clearTimeout(retry);
  $("again").hidden = true;
  stream = new EventSource(address);
  stream.addEventListener("state", (e) => { begin(JSON.parse(e.data)); heard(); });
  stream.addEventListener("tick", (e) => { advance(JSON.parse(e.data)); heard(); });
  // A newer page has its place. To come back at once would take it from that one.
  stream.addEventListener("closed", () => { stream.close(); wait(often, "a newer page is live"); });
  stream.onerror = () => {
    live("lost", "no connection");
    // A browser comes back by itself unless it was turned away.
    if (stream.readyState === EventSource.CLOSED) retry = setTimeout(look, 1000);
  };
}

// look asks for the figures once, and for the stream if there is room for it.
async function look() {
  try {
    const response = await fetch(address, { headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(response.statusText);
    const state = await response.json();
    if (!state.full) return connect();
    begin(state);
    wait(often, "as many pages are live as may be; seen " + new Date().toLocaleTimeString());
  } catch {
    live("lost", "no connection");
    retry = setTimeout(look, often / 2);
  }
}
function wait(ms, why) {
  clearTimeout(silence);
  clearTimeout(retry);
  live("waiting", why);
  $("again").hidden = false;
  // Not all at the same time.
  retry = setTimeout(look, ms * (0.75 + Math.random() / 2));
}
$("again").addEventListener("click", connect);

function heard() {
  live("live", "live");
  clearTimeout(silence);
  silence = setTimeout(() => live("lost", "no news for 5 s"), 5000);
}
function live(is, text) { $("live").dataset.is = is; say($("live"), text); }

function begin(state) {
  const first = last === null;
  rows = state.rows || [];
  names = state.names;
  outcomes = state.history;
  acts = state.acts;
  document.body.dataset.acts = acts;
  series = rows.map(() => null);
  for (const s of state.series || []) series[s.row] = { asked: s.asked, refused: s.refused };
  if (selected !== null && !rows.some((r) => identity(r) === selected)) selected = null;
  say($("rows-more"), state.hidden ? "And " + whole.format(state.hidden) + " rules more, which the page does not show." : "");
  last = state;
  drawRows();
  drawRuleChoice();
  draw();
  if (first) lookAtAddress(location.href);
}

function advance(tick) {
  const step = (list, n) => { list.push(n); list.shift(); };
  outcomes.forEach((list, i) => step(list, tick.outcomes[i]));
  const now = new Map(tick.counts.map(([row, asked, refused]) => [row, [asked, refused]]));
  rows.forEach((_, i) => {
    const counted = now.get(i);
    if (!series[i]) {
      if (!counted) return;
      series[i] = { asked: zeros(), refused: zeros() };
    }
    const [asked, refused] = counted || [0, 0];
    step(series[i].asked, asked);
    step(series[i].refused, refused);
  });
  last = tick;
  draw();
}

function draw() {
  skew = last.now * 1000 - Date.now();
  drawVerdict(); // also for the title of a page in the background
  if (document.hidden) return;
  for (const drawCard of cards) drawCard();
}
document.addEventListener("visibilitychange", () => { if (last) draw(); });
