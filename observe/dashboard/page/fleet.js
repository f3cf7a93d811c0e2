// The other processes of the service.

function drawFleet() {
  const f = last.fleet;
  say($("scope"), f && f.processes > 1 ? "one process of " + whole.format(f.processes) + ": " + $("scope").dataset.process : "one process: " + $("scope").dataset.process);
  if (!$("fleet") || !f) return;
  $("fleet").dataset.is = !f.known ? "unknown" : f.bad ? "bad" : "good";
  say($("fleet-text"), f.text);
  const some = f.list.some((p) => p.state === "answers");
  say($("fleet-sum"), some ? "Together " + rate(f.asked) + " requests a second, " + rate(f.refused) + " of them refused, in the mean of a minute." : "");
  const item = () => el("li", {}, el("span", { class: "name" }), el("span", { class: "number" }), el("span", { class: "number" }));
  items($("processes"), f.list.length, item).forEach((li, i) => {
    const p = f.list[i], [name, asked, refused] = li.children, answers = p.state === "answers";
    const about = { late: "told nothing for " + ago(p.ago), unknown: "last heard of " + ago(p.ago) + " ago", unreadable: "", answers: "" }[p.state];
    const text = [p.self ? "this one" : "", about, p.bad ? "its store " + p.store : "", p.about || ""].filter(Boolean).join("; ");
    describe(name, p.name, text);
    li.classList.toggle("ill", p.bad || p.state === "late" || p.state === "unreadable");
    say(asked, answers ? rate(p.asked) : "–");
    say(refused, answers ? rate(p.refused) : "–");
    refused.classList.toggle("some", answers && p.refused > 0);
  });
  $("fleet-more").hidden = !f.rules.length;
  items($("fleet-rules"), f.rules.length, item).forEach((li, i) => {
    const r = f.rules[i], [name, asked, refused] = li.children;
    const text = [r.limit || "processes have several limits", r.shadow ? "in shadow" : "", "in " + r.processes + (r.processes === 1 ? " process" : " processes")].filter(Boolean).join("; ");
    describe(name, r.rule + (r.tier ? " · " + r.tier : ""), text);
    say(asked, rate(r.asked));
    say(refused, rate(r.refused));
    refused.classList.toggle("some", r.refused > 0);
    li.classList.toggle("in-shadow", r.shadow === true);
  });
  say($("fleet-hidden"), f.more ? "And " + whole.format(f.more) + " rules more." : "");
  items($("fleet-notes"), f.notes.length, () => el("li")).forEach((li, i) => say(li, f.notes[i]));
}
function describe(name, title, about) {
  if (!name.firstChild) name.append(el("span"), el("span", { class: "about" }));
  say(name.firstChild, title);
  say(name.lastChild, about);
}
const ago = (seconds) => seconds < 120 ? seconds + " s" : Math.floor(seconds / 60) + " min";
cards.push(drawFleet);
