// Rules.

// coarse averages up to three seconds at a time, as a small picture shows no more.
const coarse = (list) => Array.from({ length: Math.ceil(list.length / 3) }, (_, i) => {
  const some = list.slice(3 * i, 3 * i + 3);
  return total(some) / some.length;
});

let lines = []; // one for all requests, and one for each row
const many = 12;
function line(row) {
  const asked = svg("path", { class: "pass" });
  const refused = svg("path", { class: row && row.shadow ? "shadow" : "refuse" });
  const spark = svg("svg", { class: "spark", preserveAspectRatio: "none", "aria-hidden": "true" });
  spark.append(asked, refused);
  const number = (what) => {
    const value = el("span");
    const node = el("span", { class: "number" }, el("em", {}, what), value);
    return { node, value };
  };
  const numbers = [number("requests/s"), number("refused/s"), number("refused")];
  const name = el("span", { class: "name" }), now = el("span"), outage = el("span", { class: "outage" });
  if (row) {
    name.append(row.rule);
    if (row.tier) name.append(" ", el("small", {}, row.tier));
    if (row.shadow) name.append(el("span", { class: "badge", title: "It refuses nothing." }, "shadow"));
    if (row.onOutage === "closed") name.append(el("span", { class: "badge closed", title: "Without the store, it " + row.outage + "." }, "fails closed"));
    if (row.onOutage === "open") name.append(el("span", { class: "badge closed", title: "Without the store, it " + row.outage + "." }, "fails open"));
    name.append(el("span", { class: "about" }, row.limit + (row.for && row.for !== row.rule ? ", " + row.for : ""), now, outage));
  } else {
    name.append("All requests");
  }
  const id = row ? identity(row) : null;
  const button = el("button", { type: "button", class: "row" + (row && row.shadow ? " in-shadow" : ""), on: { click: () => select(id) } },
    name, spark, ...numbers.map((n) => n.node));
  return { id, row, now, outage, button, spark, item: el("li", {}, button), asked, refused, numbers: numbers.map((n) => n.value), nodes: numbers.map((n) => n.node) };
}

function drawRows() {
  lines = rows.map(line);
  lines.forEach((l, i) => { l.index = i; });
  if (rows.length >= many) { // rules that refuse come first
    const of = (l, what) => series[l.index] ? total(series[l.index][what]) : 0;
    lines.sort((a, b) => of(b, "refused") - of(a, "refused") || of(b, "asked") - of(a, "asked"));
  }
  lines.unshift(line(null));
  $("rows").replaceChildren(...lines.map((l) => l.item));
  $("find").hidden = rows.length < many;
  filter();
}
function filter() {
  const wanted = $("find").value.trim().toLowerCase();
  const found = lines.filter((l) => !l.row || (l.row.rule + " " + (l.row.tier || "") + " " + (l.row.for || "")).toLowerCase().includes(wanted));
  const shown = new Set(allRows || found.length <= many + 3 ? found : found.slice(0, many));
  lines.forEach((l) => { l.item.hidden = !shown.has(l) && l.id !== selected; });
  $("rows-all").hidden = shown.size === found.length;
  say($("rows-all"), "Show " + whole.format(found.length - shown.size) + " more");
  if (last) updateRows();
}
let allRows = false;
$("rows-all").addEventListener("click", () => { allRows = true; filter(); });
$("find").addEventListener("input", filter);

function updateRows() {
  say($("rows-span"), span < longest ? "since the start" : "last 5 min");
  const places = new Map((last.places || []).map(([row, taken, waiting]) => [row, [taken, waiting]]));
  const units = new Map((last.units || []).map(([row, ...counts]) => [row, counts.map((n) => whole.format(n))]));
  lines.forEach((l) => {
    if (l.row) {
      const [reserved, settled, unsettled] = units.get(l.index) || [];
      const [taken, waiting] = places.get(l.index) || [0, 0];
      l.outage.className = "outage " + (l.row.shadow ? "" : l.row.onOutage || "");
      say(l.outage, last.outage ? "Now: " + l.row.outage : "");
      say(l.now, (taken || waiting ? "; in progress " + whole.format(taken) + (waiting ? ", waiting " + whole.format(waiting) : "") : "")
        + (reserved ? "; units reserved " + reserved + ", settled " + settled + ", unsettled " + unsettled : ""));
    }
    l.button.setAttribute("aria-pressed", l.id === selected);
    if (l.item.hidden) return;
    const s = l.row ? series[l.index] : {
      asked: outcomes.reduce(add, zeros()),
      refused: outcomeOf("refused"),
    };
    if (!s) { l.numbers.forEach((n, i) => say(n, i < 2 ? "0" : "–")); return; }
    const asked = coarse(s.asked), most = Math.max(...asked, 1), ground = asked.map(() => 0);
    l.spark.setAttribute("viewBox", `0 0 ${Math.max(1, asked.length - 1)} 30`);
    l.asked.setAttribute("d", area(ground, asked, most, 30));
    l.refused.setAttribute("d", total(s.refused) ? area(ground, coarse(s.refused), most, 30) : "");
    const a = mean(s.asked), r = mean(s.refused);
    say(l.numbers[0], rate(a));
    say(l.numbers[1], rate(r));
    say(l.numbers[2], a ? percent(r, a) : "–");
    l.nodes[1].classList.toggle("some", r > 0);
    l.nodes[2].classList.toggle("some", r > 0);
  });
}

function select(id) {
  selected = id;
  filter(); // the selected row is always shown
  const row = rows.find((r) => identity(r) === id);
  if (row) $("rule").value = row.rule;
  if (last) draw();
}

function selectRule(name) {
  const row = rows.find((r) => r.rule === name);
  if (row) select(identity(row));
}

function drawRuleChoice() {
  const chosen = $("rule").value;
  const all = [...new Set(rows.map((r) => r.rule))];
  $("rule").replaceChildren(el("option", { value: "" }, "the rule that refuses it"), ...all.map((name) => el("option", { value: name }, name)));
  if (all.includes(chosen)) $("rule").value = chosen;
}
cards.push(updateRows);
