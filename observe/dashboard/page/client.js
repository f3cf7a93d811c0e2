// One client: what this process knows of it, and what an operator may do.

$("form").addEventListener("submit", (e) => {
  e.preventDefault();
  const what = e.submitter ? e.submitter.value : "look", key = $("key").value.trim();
  if (what === "look") return lookAt($("rule").value, key);
  if (what === "ban") return propose(e.submitter, [key], $("for").value, "");
  act(what, $("rule").value, key);
});

async function act(what, rule, key) {
  tellDone("");
  const answer = await post(what === "reset" ? { action: what, rule, key } : { action: what, key });
  if (what === "reset" && !answer.error) await lookAt(rule, key);
  else $("answer").replaceChildren();
  tell(answer);
}

function tell(answer) {
  const said = [];
  if (answer.error) said.push(el("p", { class: "error" }, answer.error));
  if (answer.text) said.push(el("p", {}, answer.text));
  $("answer").prepend(...said);
}

// lookAt shows a client, by its key or its digest, and what it has left under a rule, or else under the
// rule that refuses it.
async function lookAt(rule, key) {
  if (!acts) return rule ? selectRule(rule) : tellDone("Only viewers who may act can look up a client.");
  $("key").value = key;
  $("answer").replaceChildren();
  $("hand").scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  const answer = await post({ action: "look", rule, key });
  if ($("key").value !== key) return; // another is looked at meanwhile
  const c = answer.client, counts = answer.counts || [];
  const under = rule || (c && c.seen.rule) || "";
  $("rule").value = under;
  if (under && !rule) selectRule(under);
  $("answer").replaceChildren();
  if (counts.length) $("answer").append(el("p", {}, (key === "" ? "All clients together, under " : "Under ") + counts[0].rule + ":"), ...counts.map(countText));
  else if (c && !under) $("answer").append(el("p", {}, "This process knows no rule that refuses this client. Choose a rule to see what the client has left."));
  tell(answer);
  $("client").hidden = !c;
  if (c) showClient(c);
}

function countText(c) {
  const parts = [c.uncounted ? "not counted, as the store does not answer" : whole.format(c.remaining) + " of " + whole.format(c.limit) + " left"];
  if (c.next && c.remaining === 0) parts.push("the next in " + c.next);
  if (c.reset) parts.push("all of it in " + c.reset);
  if (c.own) parts.push(c.own);
  if (c.shadow) parts.push("in shadow");
  if (c.degraded && !c.uncounted) parts.push("by its outage policy");
  return el("p", {}, c.tier ? c.tier + ": " : "", parts.join(", ") + ".");
}

function showClient(c) {
  history.replaceState(null, "", "#" + c.digest);
  say($("client-key"), c.key);
  say($("client-digest"), c.key === c.digest ? "its digest, as keys are not shown" : "digest " + c.digest);
  const ban = c.ban && (c.ban.until ? "Banned, " + leftOf(c.ban) : "Banned permanently") + ", " + whyOf(c.ban) + "." +
    (c.seen.missed ? " But its requests still pass: no limiter looks this key up in the list of bans (Config.Bans.Keys)." : "");
  say($("client-ban"), ban || "");
  const seen = c.seen;
  const refused = seen.refused ? (seen.shadow ? seen.rule + ", in shadow, would have refused it" : "Refused by " + seen.rule) + " at " + clock(seen.refused, true) + "." : "";
  const passed = seen.passed ? "Its latest request that passed came at " + clock(seen.passed, true) + "." : "";
  say($("client-last"), [refused, passed].filter(Boolean).join(" ") || "This process knows of no request of it in the last hour.");
}

// The page's address with # and the digest of a log line opens a client.
function lookAtAddress(url) {
  const digest = new URL(url).hash.slice(1);
  if (digest) lookAt("", digest);
}
window.addEventListener("hashchange", (e) => lookAtAddress(e.newURL));
