// Charts: areas on top of each other, over the last minutes.

// area is the path between two lines, the later seconds to the right.
function area(bottom, top, most, height) {
  const y = (n) => (height - height * n / most).toFixed(2);
  let d = "";
  for (let i = 0; i < top.length; i++) d += (i ? "L" : "M") + i + "," + y(top[i]);
  for (let i = top.length - 1; i >= 0; i--) d += "L" + i + "," + y(bottom[i]);
  return d + "Z";
}
// edge is the upper line of an area, where the area is not empty.
function edge(list, top, most, height) {
  let d = "", on = false;
  for (let i = 0; i < top.length; i++) {
    const is = list[i] > 0 || list[i - 1] > 0 || list[i + 1] > 0;
    if (is) d += (on ? "L" : "M") + i + "," + (height - height * top[i] / most).toFixed(2);
    on = is;
  }
  return d;
}
// smooth averages neighbouring seconds.
const smooth = (list) => list.map((n, i) => (2 * n + (list[i - 1] ?? n) + (list[i + 1] ?? n)) / 4);
const nice = (n) => {
  const power = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((f) => f * power).find((f) => f >= n) || 10 * power;
};

const outcomeOf = (name) => outcomes[names.indexOf(name)] || zeros();
const add = (a, b) => a.map((n, i) => n + b[i]);
function layers(row) {
  if (row) {
    const { asked, refused } = series[rows.indexOf(row)] || { asked: zeros(), refused: zeros() };
    const passed = asked.map((n, k) => n - Math.min(n, refused[k]));
    return [
      { name: row.shadow ? "would pass" : "within the limit", kind: "pass", list: passed, always: true },
      { name: row.shadow ? "would be refused" : "refused", kind: row.shadow ? "shadow" : "refuse", list: refused, always: true },
    ];
  }
  return [
    { name: "passed", kind: "pass", list: outcomeOf("allowed"), always: true },
    { name: "exempt", kind: "exempt", list: outcomeOf("exempt") },
    { name: "refused", kind: "refuse", list: outcomeOf("refused"), always: true },
    { name: "shed for overload", kind: "undecided", list: outcomeOf("shed") },
    { name: "without a key", kind: "refuse", list: outcomeOf("no_key") },
    { name: "banned", kind: "ban", list: outcomeOf("banned") },
    { name: "undecided", kind: "undecided", list: outcomeOf("undecided") },
  ];
}

let shownLayers = [], hover = -1;
function drawChart() {
  const row = rows.find((r) => identity(r) === selected);
  say($("traffic-title"), row ? row.rule + (row.tier ? " · " + row.tier : "") + ", requests a second" : "All requests, a second");
  const times = span < longest ? ["started at " + clock((last.now - last.second) * 1000, true), "now"] : ["5 min ago", "4", "3", "2", "1", "now"];
  items($("chart-time"), times.length, () => el("span")).forEach((label, i) => say(label, times[i]));
  hover = Math.min(hover, span - 1);
  shownLayers = layers(row).filter((l) => l.always || total(l.list) > 0);
  const height = 100, chart = $("chart");
  let floor = zeros();
  const sums = [];
  for (const l of shownLayers) {
    const top = add(floor, smooth(l.list));
    sums.push([floor, top, l]);
    floor = top;
  }
  const most = nice(Math.max(...floor, 1) * 1.04);
  chart.setAttribute("viewBox", `0 0 ${span - 1} ${height}`);
  const lines = [0.5, 1].map((f) => f * most);
  chart.replaceChildren(
    ...lines.map((n) => svg("line", { x1: 0, x2: span - 1, y1: height - height * n / most, y2: height - height * n / most })),
    ...sums.map(([bottom, top, l]) => svg("path", { class: l.kind, d: area(bottom, top, most, height) })),
    ...sums.map(([, top, l]) => svg("path", { class: l.kind + " edge", d: edge(l.list, top, most, height) })),
  );
  const marks = (last.marks || []).map((m) => ({ ...m, x: span - 1 - (last.now * 1000 - m.at) / 1000 })).filter((m) => m.x >= 0 && m.x <= span);
  for (const m of marks) chart.append(svg("line", { class: m.bad ? "mark bad" : "mark", x1: m.x, x2: m.x, y1: 0, y2: height }));
  if (hover >= 0) chart.append(svg("line", { class: "hair", x1: hover, x2: hover, y1: 0, y2: height }));
  $("chart-scale").replaceChildren(...lines.map((n) => {
    const label = el("span", {}, rate(n));
    label.style.top = n === most ? "8px" : (100 - 100 * n / most) + "%";
    return label;
  }));
  items($("chart-marks"), marks.length, () => el("span")).forEach((label, i) => {
    const m = marks[i], part = 100 * m.x / (span - 1);
    say(label, m.text + " " + clock(m.at, true));
    label.className = (m.bad ? "bad" : "") + (part > 60 ? " before" : "");
    label.style.left = part + "%";
    label.style.top = 18 * (i % 4) + "px"; // marks of one moment do not overlap
  });
  const legend = $("legend");
  if (legend.dataset.of !== shownLayers.map((l) => l.name).join()) {
    legend.dataset.of = shownLayers.map((l) => l.name).join();
    legend.replaceChildren(...shownLayers.map((l) => el("li", { class: l.kind }, el("i"), el("b"), el("span", {}, l.name))));
  }
  shownLayers.forEach((l, i) => say(legend.children[i].querySelector("b"), rate(mean(l.list))));
  say($("chart-says"), shownLayers.map((l) => rate(mean(l.list)) + " " + l.name).join(", ") + " a second." + marks.map((m) => " " + m.text + " at " + clock(m.at, true) + ".").join(""));
  drawHand();
}

function drawHand() {
  const hand = $("chart-hand");
  hand.hidden = hover < 0 || !last;
  if (hand.hidden) return;
  const at = new Date((last.now - (span - hover)) * 1000);
  say(hand, [clock(at.getTime(), true), ...shownLayers.map((l) => l.name + "  " + whole.format(l.list[hover]))].join("\n"));
  const width = $("chart").clientWidth, x = hover / (span - 1) * width;
  hand.style.left = Math.max(0, x > width / 2 ? x - hand.offsetWidth - 12 : x + 12) + "px";
}
$("chart").addEventListener("pointermove", (e) => {
  const box = $("chart").getBoundingClientRect();
  hover = Math.min(span - 1, Math.max(0, Math.round((e.clientX - box.left) / box.width * (span - 1))));
  if (last) drawChart();
});
$("chart").addEventListener("pointerleave", () => { hover = -1; if (last) drawChart(); });
cards.push(drawChart);
