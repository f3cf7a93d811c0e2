// What an operator may do about a finding, and the preview of a ban.

const left = new Set(); // findings that the operator leaves alone

function actionsOf(finding) {
  const known = finding.known || [], n = known.length;
  if (!n || left.has(leftAs(finding))) return [];
  const button = (text, click, grave) => el("button", { type: "button", class: grave ? "grave" : false, on: { click } }, text);
  const actions = [];
  const open = known.filter((k) => !k.ban), free = open.filter((k) => !k.shared && !k.claimed);
  const senders = [...new Set(open.flatMap((k) => k.senders || []))];
  const propose1h = (keys) => (e) => propose(e.target, keys, "1h", "refused by " + finding.rule);
  if (acts && free.length && $("bans")) {
    const those = n === 1 ? "Ban this one" : free.length < n ? "Ban the other " + free.length : "Ban these " + n;
    actions.push(button(those + " for an hour", propose1h(free.map((k) => k.key)), true));
  } else if (!open.length) {
    actions.push(el("p", { class: "quiet" }, n === 1 ? "It is banned." : "They are banned."));
  }
  const claimed = open.find((k) => k.claimed);
  if (acts && claimed && $("bans")) actions.push(el("p", { class: "quiet" }, claimed.note));
  if (acts && senders.length && $("bans")) {
    const those = senders.length === 1 ? "the address" : "the " + senders.length + " addresses";
    actions.push(button("Ban " + those + " behind " + (n === 1 ? "it" : "them") + " for an hour", propose1h(senders), true));
  }
  if (acts) actions.push(button(n === 1 ? "Look it up" : "Look one up", () => lookAt(finding.rule, known[0].key)));
  actions.push(button("Dismiss", () => {
    const limit = rows.filter((r) => r.rule === finding.rule).map((r) => r.limit)[0];
    left.add(leftAs(finding));
    drawVerdict();
    tellDone(finding.rule + " keeps refusing requests above " + (limit || "its limit") + ". Nothing has changed.");
  }));
  return actions;
}
// A finding about other clients is another finding.
const leftAs = (finding) => finding.rule + "\n" + (finding.known || []).map((k) => k.digest).sort().join();

function drawActions(box, finding) {
  const drawn = JSON.stringify([acts, finding.known, left.has(leftAs(finding))]);
  if (box.dataset.drawn === drawn || box.querySelector(".plan")) return;
  box.dataset.drawn = drawn;
  box.replaceChildren(...actionsOf(finding));
}

// propose shows what a ban will do, after the button that asks for it, and bans if the operator
// confirms.
async function propose(button, keys, period, reason) {
  for (const open of document.querySelectorAll(".plan")) open.remove();
  const byFinding = button.closest(".actions");
  $("answer").replaceChildren();
  tellDone("");
  const ask = { action: "ban", keys, for: period };
  const answer = await post({ ...ask, preview: true });
  for (const open of document.querySelectorAll(".plan")) open.remove(); // of another click meanwhile
  const panel = el("div", { class: "plan", role: "group", "aria-label": "What this ban will do", tabindex: "-1" });
  const close = () => { panel.remove(); button.focus(); };
  panel.addEventListener("keydown", (e) => { if (e.key === "Escape") close(); });
  if (answer.error) {
    panel.append(el("p", { class: "error" }, answer.error), el("div", { class: "buttons" }, el("button", { type: "button", on: { click: close } }, "Close")));
  } else {
    const clients = answer.plan.clients;
    const title = "Ban " + (clients.length === 1 ? "this client" : "these " + clients.length) + " " + periodText(period);
    const why = el("input", { maxlength: 200, spellcheck: "false", autocomplete: "off" });
    why.value = reason;
    const sure = el("button", { type: "button", class: "grave sure", on: { click: async () => {
      sure.disabled = true;
      const done = await post({ ...ask, reason: why.value.trim() });
      panel.remove();
      button.focus();
      if (byFinding) return tellDone([done.text, done.error].filter(Boolean).join(" "), done.error);
      $("answer").replaceChildren();
      tell(done);
    } } }, title);
    panel.append(
      el("p", { class: "title" }, title + "?"),
      el("ul", {}, ...clients.map((c) => el("li", {}, el("code", {}, c.key),
        c.ban ? el("small", {}, " is banned already (" + leftOf(c.ban) + "). This ban replaces that one.") : "",
        c.note ? el("small", {}, " " + c.note) : ""))),
      el("ul", { class: "will" },
        el("li", {}, answer.plan.until ? "It lasts until " + clock(answer.plan.until) + "." : "It lasts until an operator lifts it."),
        el("li", {}, answer.plan.alone ? "It applies in this process only, whose memory holds the list of bans." : "It applies in all processes that share this list of bans."),
        el("li", {}, "Limiters that look these keys up (Config.Bans.Keys, or the keys of rules that escalate) refuse all their requests, under any rule."),
        el("li", {}, "Unban lifts the ban at any time, and forgets the refusals that led to it.")),
      el("label", {}, "Reason, for the list of bans", why),
      el("div", { class: "buttons" }, sure, el("button", { type: "button", on: { click: close } }, "Cancel")),
    );
  }
  (byFinding || $("answer")).append(panel);
  panel.focus({ preventScroll: true });
  panel.scrollIntoView({ block: "nearest" });
}

// tellDone shows the result of an action on a finding, for a while.
let toldUntil = 0;
function tellDone(text, isError) {
  clearTimeout(toldUntil);
  say($("done"), text);
  $("done").classList.toggle("error", Boolean(isError));
  if (text && !isError) toldUntil = setTimeout(() => tellDone(""), 20000);
}
const periodText = (period) => ({ "10m": "for 10 minutes", "1h": "for an hour", "24h": "for a day", "7d": "for a week", "": "permanently" })[period] || "for " + period;
