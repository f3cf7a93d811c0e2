// The last hour and the last day, of which the chart has a point for some seconds each.

let chosen = "minutes", past = null, pastOf = "", pastAt = 0;

// inquire has the server tell more than the stream does.
async function inquire(what) {
  const query = new URLSearchParams(location.search);
  for (const [k, v] of Object.entries(what)) query.set(k, v);
  try {
    const response = await fetch(location.pathname + "?" + query, { headers: { Accept: "application/json" } });
    const text = await response.text();
    try { return JSON.parse(text); } catch { return { error: text.trim() || response.statusText }; }
  } catch (error) {
    return { error: "The service gives no answer: " + error.message };
  }
}

// charted is what the chart draws: outcomes or, of a rule, what it was asked and refused, and how
// many of the last points are known.
function charted(row) {
  if (chosen === "minutes") {
    const of = (row && series[rows.indexOf(row)]) || { asked: zeros(), refused: zeros() };
    return { outcome: outcomeOf, asked: of.asked, refused: of.refused, known: Math.min(span, last.second), step: 1, end: last.now };
  }
  if (!past || pastOf !== pastName(row)) {
    return { outcome: zeros, asked: zeros(), refused: zeros(), known: 0, step: 0, end: last.now };
  }
  return { ...past, outcome: (name) => past.all[names.indexOf(name)] || zeros(), asked: past.asked || zeros(), refused: past.refused || zeros() };
}
const pastName = (row) => chosen + (row ? "\n" + identity(row) : "");

// The last point grows until it is over, so that it is worth asking for.
async function lookBack() {
  const row = rows.find((r) => identity(r) === selected), name = pastName(row);
  if (chosen === "minutes" || pastOf === name && Date.now() - pastAt < 10000) return;
  pastAt = Date.now();
  if (pastOf !== name) past = null;
  pastOf = name;
  const answer = await inquire(row ? { weir: "past", span: chosen, rule: row.rule, tier: row.tier || "" } : { weir: "past", span: chosen });
  if (pastOf !== name) return; // another was chosen meanwhile
  if (answer.error) {
    say($("chart-note"), (past ? "Not as of now: " : "Not known: ") + answer.error);
    return;
  }
  past = answer;
  drawChart();
}
cards.unshift(lookBack);

function drawSpan(view) {
  for (const name of ["minutes", "hour", "day"]) $("span-" + name).setAttribute("aria-pressed", name === chosen);
  const labels = { minutes: ["5 min ago", "4", "3", "2", "1", "now"], hour: ["60 min ago", "50", "40", "30", "20", "10", "now"], day: ["24 h ago", "20", "16", "12", "8", "4", "now"] }[chosen];
  if ($("chart-time").dataset.of !== chosen) {
    $("chart-time").dataset.of = chosen;
    $("chart-time").replaceChildren(...labels.map((text) => el("span", {}, text)));
  }
  const notes = [];
  if (view.step > 1) notes.push("Averages over " + (view.step < 60 ? view.step + " s" : (view.step / 60).toFixed(1) + " min") + ", of this process.");
  if (view.known < span && view.step) {
    notes.push("Nothing is known of what was before " + clock((view.end - view.known * view.step) * 1000, view.step === 1) + ".");
  }
  if (view.step || chosen === "minutes") say($("chart-note"), notes.join(" "));
}

for (const name of ["minutes", "hour", "day"]) {
  $("span-" + name).addEventListener("click", () => {
    chosen = name;
    hover = -1;
    say($("chart-note"), "");
    if (last) { lookBack(); drawChart(); }
  });
}
