// Overload: how many requests the service has room for.

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
    waits: "requests wait for a slot",
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
  say($("places-more"), o.more ? whole.format(o.more) + " more routes have more room." : "");
  const levels = items($("levels"), o.levels.length, () => el("li", {}, el("span", { class: "name" }), el("span", { class: "number" }), el("span", { class: "number" })));
  o.levels.forEach((l, i) => {
    const [name, admitted, shed] = levels[i].children;
    say(name, l.name || "all requests");
    say(admitted, count(l.admitted));
    say(shed, count(l.shed));
    shed.classList.toggle("some", l.shed > 0);
  });
  const [p] = o.places;
  say($("overload-note"), "The limit follows what the service can serve" + (o.places.length === 1 && p.rate && p.latency
    ? ": at least " + rate(p.rate) + " requests a second, in " + p.latency + " each without waiting." : "."));
}
cards.push(drawOverload);
