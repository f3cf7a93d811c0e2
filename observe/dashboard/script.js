"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const span = Number(document.body.dataset.span);
  const address = location.pathname + location.search;

  // What the page knows. Everything that is drawn is made of it.
  let rows = [];           // rules in force, as the server numbers them
  let series = [];         // of each row: {asked, refused}, span numbers, or null
  let outcomes = [];       // of each outcome: span numbers
  let names = [];          // of outcomes
  let last = null;         // the latest tick
  let selected = null;     // a row's identity, or null for all requests
  let order = "most";      // of keys
  let skew = 0;            // the server's clock less ours, in ms

  // Text is only ever set as text: keys are what strangers send.
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
  const zeros = () => new Array(span).fill(0);
  // The mean of some seconds is steadier than the last one, and no older than five.
  const mean = (list) => {
    const n = Math.max(1, Math.min(5, last.second));
    let sum = 0;
    for (let i = list.length - n; i < list.length; i++) sum += list[i] || 0;
    return sum / n;
  };
  const total = (list) => list.reduce((a, b) => a + b, 0);

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
    rows = state.rows || [];
    names = state.names;
    outcomes = state.history;
    series = rows.map(() => null);
    for (const s of state.series || []) series[s.row] = { asked: s.asked, refused: s.refused };
    if (selected !== null && !rows.some((r) => identity(r) === selected)) selected = null;
    say($("rows-more"), state.hidden ? "And " + whole.format(state.hidden) + " rules more, which the page does not show." : "");
    last = state;
    drawRows();
    drawRuleChoice();
    draw();
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
    drawStore();
    drawOverload();
    drawChart();
    updateRows();
    drawKeys();
    drawBans();
    drawCalls();
  }
  document.addEventListener("visibilitychange", () => { if (last) draw(); });

  function drawVerdict() {
    const v = last.verdict;
    $("verdict").dataset.level = v.level;
    say($("verdict-text"), v.text);
    say($("verdict-detail"), v.detail || "");
    const said = v.level + " " + (v.findings || []).map((f) => f.rule).join();
    if ($("verdict").dataset.said !== said) { // not each time that a figure changes
      $("verdict").dataset.said = said;
      say($("verdict-said"), v.text);
    }
    const findings = v.findings || [], list = $("findings");
    while (list.childElementCount > findings.length) list.lastChild.remove();
    findings.forEach((f, i) => {
      if (!list.children[i]) list.append(el("li", {}, el("button", { type: "button" }, el("b"), " ", el("span"))));
      const button = list.children[i].firstChild;
      button.onclick = () => selectRule(f.rule);
      say(button.children[0], f.rule + ":");
      say(button.children[1], f.text);
    });
    const sign = { bad: "✕ ", warning: "▲ " }[v.level] || "";
    document.title = sign + "Weir · " + $("title").textContent;
  }

  function drawStore() {
    const s = last.store;
    $("store").dataset.bad = s.bad;
    say($("store-state"), s.text);
    say($("store-time"), s.median && !s.bad ? "Decides in " + s.median + ", one in a hundred takes " + s.slowest + " or more." : "");
    say($("store-error"), s.error || "");
    const list = $("store-figures");
    list.closest("details").hidden = s.figures.length === 0;
    if (list.childElementCount !== 2 * s.figures.length) {
      list.replaceChildren(...s.figures.flatMap(() => [el("dt"), el("dd")]));
    }
    s.figures.forEach((f, i) => { say(list.children[2 * i], f.name); say(list.children[2 * i + 1], f.value); });
  }

  // Overload: how much the service has room for.

  // items are so many of a list, as make makes them.
  function items(list, n, make) {
    while (list.childElementCount > n) list.lastChild.remove();
    while (list.childElementCount < n) list.append(make());
    return [...list.children];
  }
  function gauge() {
    const picture = svg("svg", { viewBox: "0 0 100 5", preserveAspectRatio: "none", "aria-hidden": "true" });
    picture.append(svg("rect", { height: 5, width: 0 }));
    return el("div", { class: "bar" }, picture);
  }
  function drawOverload() {
    const o = last.overload;
    $("overload").hidden = !o;
    if (!o) return;
    const over = o.levels.filter((l) => l.overloaded);
    const is = over.length ? "sheds" : o.places.some((p) => p.waiting) ? "waits" : "room";
    $("overload").dataset.is = is;
    say($("overload-text"), {
      room: "has room",
      waits: "requests wait for a place",
      sheds: "sheds " + (over.length < o.levels.length ? over.map((l) => l.name).join(", ") : "requests of all levels"),
    }[is]);
    const places = items($("places"), o.places.length, () => el("li", {}, el("span", { class: "name" }), el("span", { class: "about" }), gauge()));
    o.places.forEach((p, i) => {
      const [name, about, bar] = places[i].children;
      say(name, p.route || (o.places.length > 1 ? "other routes" : ""));
      const parts = [whole.format(p.inFlight) + " of " + whole.format(p.limit) + " in flight"];
      if (p.waiting) parts.push(whole.format(p.waiting) + (p.waiting === 1 ? " waits" : " wait"));
      if (p.streams) parts.push(whole.format(p.streams) + (p.streams === 1 ? " stream" : " streams") + " beside");
      say(about, parts.join(", "));
      const part = bar.firstChild.firstChild;
      part.setAttribute("class", p.waiting ? "r" : "a");
      part.setAttribute("width", Math.min(100, 100 * p.inFlight / p.limit));
    });
    say($("places-more"), o.more ? "And " + whole.format(o.more) + " routes more, with more room." : "");
    const levels = items($("levels"), o.levels.length, () => el("li", {}, el("span", { class: "name" }), el("span", { class: "number" }), el("span", { class: "number" })));
    o.levels.forEach((l, i) => {
      const [name, admitted, shed] = levels[i].children;
      say(name, l.name || "all requests");
      say(admitted, count(l.admitted));
      say(shed, count(l.shed));
      shed.classList.toggle("some", l.shed > 0);
    });
    const [p] = o.places;
    say($("overload-note"), "The limit follows what the service can do" + (o.places.length === 1 && p.rate && p.latency
      ? ": at least " + rate(p.rate) + " requests a second, in " + p.latency + " where none waits." : "."));
  }

  // Charts: areas on top of each other, over the last minutes.

  // area is the path between two lines, the later seconds to the right.
  function area(bottom, top, most, height) {
    const y = (n) => (height - height * n / most).toFixed(2);
    let d = "";
    for (let i = 0; i < top.length; i++) d += (i ? "L" : "M") + i + "," + y(top[i]);
    for (let i = top.length - 1; i >= 0; i--) d += "L" + i + "," + y(bottom[i]);
    return d + "Z";
  }
  // edge is the upper line of an area, where there is any of it.
  function edge(list, top, most, height) {
    let d = "", on = false;
    for (let i = 0; i < top.length; i++) {
      const is = list[i] > 0 || list[i - 1] > 0 || list[i + 1] > 0;
      if (is) d += (on ? "L" : "M") + i + "," + (height - height * top[i] / most).toFixed(2);
      on = is;
    }
    return d;
  }
  // smooth makes bars of seconds into water.
  const smooth = (list) => list.map((n, i) => (2 * n + (list[i - 1] ?? n) + (list[i + 1] ?? n)) / 4);
  const nice = (n) => {
    const power = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
    return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((f) => f * power).find((f) => f >= n) || 10 * power;
  };

  const outcomeOf = (name) => outcomes[names.indexOf(name)] || zeros();
  const add = (a, b) => a.map((n, i) => n + b[i]);
  function layers() {
    const i = rows.findIndex((r) => identity(r) === selected);
    if (i >= 0) {
      const s = series[i] || { asked: zeros(), refused: zeros() };
      const passed = s.asked.map((n, k) => n - Math.min(n, s.refused[k]));
      return [
        { name: rows[i].shadow ? "would pass" : "within the limit", kind: "pass", list: passed, always: true },
        { name: rows[i].shadow ? "would be refused" : "refused", kind: rows[i].shadow ? "shadow" : "refuse", list: s.refused, always: true },
      ];
    }
    return [
      { name: "passed", kind: "pass", list: outcomeOf("allowed"), always: true },
      { name: "exempt", kind: "exempt", list: outcomeOf("exempt") },
      { name: "on an overdraft", kind: "shadow", list: outcomeOf("overdrawn") },
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
    shownLayers = layers().filter((l) => l.always || total(l.list) > 0);
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
    if (hover >= 0) chart.append(svg("line", { class: "hair", x1: hover, x2: hover, y1: 0, y2: height }));
    $("chart-scale").replaceChildren(...lines.map((n) => {
      const label = el("span", {}, rate(n));
      label.style.top = n === most ? "8px" : (100 - 100 * n / most) + "%";
      return label;
    }));
    const legend = $("legend");
    if (legend.dataset.of !== shownLayers.map((l) => l.name).join()) {
      legend.dataset.of = shownLayers.map((l) => l.name).join();
      legend.replaceChildren(...shownLayers.map((l) => el("li", { class: l.kind }, el("i"), el("b"), el("span", {}, l.name))));
    }
    shownLayers.forEach((l, i) => say(legend.children[i].querySelector("b"), rate(mean(l.list))));
    say($("chart-says"), shownLayers.map((l) => rate(mean(l.list)) + " " + l.name).join(", ") + " a second.");
    drawHand();
  }

  function drawHand() {
    const hand = $("chart-hand");
    hand.hidden = hover < 0 || !last;
    if (hand.hidden) return;
    const at = new Date((last.now - (span - hover)) * 1000);
    say(hand, [at.toLocaleTimeString(), ...shownLayers.map((l) => l.name + "  " + whole.format(l.list[hover]))].join("\n"));
    const width = $("chart").clientWidth, x = hover / (span - 1) * width;
    hand.style.left = Math.max(0, x > width / 2 ? x - hand.offsetWidth - 12 : x + 12) + "px";
  }
  $("chart").addEventListener("pointermove", (e) => {
    const box = $("chart").getBoundingClientRect();
    hover = Math.min(span - 1, Math.max(0, Math.round((e.clientX - box.left) / box.width * (span - 1))));
    if (last) drawChart();
  });
  $("chart").addEventListener("pointerleave", () => { hover = -1; if (last) drawChart(); });

  // Rules.

  // coarse makes one number of three, which is what a small picture can show.
  const coarse = (list) => Array.from({ length: span / 3 }, (_, i) => (list[3 * i] + list[3 * i + 1] + list[3 * i + 2]) / 3);

  let lines = []; // what is drawn of each row, after that of all requests
  const many = 12;
  function line(row) {
    const asked = svg("path", { class: "pass" });
    const refused = svg("path", { class: row && row.shadow ? "shadow" : "refuse" });
    const spark = svg("svg", { class: "spark", viewBox: `0 0 ${span / 3 - 1} 30`, preserveAspectRatio: "none", "aria-hidden": "true" });
    spark.append(asked, refused);
    const number = (what) => {
      const value = el("span");
      const node = el("span", { class: "number" }, el("em", {}, what), value);
      return { node, value };
    };
    const numbers = [number("asked/s"), number("refused/s"), number("refused")];
    const name = el("span", { class: "name" }), now = el("span");
    if (row) {
      name.append(row.rule);
      if (row.tier) name.append(" ", el("small", {}, row.tier));
      if (row.shadow) name.append(el("span", { class: "badge", title: "It refuses nothing." }, "shadow"));
      if (row.onOutage === "closed") name.append(el("span", { class: "badge closed", title: "Without the store, its requests are answered 503." }, "fails closed"));
      if (row.onOutage === "open") name.append(el("span", { class: "badge closed", title: "Without the store, its requests pass uncounted." }, "fails open"));
      name.append(el("span", { class: "about" }, row.limit + (row.for && row.for !== row.rule ? ", " + row.for : ""), now));
    } else {
      name.append("All requests");
    }
    const id = row ? identity(row) : null;
    const button = el("button", { type: "button", class: "row" + (row && row.shadow ? " in-shadow" : ""), on: { click: () => select(id) } },
      name, spark, ...numbers.map((n) => n.node));
    return { id, row, now, button, item: el("li", {}, button), asked, refused, numbers: numbers.map((n) => n.value), nodes: numbers.map((n) => n.node) };
  }

  function drawRows() {
    lines = rows.map(line);
    lines.forEach((l, i) => { l.index = i; });
    if (rows.length >= many) { // those that refuse are not to be looked for
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
    const places = new Map((last.places || []).map(([row, taken, waiting]) => [row, [taken, waiting]]));
    lines.forEach((l) => {
      if (l.row) {
        const [taken, waiting] = places.get(l.index) || [0, 0];
        say(l.now, taken || waiting ? "; in progress " + whole.format(taken) + (waiting ? ", waiting " + whole.format(waiting) : "") : "");
      }
      l.button.setAttribute("aria-pressed", l.id === selected);
      if (l.item.hidden) return;
      const s = l.row ? series[l.index] : {
        asked: outcomes.reduce(add, zeros()),
        refused: ["refused", "shed", "banned", "undecided", "no_key"].map(outcomeOf).reduce(add, zeros()),
      };
      if (!s) { l.numbers.forEach((n, i) => say(n, i < 2 ? "0" : "–")); return; }
      const asked = coarse(s.asked), most = Math.max(...asked, 1), ground = asked.map(() => 0);
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
    filter(); // it is shown wherever it stands
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
    $("rule").replaceChildren(...all.map((name) => el("option", { value: name }, name)));
    if (all.includes(chosen)) $("rule").value = chosen;
  }

  // Who asks, and who is refused.

  let top = [], drawnKeys = "";
  function drawKeys() {
    if (!$("top")) return;
    if (last.top) top = last.top;
    else if (last.unlisted) top = []; // an empty list is not sent
    const row = rows.find((r) => identity(r) === selected);
    // Of all rules, the worst that tells keys apart.
    const found = (last.verdict.findings || []).map((f) => top.find((t) => t.rule === f.rule)).filter(Boolean);
    const seen = row ? top.find((t) => t.rule === row.rule) : [...found, ...top].find((t) => t[order].some((k) => k.key !== "")) || top[0];
    const rule = seen ? seen.rule : row && row.rule;
    const inShadow = rows.some((r) => r.rule === rule) && rows.every((r) => r.rule !== rule || r.shadow);
    say($("top-title"), seen || row ? "Who, under " + rule + (inShadow ? " (in shadow)" : "") : "Who");
    const keys = seen ? seen[order] : [];
    const all = seen ? (order === "most" ? seen.refused : seen.asked) : 0;
    const { rules, unfollowed } = last.unlisted || {};
    let note = "";
    if (row && !seen && rules) note = "Keys are listed for the " + top.length + " busiest rules only.";
    else if (row && !seen && unfollowed) note = "Nothing is known of this rule's keys.";
    else if (!keys.length) note = order === "most" ? "Nobody was refused in the last hour." : "Nobody asked in the last hour.";
    else if (keys.length === 1 && keys[0].key === "" && row) note = "This rule has one counter for everybody. Who asks most is under the rules that tell keys apart.";
    else note = "Of " + count(all) + (order === "most" ? " refusals" : " requests") + " in the last hour." +
      (keys.some((k) => !k.whole) ? " Digests stand for keys (offenders.Options.ShowKeys)." : "");
    if (unfollowed) note += " There are more rules than are followed: " + count(unfollowed) + " times since the start, a request met one of which no keys are known (offenders.Options.MaxRules).";
    say($("top-note"), note);
    const drawn = JSON.stringify([seen && seen.rule, order, all, keys]);
    if (drawn === drawnKeys) return;
    drawnKeys = drawn;
    const focused = document.activeElement && document.activeElement.dataset.key;
    $("keys").replaceChildren(...keys.map((k) => keyItem(seen.rule, k, all)));
    if (focused !== undefined) for (const b of $("keys").querySelectorAll("button")) if (b.dataset.key === focused) b.focus();
  }
  function keyItem(rule, k, all) {
    const n = order === "most" ? k.refused : k.asked;
    const bar = svg("svg", { viewBox: "0 0 100 5", preserveAspectRatio: "none" });
    const part = all ? Math.min(100, 100 * n / all) : 0;
    bar.append(svg("rect", { class: order === "most" ? "r" : "a", width: part, height: 5 }));
    if (order !== "most" && n) bar.append(svg("rect", { class: "r", width: Math.min(part, part * k.refused / n), height: 5 }));
    return el("li", {}, el("button", {
      type: "button", class: "key", "data-key": k.key,
      title: order === "most" ? count(k.refused) + " refused of " + count(k.asked) + " asked" + (k.error ? ", up to " + count(k.error) + " fewer" : "") + "; digest " + k.digest
        : count(k.asked) + " asked, " + count(k.refused) + " refused" + (k.error ? ", up to " + count(k.error) + " fewer" : "") + "; digest " + k.digest,
      on: { click: () => take(rule, k.whole ? k.key : k.digest) },
    }, el("code", {}, k.key === "" ? "everybody together" : k.key),
      el("span", { class: "count" }, percent(n, all) + " ", el("small", {}, count(n))),
      el("span", { class: "bar" }, bar)));
  }
  if ($("top")) {
    const by = (which) => {
      order = which;
      $("by-refused").setAttribute("aria-pressed", which === "most");
      $("by-asked").setAttribute("aria-pressed", which === "busiest");
      if (last) drawKeys();
    };
    $("by-refused").addEventListener("click", () => by("most"));
    $("by-asked").addEventListener("click", () => by("busiest"));
  }

  // take puts a key into the operator's hand, and looks at it.
  function take(rule, key) {
    $("rule").value = rule;
    $("key").value = key;
    $("hand").scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    act("peek", rule, key);
  }

  // Bans.

  let drawnBans = "", allBans = false;
  const someBans = 8;
  if ($("bans")) $("bans-all").addEventListener("click", () => { allBans = true; drawBans(); });
  function drawBans() {
    const b = last.bans;
    if (!$("bans") || !b) return;
    say($("bans-total"), b.total ? whole.format(b.total) : "");
    const note = b.error ? b.error : b.total > b.list.length ? "The page has the first " + b.list.length + " to end."
      : b.total === 0 ? "Nobody is banned." : "";
    say($("bans-note"), note);
    const drawn = JSON.stringify(b.list);
    if (drawn !== drawnBans) {
      drawnBans = drawn;
      $("banned").replaceChildren(...b.list.map((ban) => el("li", {},
        el("span", {}, el("code", {}, ban.key), el("small", {})),
        el("button", { type: "button", "aria-label": "Unban " + ban.key, on: { click: () => act("unban", "", ban.key) } }, "Unban"))));
    }
    const few = allBans || b.list.length <= someBans + 2 ? b.list.length : someBans;
    $("bans-all").hidden = few === b.list.length;
    say($("bans-all"), "Show " + (b.list.length - few) + " more");
    b.list.forEach((ban, i) => {
      const item = $("banned").children[i];
      item.hidden = i >= few;
      const small = item.querySelector("small");
      say(small, (ban.permanent ? "permanent" : until(ban.until)) + ", " +
        (ban.rule ? "by " + ban.rule + (ban.times > 1 ? ", for the " + ordinal(ban.times) + " time" : "") : "by hand"));
    });
  }
  const ordinal = (n) => n + (["th", "st", "nd", "rd"][n % 100 > 10 && n % 100 < 14 ? 0 : n % 10] || "th");

  // Calls to others, and what they say.

  let drawnCalls = "";
  function drawCalls() {
    const c = last.calls;
    $("calls").hidden = !c;
    if (!c) return;
    const drawn = JSON.stringify(c.list.map((call) => call.rule));
    if (drawn !== drawnCalls) {
      drawnCalls = drawn;
      $("called").replaceChildren(...c.list.map((call) => {
        const number = (what) => el("span", { class: "number" }, el("em", {}, what), el("span"));
        return el("li", { class: "call" },
          el("span", { class: "name" }, call.rule),
          number("sent/s"), number("waiting"), number("p95 wait"),
          el("p", { class: "cooling" }), el("p", { class: "quiet" }));
      }));
    }
    c.list.forEach((call, i) => {
      const item = $("called").children[i], [sent, waiting, waits] = item.querySelectorAll(".number span");
      say(sent, rate(call.sent));
      say(waiting, whole.format(call.waiting));
      say(waits, call.p95 || "–");
      const [cooling, said] = item.querySelectorAll("p");
      say(cooling, call.until ? "In cooldown, " + until(call.until) + "." : "");
      const happened = [[call.refused, "refused"], [call.retried, "sent again"], [call.gaveUp, "given up"]].filter(([n]) => n);
      say(said, happened.length ? "In 5 min: " + happened.map(([n, what]) => count(n) + " " + what).join(", ") + "." : "");
    });
    say($("calls-note"), c.hidden ? "And " + whole.format(c.hidden) + " more, which the page does not show." : "");
  }

  // What an operator does.

  let sure = 0;
  const banButton = document.querySelector("button.grave");
  function calm() {
    clearTimeout(sure);
    if (banButton) { banButton.classList.remove("sure"); banButton.textContent = "Ban"; }
  }
  $("form").addEventListener("submit", (e) => {
    e.preventDefault();
    const what = e.submitter ? e.submitter.value : "peek";
    if (what === "ban" && !banButton.classList.contains("sure")) {
      // Who is banned by mistake can't tell anybody: asked twice.
      banButton.classList.add("sure");
      banButton.textContent = "Really ban?";
      sure = setTimeout(calm, 5000);
      return;
    }
    calm();
    act(what, $("rule").value, $("key").value);
  });
  $("key").addEventListener("input", calm);

  async function act(what, rule, key) {
    const ask = { action: what, key };
    if (what === "peek" || what === "reset") ask.rule = rule;
    if (what === "ban") ask.for = $("for").value;
    let answer;
    try {
      const response = await fetch(address, {
        method: "POST", headers: { "Content-Type": "application/json", Accept: "application/json" }, body: JSON.stringify(ask),
      });
      const text = await response.text();
      try { answer = JSON.parse(text); } catch { answer = { error: text.trim() || response.statusText }; }
    } catch (error) {
      answer = { error: "The service gives no answer: " + error.message };
    }
    tell(what, rule, key, answer);
    if (what === "reset" && !answer.error) act("peek", rule, key);
  }

  function tell(what, rule, key, answer) {
    const said = [];
    if (answer.error) said.push(el("p", { class: "error" }, answer.error));
    if (answer.text) said.push(el("p", {}, answer.text));
    if (what === "peek" && answer.counts) {
      const counted = answer.key || key;
      said.push(el("p", {}, counted === "" ? "Everybody together, under " + rule + ":" : el("code", {}, counted), counted === "" ? "" : " under " + rule + ":"));
    }
    for (const c of answer.counts || []) {
      const parts = [c.uncounted ? "not counted, as the store gives no answer" : whole.format(c.remaining) + " of " + whole.format(c.limit) + " left"];
      if (c.next && c.remaining === 0) parts.push("the next in " + c.next);
      if (c.reset) parts.push("all again in " + c.reset);
      if (c.shadow) parts.push("in shadow");
      if (c.degraded && !c.uncounted) parts.push("by its outage policy");
      said.push(el("p", {}, c.tier ? c.tier + ": " : "", parts.join(", ") + "."));
    }
    if (answer.ban) {
      said.push(el("p", { class: "error" }, "It is banned " + (answer.ban.permanent ? "permanently " : "") +
        (answer.ban.rule ? "by " + answer.ban.rule : "by hand") + (answer.ban.permanent ? "." : ", " + until(answer.ban.until) + ".")));
    }
    $("answer").replaceChildren(...said);
  }

  connect();
})();
