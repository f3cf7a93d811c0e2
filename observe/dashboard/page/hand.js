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
  const answer = await post(ask);
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
