// What may be done about a finding, and what a ban will do, which is shown before it is done.

const left = new Set(); // rules of which the finding is left as it is, with the clients that it is about

function actionsOf(finding) {
  const n = finding.clients || 0, known = finding.known || [];
  if (!n || left.has(leftAs(finding))) return [];
  const button = (text, click, grave) => el("button", { type: "button", class: grave ? "grave" : false, on: { click } }, text);
  const actions = [];
  const open = known.filter((k) => !k.ban), free = open.filter((k) => !k.shared);
  if (acts && free.length && $("bans")) {
    const those = n === 1 ? "Ban this one" : known.length < n ? "Ban the " + free.length + " that are known" : free.length < n ? "Ban the other " + free.length : "Ban these " + n;
    actions.push(button(those + " for an hour", (e) => propose(e.target, free.map((k) => k.key), "1h", "refused by " + finding.rule), true));
  } else if (known.length && !open.length) {
    actions.push(el("p", { class: "quiet" }, n === 1 ? "It is banned." : known.length < n ? "Those that are known are banned." : "They are banned."));
  }
  if (acts && known.length) actions.push(button(n === 1 ? "Look at it" : "Look at one", () => lookAt(finding.rule, known[0].key)));
  actions.push(button("Leave it: the limit holds", () => {
    const limit = rows.filter((r) => r.rule === finding.rule).map((r) => r.limit)[0];
    left.add(leftAs(finding));
    drawVerdict();
    tellDone(finding.rule + " goes on refusing what is above " + (limit || "its limit") + ". Nothing was changed.");
  }));
  return actions;
}
// A finding about other clients is another one.
const leftAs = (finding) => finding.rule + "\n" + (finding.known || []).map((k) => k.digest).sort().join();

function drawActions(box, finding) {
  const drawn = JSON.stringify([acts, finding.clients, finding.known, left.has(leftAs(finding))]);
  if (box.dataset.drawn === drawn || box.querySelector(".plan")) return;
  box.dataset.drawn = drawn;
  box.replaceChildren(...actionsOf(finding));
}

// propose shows what a ban will do, behind the button that asks for it, and does it if that is
// confirmed.
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
        c.ban ? el("small", {}, " is banned already (" + leftOf(c.ban) + "), which this replaces") : "",
        c.shared ? el("small", {}, " is the key of clients that have nothing to do with each other: all of them are refused") : ""))),
      el("ul", { class: "will" },
        el("li", {}, answer.plan.until ? "It lasts until " + clock(answer.plan.until) + "." : "It lasts until an operator lifts it."),
        el("li", {}, answer.plan.alone ? "It holds in this process alone: its list of bans is in its memory." : "It holds in all processes that share this list of bans."),
        el("li", {}, "Every request of theirs is refused, whatever rule is for it, where a limiter looks these keys up (Config.Bans.Keys, or the keys of rules that escalate)."),
        el("li", {}, "To undo it, press Unban: it lifts a ban at any moment, and what led to it is forgotten.")),
      el("label", {}, "Reason, as the list of bans shows it", why),
      el("div", { class: "buttons" }, sure, el("button", { type: "button", on: { click: close } }, "Cancel")),
    );
  }
  (byFinding || $("answer")).append(panel);
  panel.focus({ preventScroll: true });
  panel.scrollIntoView({ block: "nearest" });
}

// tellDone says what was done about a finding, until something else is.
let toldUntil = 0;
function tellDone(text, isError) {
  clearTimeout(toldUntil);
  say($("done"), text);
  $("done").classList.toggle("error", Boolean(isError));
  if (text && !isError) toldUntil = setTimeout(() => tellDone(""), 20000);
}
const periodText = (period) => ({ "10m": "for 10 minutes", "1h": "for an hour", "24h": "for a day", "7d": "for a week", "": "permanently" })[period] || "for " + period;
