// Who asks, and who is refused.

let drawnKeys = "";
function drawKeys() {
  if (!$("top")) return;
  const top = last.top || [];
  const row = rows.find((r) => identity(r) === selected);
  // Of all rules, the worst that tells keys apart.
  const found = (last.verdict.findings || []).map((f) => top.find((t) => t.rule === f.rule)).filter(Boolean);
  const seen = row ? top.find((t) => t.rule === row.rule) : [...found, ...top].find((t) => t[order].some((k) => k.key !== "")) || top[0];
  const rule = seen ? seen.rule : row && row.rule;
  const inShadow = rows.some((r) => r.rule === rule) && rows.every((r) => r.rule !== rule || r.shadow);
  say($("top-title"), seen || row ? "Who, under " + rule + (inShadow ? " (in shadow)" : "") : "Who");
  const keys = seen ? seen[order] : [];
  const all = seen ? (order === "most" ? seen.refused : seen.asked) : 0;
  const { rules, unfollowed } = last.unlisted || {};
  let note = "";
  if (row && !seen && rules) note = "Keys are listed for the " + top.length + " busiest rules only.";
  else if (row && !seen && unfollowed) note = "Nothing is known of this rule's keys.";
  else if (!keys.length) note = order === "most" ? "Nobody was refused in the last hour." : "Nobody asked in the last hour.";
  else if (keys.length === 1 && keys[0].key === "" && row) note = "This rule has one counter for everybody. Who asks most is under the rules that tell keys apart.";
  else note = "Of " + count(all) + (order === "most" ? " refusals" : " requests") + " in the last hour." +
    (keys.some((k) => !k.whole) ? " Digests stand for keys (offenders.Options.ShowKeys)." : "");
  if (unfollowed) note += " There are more rules than are followed: " + count(unfollowed) + " times since the start, a request met one of which no keys are known (offenders.Options.MaxRules).";
  say($("top-note"), note);
  const drawn = JSON.stringify([seen && seen.rule, order, all, keys]);
  if (drawn === drawnKeys) return;
  drawnKeys = drawn;
  const focused = document.activeElement && document.activeElement.dataset.key;
  $("keys").replaceChildren(...keys.map((k) => keyItem(seen.rule, k, all)));
  if (focused !== undefined) for (const b of $("keys").querySelectorAll("button")) if (b.dataset.key === focused) b.focus();
}
function keyItem(rule, k, all) {
  const n = order === "most" ? k.refused : k.asked;
  const bar = svg("svg", { viewBox: "0 0 100 5", preserveAspectRatio: "none" });
  const part = all ? Math.min(100, 100 * n / all) : 0;
  bar.append(svg("rect", { class: order === "most" ? "r" : "a", width: part, height: 5 }));
  if (order !== "most" && n) bar.append(svg("rect", { class: "r", width: Math.min(part, part * k.refused / n), height: 5 }));
  return el("li", {}, el("button", {
    type: "button", class: "key", "data-key": k.key,
    title: order === "most" ? count(k.refused) + " refused of " + count(k.asked) + " asked" + (k.error ? ", up to " + count(k.error) + " fewer" : "") + "; digest " + k.digest
      : count(k.asked) + " asked, " + count(k.refused) + " refused" + (k.error ? ", up to " + count(k.error) + " fewer" : "") + "; digest " + k.digest,
    on: { click: () => lookAt(rule, k.whole ? k.key : k.digest) },
  }, el("code", {}, k.key === "" ? "everybody together" : k.key),
    el("span", { class: "count" }, percent(n, all) + " ", el("small", {}, count(n))),
    el("span", { class: "bar" }, bar)));
}
if ($("top")) {
  const by = (which) => {
    order = which;
    $("by-refused").setAttribute("aria-pressed", which === "most");
    $("by-asked").setAttribute("aria-pressed", which === "busiest");
    if (last) drawKeys();
  };
  $("by-refused").addEventListener("click", () => by("most"));
  $("by-asked").addEventListener("click", () => by("busiest"));
}
cards.push(drawKeys);
