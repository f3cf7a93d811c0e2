// One client: what became of its latest requests in this process.

let client = null; // the key or the digest that is shown
let clientAsked = 0, addressed = false;

async function drawClient(now) {
  if (client === null || (!now && last.second < clientAsked + 2)) return;
  clientAsked = last ? last.second : 0;
  const of = client;
  let c;
  try {
    const response = await fetch(address, { headers: { Accept: "application/json", "Weir-Client": encodeURIComponent(of) } });
    c = await response.json();
  } catch (error) {
    c = { error: "The service gives no answer: " + error.message };
  }
  if (of === client) showClient(c);
}
cards.push(drawClient);

function showClient(c) {
  $("client").hidden = false;
  say($("client-error"), c.error || "");
  $("client-known").hidden = Boolean(c.error);
  if (c.error) return;
  if (!addressed) history.replaceState(null, "", "#" + c.digest); // once, as another may be asked for meanwhile
  addressed = true;
  say($("client-key"), c.key);
  say($("client-digest"), c.key === c.digest ? "its digest; the key is not shown" : "digest " + c.digest);
  const asked = c.asked.slice(-c.known), refused = c.refused.slice(-c.known), all = total(asked);
  const whole5 = c.known * c.step >= span;
  say($("client-since"), (whole5 ? "In 5 minutes" : "Since " + clock(c.since, true)) + ": " +
    (all ? count(all) + (all === 1 ? " request, " : " requests, ") + count(total(refused)) + " refused." : "no request.") +
    (whole5 ? "" : " What was before is not known: this process follows a client from its first refusal, or when it is looked at.") +
    (c.missed ? " Beside these, " + count(c.missed) + " came at the same moment as others, and only their number is known." : ""));
  const most = Math.max(...c.asked, 1), part = (list) => list.map((n, i) => i < list.length - c.known ? 0 : n);
  const picture = $("client-chart"), ground = c.asked.map(() => 0);
  picture.setAttribute("viewBox", `0 0 ${c.asked.length - 1} 40`);
  picture.replaceChildren(
    ...(whole5 ? [] : [svg("rect", { class: "unknown", x: 0, y: 0, width: Math.max(0, c.asked.length - c.known), height: 40 })]),
    svg("path", { class: "pass", d: area(ground, part(c.asked), most, 40) }),
    svg("path", { class: "refuse", d: area(ground, part(c.refused), most, 40) }));
  const ban = c.ban && (c.ban.permanent ? "Banned permanently" : "Banned, " + leftOf(c.ban)) + ", " + whyOf(c.ban) + "." +
    (c.passed ? " But its requests still pass: no limiter looks this key up in the list of bans (Config.BanKeys)." : "");
  say($("client-ban"), ban || "");
  const row = (name, quiet, numbers, bad) => el("li", {}, el("span", { class: "name" }, name, quiet ? el("small", {}, " " + quiet) : ""),
    el("span", { class: bad ? "number some" : "number" }, numbers));
  const numbers = (r) => count(r.asked) + " asked" + (r.refused ? ", " + count(r.refused) + " refused" : "");
  fill("client-rules", c.rules.map((r) => row(r.rule || "other rules", r.tier, numbers(r), r.refused)));
  fill("client-routes", c.routes.map((r) => row(r.others ? "other routes" : r.route || "no route", "", numbers(r), r.refused)));
  fill("client-hour", (c.hour || []).map((r) => row(r.rule, r.error ? "at most, up to " + count(r.error) + " fewer" : "", numbers(r), r.refused)));
  fill("client-latest", c.latest.map((e) => el("li", { class: e.became === "allowed" || e.became === "overdrawn" || e.became === "exempt" ? "passed" : "stopped" },
    el("time", {}, clock(e.at, true)), el("span", {}, e.route || "no route"), el("span", { class: "became" }, becameText(e)))));
}
function fill(id, list) {
  $(id).replaceChildren(...list);
  $(id).previousElementSibling.hidden = list.length === 0;
}
const becameText = (e) => ({
  allowed: e.shadow ? "passed; " + e.rule + " in shadow would refuse it" : "passed", overdrawn: "passed on an overdraft", exempt: "exempt",
  refused: "refused" + (e.rule ? " by " + e.rule : ""), undecided: "undecided, 503", no_key: "without a key", shed: "shed for overload", banned: "banned",
})[e.became] || e.became;

// lookAt shows a client, by its key or its digest, and what it has left of a rule.
function lookAt(rule, key) {
  if (rule && rows.some((r) => r.rule === rule)) $("rule").value = rule;
  $("key").value = key;
  $("hand").scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  client = key === "" ? null : key;
  addressed = false;
  $("client").hidden = client === null;
  $("answer").replaceChildren();
  drawClient(true);
  if (acts && $("rule").value) act("peek", $("rule").value, key);
}

// The digest of a log line is an address: the page's own, and # before it.
function lookAtAddress(url) {
  const digest = new URL(url).hash.slice(1);
  if (digest && digest !== client) lookAt("", digest);
}
window.addEventListener("hashchange", (e) => lookAtAddress(e.newURL));
