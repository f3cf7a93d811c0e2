// The clients with the most requests and refusals.

let drawnKeys = "";
function drawKeys() {
  const top = last.top || [];
  const row = rows.find((r) => identity(r) === selected);
  // Without a chosen rule: the worst rule that has keys.
  const found = (last.verdict.findings || []).map((f) => top.find((t) => t.rule === f.rule)).filter(Boolean);
  const seen = row ? top.find((t) => t.rule === row.rule) : [...found, ...top].find((t) => t[order].some((k) => k.key !== "")) || top[0];
  const rule = seen ? seen.rule : row && row.rule;
  const inShadow = rows.some((r) => r.rule === rule) && rows.every((r) => r.rule !== rule || r.shadow);
  say($("top-title"), seen || row ? "Clients, under " + rule + (inShadow ? " (in shadow)" : "") : "Clients");
  const keys = seen ? seen[order] : [];
  const all = seen ? (order === "most" ? seen.refused : seen.asked) : 0;
  const { rules, unfollowed } = last.unlisted || {};
  let note = "";
  if (row && !seen && rules) note = "Only the " + top.length + " busiest rules have a list of keys.";
  else if (row && !seen && unfollowed) note = "This rule's keys are not known.";
  else if (!keys.length) note = order === "most" ? "No request was refused in the last hour." : "No request came in the last hour.";
  else if (keys.length === 1 && keys[0].key === "" && row) note = "This rule has one counter for everybody. Rules with a key show the clients.";
  else note = "Of " + count(all) + (order === "most" ? " refusals" : " requests") + " in the last hour." +
    (keys.some((k) => !k.whole) ? " Digests stand for keys (dashboard.Options.ShowKeys)." : "");
  if (unfollowed) note += " Keys of further rules are not counted: requests met these rules " + count(unfollowed) + " times since the start.";
  say($("top-note"), note);
  const drawn = JSON.stringify([seen && seen.rule, order, all, keys]);
  if (drawn === drawnKeys) return;
  drawnKeys = drawn;
  const focused = document.activeElement && document.activeElement.dataset.key;
  $("keys").replaceChildren(...keys.map((k) => keyItem(seen.rule, k, all)));
  if (focused !== undefined) for (const b of $("keys").querySelectorAll("button")) if (b.dataset.key === focused) b.focus();
}
function keyItem(rule, k, all) {
  const { N: n, Error: error } = order === "most" ? k.refused : k.asked, asked = count(k.asked.N), refused = count(k.refused.N);
  const bar = svg("svg", { viewBox: "0 0 100 5", preserveAspectRatio: "none" });
  const part = all ? Math.min(100, 100 * n / all) : 0;
  bar.append(svg("rect", { class: order === "most" ? "r" : "a", width: part, height: 5 }));
  if (order !== "most" && n) bar.append(svg("rect", { class: "r", width: Math.min(part, part * k.refused.N / n), height: 5 }));
  return el("li", {}, el("button", {
    type: "button", class: "key", "data-key": k.key,
    title: (order === "most" ? refused + " refused of " + asked + " requests" : asked + " requests, " + refused + " refused") +
      (error ? ", up to " + count(error) + " fewer" : "") + "; digest " + k.digest,
    on: { click: () => lookAt(rule, k.whole ? k.key : k.digest) },
  }, el("code", {}, k.key === "" ? "all clients together" : k.key),
    el("span", { class: "count" }, percent(n, all) + " ", el("small", {}, count(n))),
    el("span", { class: "bar" }, bar)));
}
const by = (which) => {
  order = which;
  $("by-refused").setAttribute("aria-pressed", which === "most");
  $("by-asked").setAttribute("aria-pressed", which === "busiest");
  if (last) drawKeys();
};
$("by-refused").addEventListener("click", () => by("most"));
$("by-asked").addEventListener("click", () => by("busiest"));
cards.push(drawKeys);
