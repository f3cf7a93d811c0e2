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
cards.push(drawCalls);
