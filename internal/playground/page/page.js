// The page: its state, what changes it, and what it shows.

const $ = (id) => document.getElementById(id);
const say = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const el = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
  node.append(...children);
  return node;
};

const mostLanes = 10;
const points = 480; // of the time axis
const budget = 3; // ms of a frame
const playFor = 12000; // ms that the axis takes
const start = { name: "burst", events: 10, per: 10 * second };

let engine;
let traffic;          // Drawn or Logged
let shape;            // of the traffic, in piles
let lanes = [];       // {id, node, text, took: ms of its latest decisions, and what the engine returns}
let nextLane = 1;
let now = 0;          // on the axis
let playing = 0;      // the time of the latest frame, or 0
let nextFrame = 0;    // that was asked for
const stale = new Set(); // lanes that have yet to decide about the present traffic
let workedIn = -1;    // the latest frame in which lanes decided
let toldAt = 0;       // when words were last updated
let cell = null;      // of the grid, that the keyboard has selected
let drawing = false;  // a pointer is down on the grid
let scaleOf = 0;      // the least height of the grid, in requests

// Lanes.

function addLane(text) {
  const node = $("lane").content.firstElementChild.cloneNode(true), lane = { id: nextLane++, node, text, took: 0 };
  const input = node.querySelector("input"), error = node.querySelector(".error");
  input.value = text;
  input.setAttribute("aria-label", "Limit " + lane.id);
  error.id = "error-" + lane.id;
  input.setAttribute("aria-describedby", error.id);
  let typed = 0;
  input.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => { lane.text = input.value; change(lane); }, 200);
  });
  node.querySelector(".remove").addEventListener("click", () => {
    const next = lanes[lanes.indexOf(lane) + 1] || lanes.at(-2);
    lanes = lanes.filter((l) => l !== lane);
    stale.delete(lane);
    node.remove();
    sizes.unobserve(node.querySelector(".gauge"));
    sizes.unobserve(node.querySelector(".chart canvas"));
    (next ? next.node.querySelector("input") : $("add")).focus();
    tell();
  });
  const chart = node.querySelector(".chart");
  const scrub = (e) => {
    if (playing || e.pointerType !== "mouse" && e.buttons === 0) return;
    const box = chart.getBoundingClientRect(), axis = traffic.axis;
    seek(axis.from + Math.min(1, Math.max(0, (e.clientX - box.left) / box.width)) * (axis.to - axis.from));
  };
  chart.addEventListener("pointermove", scrub);
  chart.addEventListener("pointerdown", (e) => { stop(); scrub(e); });
  lanes.push(lane);
  $("lanes").append(node);
  sizes.observe(node.querySelector(".gauge"));
  sizes.observe(chart.querySelector("canvas"));
  compile(lane);
  return lane;
}

// compile makes the engine read a lane's limit.
function compile(lane) {
  const said = engine.limit(lane.id, lane.text);
  delete lane.error;
  Object.assign(lane, said);
  const node = lane.node, input = node.querySelector("input");
  node.classList.toggle("wrong", !!said.error);
  if (said.error) input.setAttribute("aria-invalid", "true"); else input.removeAttribute("aria-invalid");
  say(node.querySelector(".error"), said.error || "");
  node.querySelector(".remove").setAttribute("aria-label", "Remove " + lane.text);
  node.querySelector(".chart canvas").setAttribute("aria-label", lane.text); // until there are figures
  if (said.error) return;
  lane.name = lane.algorithm.replaceAll("-", " ");
  say(node.querySelector(".what b"), capital(lane.name) + ".");
  say(node.querySelector(".what span"), sentences[lane.keeps](lane));
}

function decide(lane) {
  if (lane.error) return;
  Object.assign(lane, engine.decide(lane.id, traffic.axis, points));
  lane.passed = lane.held = lane.longest = 0;
  for (const wait of lane.waits) {
    if (wait >= 0) lane.passed++;
    if (wait > 0) lane.held++;
    if (wait > lane.longest) lane.longest = wait;
  }
}

const decided = (lane) => !lane.error && lane.waits;
const good = () => lanes.filter(decided);

function drawCourse(lane) {
  if (decided(lane)) drawLane(lane.node.querySelector(".chart canvas"), lane, traffic, shape);
}

function drawFigures(lane) {
  const figures = lane.node.querySelector(".figures");
  if (!figures.firstChild) figures.append(el("b"), "", el("b"), "");
  const [passed, of, most, per] = figures.childNodes, requests = (marks) => whole.format(marks * traffic.units);
  say(passed, requests(lane.passed));
  say(of, ` of ${requests(traffic.total())} pass${lane.held ? `, ${requests(lane.held)} wait up to ${about(lane.longest)}` : ""}; at most `);
  say(most, whole.format(lane.most));
  most.className = lane.most > lane.events ? "over" : "";
  say(per, ` in ${span(lane.per)}`);
  lane.node.querySelector(".chart canvas").setAttribute("aria-label", `${lane.text}: ${figures.textContent}`);
}

// drawStates draws the lanes' present states: canvases first, as a change of words makes the browser
// compute styles again.
function drawStates(list) {
  const views = list.filter(decided).map((lane) => [lane, engine.look(lane.id, now)]);
  for (const [lane, v] of views) drawGauge(lane.node.querySelector(".gauge"), lane, v, now);
  for (const [lane, v] of views) {
    const state = lane.node.querySelector(".state"), room = v.remaining >= traffic.units;
    if (!state.firstChild) state.append(el("b"), el("br"), "");
    state.classList.toggle("full", !room);
    say(state.firstChild, room ? `${whole.format(v.remaining)} of ${whole.format(lane.capacity)} left` : "refuses");
    say(state.lastChild, room ? waitSays(v) : refusalSays(v, lane));
  }
}
const waitSays = (v) => v.delay ? "the next waits " + about(v.delay) : "";
function refusalSays(v, lane) {
  if (v.retry > 1e15) return "costs more than the limit";
  if (v.retry < 1e3 && lane.per > second) return "for a moment";
  return "for another " + about(v.retry);
}
const about = (us) => span(Number(us.toPrecision(2)));

// Words.

function drawVerdict() {
  const over = good().filter((l) => l.most > l.events).sort((a, b) => b.most / b.events - a.most / a.events);
  const label = (l) => good().filter((o) => o.algorithm === l.algorithm).length > 1 ? l.text : "the " + l.name;
  const conclude = (level, text) => { $("verdict").dataset.level = level; say($("verdict-text"), text); };
  if (!good().length) conclude("idle", "Write a limit to see what it does.");
  else if (!traffic.total()) conclude("idle", "Draw some requests.");
  else if (traffic.name === "burst") conclude("", burstSays(label));
  else if (over.length) {
    const l = over[0];
    conclude("warning", `${label(l)} passes ${whole.format(l.most)} requests in ${span(l.per)}. Its limit says ${whole.format(l.events)}.`);
  } else if (good().every((l) => l.passed === traffic.total())) conclude("good", "All requests pass, under every limit here.");
  else conclude("good", "No limit here passes more requests than it says.");
  say($("verdict-detail"), traffic.name === "log" ? logSays() : presets[traffic.name]?.lesson(traffic) || lessonOfDrawing);
  const findings = over.slice(0, 4).map((l) => [capital(label(l).replace("the ", "")) + ": ", `${whole.format(l.most)} within ${span(l.per)}, as ${reasons[l.keeps]}.`]);
  if ($("findings").dataset.of === findings.join() + over.map((l) => l.id)) return;
  $("findings").dataset.of = findings.join() + over.map((l) => l.id);
  $("findings").replaceChildren(...findings.map(([name, text], i) => {
    const button = el("button", { type: "button" }, el("b", {}, name), text);
    button.addEventListener("click", () => show(over[i].id));
    return el("li", {}, button);
  }));
}

// show plays the period in which a lane passed the most requests.
function show(id) {
  const lane = lanes.find((l) => l.id === id);
  if (traffic.name === "log" && (lane.from < traffic.from || lane.from > traffic.to)) {
    traffic.show(traffic.length, lane.from);
    showStretch();
  }
  play(Math.max(traffic.axis.from, lane.from - lane.per / 10), lane.from + lane.per);
  lane.node.scrollIntoView({ block: "nearest" });
}

// burstSays compares what the limits do with the first burst: how many requests pass at once, and how
// many wait.
function burstSays(label) {
  const first = Math.max(1, upTo(traffic.arrivals, 0.6 * traffic.per));
  const took = good().map((l) => {
    const count = (is) => l.waits.subarray(0, first).filter(is).length * traffic.units;
    const n = count((wait) => wait === 0), held = count((wait) => wait > 0);
    return { l, n, does: whole.format(n) + (held ? ` and makes ${whole.format(held)} wait` : "") };
  });
  took.sort((a, b) => b.n - a.n);
  const all = plural(first * traffic.units, "request"), most = took[0], least = took.at(-1);
  if (took.every(({ does }) => does === most.does)) return `Of ${all} at once, ${good().length > 1 ? "each limit" : label(most.l)} passes ${most.does}.`;
  const middle = took.find(({ n, l }) => n < most.n && l.keeps === "bucket" && l !== least.l);
  const parts = [most, middle, least].filter(Boolean).map(({ l, does }, i) => `${label(l)} ${i ? "" : "passes "}${does}`);
  return `Of ${all} at once, ${parts.join(", ")}.`;
}

// Drawing all.

function drawAll() {
  drawTimes(); // as many as the width has room for
  drawGrid();
  for (const lane of lanes) drawCourse(lane);
  drawNow();
}

function drawGrid() {
  drawTraffic($("grid"), traffic, shape, gridHeight(), cell);
}

const gridHeight = () => Math.max(scaleOf, 8, shape.most * 1.15);

function drawNow() {
  drawStates(lanes);
  const axis = traffic.axis, part = (now - axis.from) / (axis.to - axis.from);
  $("board").style.setProperty("--now", part);
  $("board").classList.toggle("veils", part < 1);
  $("board").classList.toggle("hands", part < 1);
  $("scrub").value = Math.round(1000 * part);
  const text = clock(now, axis, true);
  say($("now"), text);
  $("scrub").setAttribute("aria-valuetext", text);
}

function drawTimes() {
  const axis = traffic.axis, parts = axis.epoch || innerWidth < 620 ? 4 : 8, of = [axis.from, axis.to, parts].join();
  if ($("times").dataset.of === of) return;
  $("times").dataset.of = of;
  $("times").replaceChildren(...Array.from({ length: parts + 1 }, (_, i) => {
    const node = el("span", {}, clock(axis.from + i / parts * (axis.to - axis.from), axis));
    node.style.left = 100 * i / parts + "%";
    return node;
  }));
}

// change follows a change of a limit, refresh a change of the traffic.
function change(lane) {
  compile(lane);
  decide(lane);
  drawCourse(lane);
  drawStates([lane]);
  tell();
}
function refresh() {
  traffic.arrivals = traffic.times();
  engine.traffic(traffic.arrivals, traffic.units);
  shape = bins(traffic.arrivals, traffic.axis);
  now = Math.min(Math.max(now, traffic.axis.from), traffic.axis.to);
  for (const lane of lanes) stale.add(lane);
  $("board").setAttribute("aria-busy", true);
  drawTimes();
  drawGrid();
  work();
}

// work lets stale lanes decide for a part of this frame, and goes on in the next one. The lane that has
// waited longest is first, as drawing changes the traffic in every frame.
function work() {
  if (workedIn === document.timeline.currentTime) return schedule("work", work);
  workedIn = document.timeline.currentTime;
  const from = performance.now();
  if (drawing && stale.size && from - toldAt >= 200) { // in one frame there is no time for lanes, too
    schedule("work", work);
    return report(from);
  }
  for (const lane of stale) {
    const begun = performance.now();
    if (begun > from && begun + lane.took > from + budget) break;
    stale.delete(lane);
    decide(lane);
    drawCourse(lane);
    lane.took = performance.now() - begun;
  }
  $("board").setAttribute("aria-busy", stale.size > 0);
  if (stale.size) schedule("work", work);
  if (stale.size && from - toldAt < 200) return;
  report(from);
}
function report(at) {
  toldAt = at;
  drawNow();
  tell();
}

// tell updates what is beside the charts: words, buttons, the link.
function tell() {
  if (!drawing && !stale.size) drawVerdict(); // it may be of another height, and the grid is below it
  for (const lane of good()) drawFigures(lane);
  for (const button of $("presets").children) button.setAttribute("aria-pressed", button.dataset.name === traffic.name);
  const n = traffic.total() * traffic.units;
  say($("total"), whole.format(n));
  say($("total-of"), n === 1 ? "request" : "requests");
  drawNote();
  $("log").hidden = traffic.name !== "log";
  $("drawing").hidden = traffic.name === "log";
  if (traffic.name === "log") drawLogNote();
  drawChoices();
  remember();
}

// drawNote explains the marks, and offers traffic of the limit's size.
function drawNote() {
  const first = good()[0], all = traffic.total() * traffic.units;
  const fits = traffic.name === "log" || !first || first.per <= 4 * traffic.per && first.per * 40 >= 4 * traffic.per && first.events <= 8 * Math.max(1, all);
  say($("traffic-note"), (traffic.units > 1 ? `A mark is ${whole.format(traffic.units)} requests at once. ` : "") + (fits ? "" : `This traffic is too small or too large for ${first.text}.`));
  $("fit").hidden = fits;
}

function drawChoices() {
  $("add").disabled = lanes.length >= mostLanes;
  const { events, per } = good()[0] || start;
  if ($("add").dataset.of === [events, per].join()) return;
  $("add").dataset.of = [events, per].join();
  const texts = engine.limits(Math.min(events, 1e9), per);
  $("add").replaceChildren(el("option", { value: "" }, "another limit"), ...texts.map((text) => el("option", {}, text)));
}

// Traffic.

function choose(name) {
  const like = good()[0] || start;
  traffic = preset(name, like.events, like.per);
  scaleOf = 0;
  refresh();
  begin();
}

let from = null; // the cell and the count of the latest move of the pointer
function drawAt(e) {
  if (traffic.name === "log") return;
  const box = $("grid").getBoundingClientRect();
  const most = gridHeight();
  const x = Math.min(cellCount - 1, Math.max(0, Math.floor((e.clientX - box.left) / box.width * cellCount)));
  const n = Math.max(0, Math.round((1 - (e.clientY - box.top - 6) / (box.height - 6)) * most));
  const [x0, n0] = from || [x, n];
  // Cells that a quick pointer skipped are on a line.
  for (let i = Math.min(x, x0); i <= Math.max(x, x0); i++) put(i, Math.round(x === x0 ? n : n0 + (n - n0) * (i - x0) / (x - x0)));
  from = [x, n];
  refresh();
}
function put(i, n) {
  traffic.name = "drawn";
  const room = mostMarks - traffic.total() + traffic.cells[i];
  traffic.cells[i] = Math.max(0, Math.min(n, room, 999));
}

function listenToGrid() {
  const grid = $("grid");
  grid.addEventListener("pointerdown", (e) => {
    if (e.button !== 0) return;
    stop();
    now = traffic.axis.to;
    scaleOf = gridHeight(); // as it is while the pointer is down
    from = null;
    drawing = true;
    grid.setPointerCapture(e.pointerId);
    if (e.pointerType !== "touch") drawAt(e); // a finger may be about to scroll the page
  });
  grid.addEventListener("pointermove", (e) => {
    if (e.buttons & 1 && grid.hasPointerCapture(e.pointerId)) schedule("grid", () => drawAt(e));
  });
  grid.addEventListener("pointerup", (e) => {
    if (from || e.pointerType === "touch") drawAt(e);
    due.delete("grid");
    from = null;
  });
  grid.addEventListener("lostpointercapture", () => { drawing = false; tell(); });
  grid.addEventListener("keydown", (e) => {
    if (traffic.name === "log" || e.ctrlKey || e.metaKey || e.altKey) return;
    cell ??= 0;
    const step = { ArrowUp: 1, ArrowDown: -1, PageUp: 5, PageDown: -5 }[e.key], move = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (step) put(cell, traffic.cells[cell] + step);
    else if (move) cell = Math.min(cellCount - 1, Math.max(0, cell + move));
    else if (e.key === "Home") cell = 0;
    else if (e.key === "End") cell = cellCount - 1;
    else if (e.key === "Delete" || e.key === "Backspace") put(cell, 0);
    else return;
    e.preventDefault();
    if (step || e.key.length > 5) { stop(); now = traffic.axis.to; refresh(); } else drawGrid();
    tellCell();
  });
  grid.addEventListener("focus", () => { if (grid.matches(":focus-visible")) { cell ??= 0; drawGrid(); tellCell(); } });
  grid.addEventListener("blur", () => { cell = null; drawGrid(); });
}
function tellCell() {
  const n = traffic.cells?.[cell] || 0, at = traffic.axis.from + cell / cellCount * (traffic.axis.to - traffic.axis.from);
  $("grid").setAttribute("aria-valuenow", n);
  $("grid").setAttribute("aria-valuetext", `${plural(n, "request")} at ${clock(at, traffic.axis)}`);
}

// schedule has work done at the next frame, once, however often it is asked for until then.
const due = new Map();
function schedule(what, work) {
  if (due.size === 0) requestAnimationFrame(() => {
    const all = [...due.values()];
    due.clear();
    for (const work of all) work();
  });
  due.set(what, work);
}

// Time.

let until = 0;
function play(at = traffic.axis.from, to = traffic.axis.to) {
  now = at;
  until = Math.min(to, traffic.axis.to);
  if (!playing) nextFrame = requestAnimationFrame(frame);
  playing = performance.now();
  say($("play"), "❚❚ Pause");
}
// begin plays the new traffic, unless the reader prefers less motion.
function begin() {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) seek(traffic.axis.to); else play();
}
function stop() {
  cancelAnimationFrame(nextFrame);
  playing = 0;
  say($("play"), "▶ Play");
}
function frame(at) {
  const axis = traffic.axis;
  now = Math.min(until, now + Math.max(0, at - playing) / playFor * (axis.to - axis.from));
  playing = at;
  drawNow();
  if (now >= until) stop(); else nextFrame = requestAnimationFrame(frame);
}
function seek(at) {
  stop();
  now = at;
  schedule("now", drawNow);
}

// The reader's own log.

async function readLog(file) {
  let log;
  try {
    log = await Log.read(file, (lines) => say($("own-error"), plural(lines, "line") + " …"));
  } catch (err) {
    return say($("own-error"), "The file cannot be read: " + err.message);
  }
  const clients = log.clients();
  if (!clients.length) {
    return say($("own-error"), log.lines ? `None of ${plural(log.lines, "line")} has a time that this page can read. The first is: ${log.first}` : "The log is empty.");
  }
  say($("own-error"), "");
  $("own").close();
  $("client").replaceChildren(...clients.map(({ name, count }) => el("option", { value: name }, `${name} · ${whole.format(count)}`)));
  showClient(log);
}
function showClient(log) {
  stop();
  traffic = new Logged(log, $("client").value);
  const length = 4 * (good()[0] || start).per, all = traffic.last - traffic.first + second;
  const lengths = [length, 10 * length, 100 * length].filter((l) => l < all);
  $("stretch").replaceChildren(...lengths.map((l) => el("option", { value: l }, span(l))), el("option", { value: all }, "all of it"));
  const stretch = Number($("stretch").value);
  traffic.show(stretch, traffic.busiest(stretch));
  showStretch();
  begin();
}
function showStretch() {
  const t = traffic;
  $("where").value = Math.round(1000 * (t.from + t.length / 4 - t.first) / Math.max(1, t.last - t.first));
  $("where").setAttribute("aria-valuetext", clock(t.from, t.axis));
  now = t.to;
  refresh();
}
function logSays() {
  const t = traffic, others = t.log.times.size - 1;
  return `${plural(t.all.length, "request")} ${t.client === everybody ? "of all clients, in one counter" : "of " + t.client}, from ${date(t.first)} to ${date(t.last)} (UTC).` +
    (others > 0 && t.client !== everybody ? ` ${plural(others, "other client")} in the log.` : "");
}
const date = (us) => new Date(us / 1000).toISOString().slice(0, 16).replace("T", " ");
function drawLogNote() {
  const { log } = traffic, notes = [`${plural(log.lines, "line")} of ${log.name}.`];
  if (log.unread) notes.push(`${plural(log.unread, "line")} could not be read, the first: ${log.first}`);
  if (log.full) notes.push(`Only the first ${whole.format(mostLines)} lines were read.`);
  notes.push("Requests of one whole second are spread over the second. A link does not contain your log.");
  say($("log-note"), notes.join(" "));
}

function listenToLogs() {
  $("file").addEventListener("change", () => { if ($("file").files[0]) readLog($("file").files[0]); });
  $("read").addEventListener("click", () => readLog(new Blob([$("paste").value])));
  addEventListener("dragover", (e) => {
    if (e.dataTransfer.types.includes("Files")) { e.preventDefault(); document.body.classList.add("dropping"); }
  });
  addEventListener("dragleave", (e) => { if (!e.relatedTarget) document.body.classList.remove("dropping"); });
  addEventListener("drop", (e) => {
    document.body.classList.remove("dropping");
    if (!e.dataTransfer.files.length) return;
    e.preventDefault();
    openOwn();
    readLog(e.dataTransfer.files[0]);
  });
  addEventListener("paste", (e) => {
    const text = e.clipboardData.getData("text");
    if (e.target.closest?.("input, textarea") || !text.includes("\n")) return;
    openOwn();
    $("paste").value = text;
    readLog(new Blob([text]));
  });
  $("client").addEventListener("change", () => showClient(traffic.log));
  $("stretch").addEventListener("change", () => { traffic.show(Number($("stretch").value), (traffic.from + traffic.to) / 2); showStretch(); });
  $("where").addEventListener("input", () => schedule("where", () => {
    traffic.show(traffic.length, traffic.first + $("where").value / 1000 * (traffic.last - traffic.first));
    now = traffic.to;
    refresh();
  }));
}
function openOwn() {
  stop();
  say($("own-error"), "");
  if (!$("own").open) $("own").showModal();
}

// The link.

function write() {
  const link = new URLSearchParams();
  if (traffic.name !== "log") {
    link.set("traffic", traffic.name);
    link.set("events", traffic.events);
    link.set("per", traffic.per / second);
    if (traffic.name === "drawn") {
      if (traffic.units > 1) link.set("units", traffic.units);
      link.set("cells", writeCells(traffic.cells));
    }
  }
  for (const lane of lanes) link.append("limit", lane.text);
  return "#" + link.toString().replaceAll("%2F", "/");
}

// readLink gives what a link says, or an error in words.
function readLink(hash) {
  const link = new URLSearchParams(hash.replace(/^#/, ""));
  const texts = link.getAll("limit"), name = link.get("traffic") ?? start.name;
  const events = Number(link.get("events") ?? start.events), per = Math.round(Number(link.get("per") ?? start.per / second) * second);
  const units = Number(link.get("units") ?? 1);
  if (texts.length > mostLanes) return { error: `The link has ${texts.length} limits, but the page shows ${mostLanes}.` };
  if (!Number.isInteger(events) || events < 1 || events > 1e12) return { error: "The link's events are not a number of requests." };
  if (!(per >= 1 && per <= 366 * day)) return { error: "The link's period is not from a microsecond to 366 days." };
  if (!Number.isInteger(units) || units < 1 || units > 1e12) return { error: "The link's units are not a number of requests." };
  if (name === "drawn") {
    const cells = readCells(link.get("cells") ?? "");
    return cells ? { texts, traffic: new Drawn(name, events, per, units, cells) } : { error: "The link's drawing cannot be read." };
  }
  if (!Object.hasOwn(presets, name)) return { error: "The link names a kind of traffic that this page does not know." };
  return { texts, traffic: preset(name, events, per) };
}

// The link of what the page shows. If the address differs, another link is about to open.
let remembering = 0, written = "";
function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(() => { if (location.hash === written) putLink(); }, 300);
}
function putLink() {
  history.replaceState(null, "", write());
  written = location.hash;
}

function open() {
  written = location.hash;
  const said = readLink(written);
  for (const lane of lanes) lane.node.remove();
  lanes = [];
  stale.clear();
  sizes.disconnect();
  sizes.observe($("grid"));
  traffic = said.traffic || preset(start.name, start.events, start.per);
  for (const text of said.texts?.length ? said.texts : engine.limits(traffic.events, traffic.per)) addLane(text);
  say($("shared"), said.error ? said.error + " So this is the page's own example." : "");
  scaleOf = 0;
  refresh();
  begin();
}

// The beginning.

async function main() {
  const lack = lacking();
  if (lack) return fail(lack);
  try {
    engine = await Engine.load();
  } catch (err) {
    return fail("The engine does not run in this browser: " + err.message);
  }
  // A stopped engine decides nothing more, and the screen is out of date.
  addEventListener("error", (e) => { if (e.error) { stop(); fail("The engine stopped: " + e.message + "."); } });
  for (const [name, { label }] of Object.entries(presets)) {
    const button = el("button", { type: "button", "data-name": name }, label);
    button.addEventListener("click", () => choose(name));
    $("presets").append(button);
  }
  const own = el("button", { type: "button", "data-name": "log" }, "Your log…");
  own.addEventListener("click", openOwn);
  $("presets").append(own);

  $("board").hidden = $("share").hidden = false;
  readInk();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readInk(); drawAll(); });
  listenToGrid();
  listenToLogs();
  $("fit").addEventListener("click", () => choose(presets[traffic.name] ? traffic.name : "burst"));
  $("clear").addEventListener("click", () => {
    stop();
    traffic = new Drawn("drawn", traffic.events, traffic.per);
    now = traffic.axis.to;
    refresh();
  });
  $("play").addEventListener("click", () => { if (playing) stop(); else play(now < traffic.axis.to ? now : traffic.axis.from); });
  $("scrub").addEventListener("input", () => seek(traffic.axis.from + $("scrub").value / 1000 * (traffic.axis.to - traffic.axis.from)));
  $("add").addEventListener("change", () => {
    const text = $("add").value;
    $("add").value = "";
    if (!text) return;
    const lane = addLane(text);
    decide(lane);
    drawAll();
    tell();
    lane.node.querySelector("input").focus();
  });
  $("share").addEventListener("click", async () => {
    clearTimeout(remembering);
    putLink();
    try {
      await navigator.clipboard.writeText(location.href);
      say($("shared"), "Copied.");
    } catch {
      say($("shared"), "The link is in the address bar.");
    }
  });
  addEventListener("hashchange", () => { if (location.hash !== written) open(); });
  open();
}

function fail(why) {
  $("verdict").dataset.level = "bad";
  say($("verdict-text"), "This page cannot run here.");
  $("board").hidden = true;
  say($("verdict-detail"), why + " docs/algorithms.md explains each algorithm in words and a picture.");
}

main();
