// Overload: how many requests the service has room for, as shed.Stats says.

function gauge() {
  const picture = svg("svg", { viewBox: "0 0 100 5", preserveAspectRatio: "none", "aria-hidden": "true" });
  picture.append(svg("rect", { height: 5, width: 0 }));
  return el("div", { class: "bar" }, picture);
}
function drawOverload() {
  const o = last.overload;
  $("overload").hidden = !o;
  if (!o) return;
  const over = o.levels.filter((l) => l.Overloaded);
  const is = over.length ? "sheds" : o.places.some((p) => p.Waiting) ? "waits" : "room";
  $("overload").dataset.is = is;
  say($("overload-text"), {
    room: "has room",
    waits: "requests wait for a slot",
    sheds: "sheds " + (over.length < o.levels.length ? over.map((l) => l.Name).join(", ") : "requests of all levels"),
  }[is]);
  const places = items($("places"), o.places.length, () => el("li", {}, el("span", { class: "name" }), el("span", { class: "about" }), gauge()));
  o.places.forEach((p, i) => {
    const [name, about, bar] = places[i].children;
    say(name, p.Route || (o.places.length > 1 ? "other routes" : ""));
    const parts = [whole.format(p.InFlight) + " of " + whole.format(p.Limit) + " in flight"];
    if (p.Waiting) parts.push(whole.format(p.Waiting) + (p.Waiting === 1 ? " waits" : " wait"));
    if (p.Streams) parts.push(whole.format(p.Streams) + (p.Streams === 1 ? " stream" : " streams") + " beside");
    say(about, parts.join(", "));
    const part = bar.firstChild.firstChild;
    part.setAttribute("class", p.Waiting ? "r" : "a");
    part.setAttribute("width", Math.min(100, 100 * p.InFlight / p.Limit));
  });
  say($("places-more"), o.more ? whole.format(o.more) + " more routes have more room." : "");
  const levels = items($("levels"), o.levels.length, () => el("li", {}, el("span", { class: "name" }), el("span", { class: "number" }), el("span", { class: "number" })));
  o.levels.forEach((l, i) => {
    const [name, admitted, shed] = levels[i].children;
    say(name, l.Name || "all requests");
    say(admitted, count(l.Admitted));
    say(shed, count(l.Shed));
    shed.classList.toggle("some", l.Shed > 0);
  });
  const [p] = o.places;
  say($("overload-note"), "The limit follows what the service can serve" + (o.places.length === 1 && p.Rate && p.Latency
    ? ": at least " + rate(p.Rate) + " requests a second, in " + Number((p.Latency / 1e6).toPrecision(3)) + " ms each without waiting." : "."));
}
cards.push(drawOverload);
