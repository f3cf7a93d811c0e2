// The rules as they are written: when and where they were loaded, and why they are refused.

function drawWritten() {
  const all = last.written || [];
  const list = items($("written"), all.length, () => el("li", {},
    el("p", { class: "quiet" }), el("p", { class: "error" }), el("pre", { class: "error", tabindex: "0", "aria-label": "What is wrong" }),
    el("details", {}, el("summary"), el("ul"))));
  all.forEach((w, i) => {
    const [loaded, refused, why, changed] = list[i].children;
    say(loaded, (w.source ? "From " + w.source : "The program's fallback") + ", in force since " + clock(w.loaded, true) +
      (w.loads > 1 ? ", the " + ordinal(w.loads) + " since the start" : ", the first since the start") + ". Version " + w.version + "." +
      (w.refused ? " Refused " + (w.refused === 1 ? "once." : whole.format(w.refused) + " times.") : ""));
    say(refused, w.error ? "The rules as they are written now are refused, so the rules below stay in force:" : "");
    why.hidden = !w.error;
    say(why, w.error || "");
    changed.hidden = w.loads < 2;
    const changes = w.changes || [];
    say(changed.children[0], changes.length ? "What the last load changed (" + whole.format(changes.length + (w.more || 0)) + ")" : "The last load changed no rule");
    const texts = w.more ? [...changes, "and " + whole.format(w.more) + " more"] : changes;
    items(changed.children[1], texts.length, () => el("li")).forEach((item, k) => say(item, texts[k]));
  });
}
cards.push(drawWritten);
