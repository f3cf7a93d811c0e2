// What an operator does.

$("form").addEventListener("submit", (e) => {
  e.preventDefault();
  const what = e.submitter ? e.submitter.value : "look", key = $("key").value.trim();
  if (what === "look") return lookAt("", key);
  if (what === "ban") return propose(e.submitter, [key], $("for").value, "");
  act(what, $("rule").value, key);
});

async function act(what, rule, key) {
  tellDone("");
  const ask = { action: what, key };
  if (what === "peek" || what === "reset") ask.rule = rule;
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
  $("answer").replaceChildren(...said);
}
