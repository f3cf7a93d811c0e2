// The figures, which the page fetches while it is open.

let next = 0, asking = false;
async function refresh() {
  if (asking) return;
  asking = true;
  clearTimeout(next);
  let answer = null;
  try {
    const response = await fetch(address, { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(10000) });
    if (!response.ok) throw new Error();
    answer = await response.json();
  } catch {}
  asking = false;
  next = setTimeout(refresh, document.hidden ? 10000 : 2000);
  $("live").dataset.is = answer ? "live" : "lost";
  say($("live"), answer ? "live" : "no connection");
  if (answer) show(answer.acts, answer.state);
}

let drawnRows = "";
function show(mayAct, state) {
  const first = last === null, found = JSON.stringify(state.rows);
  acts = mayAct;
  document.body.dataset.acts = acts;
  last = state;
  names = state.names;
  span = Math.max(2, Math.min(longest, state.second));
  outcomes = state.history.map((list) => list.slice(-span));
  series = (state.rows || []).map(() => null);
  for (const s of state.series || []) series[s.row] = { asked: s.asked.slice(-span), refused: s.refused.slice(-span) };
  if (found !== drawnRows) {
    drawnRows = found;
    rows = state.rows || [];
    if (!rows.some((r) => identity(r) === selected)) selected = null;
    drawRows();
    drawRuleChoice();
  }
  say($("rows-more"), state.hidden ? "The page does not show " + whole.format(state.hidden) + " more rules." : "");
  draw();
  if (first) lookAtAddress(location.href);
}

function draw() {
  skew = last.now * 1000 - Date.now();
  drawVerdict(); // also for the title of a page in the background
  if (document.hidden) return;
  for (const drawCard of cards) drawCard();
}
document.addEventListener("visibilitychange", refresh);
