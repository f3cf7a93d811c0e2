function drawVerdict() {
  const v = last.verdict;
  $("verdict").dataset.level = v.level;
  say($("verdict-text"), v.text);
  say($("verdict-detail"), v.detail || "");
  const said = v.level + " " + (v.findings || []).map((f) => f.rule).join();
  if ($("verdict").dataset.said !== said) { // not each time that a figure changes
    $("verdict").dataset.said = said;
    say($("verdict-said"), v.text);
  }
  const findings = v.findings || [], list = $("findings");
  const known = new Map([...list.children].map((item) => [item.dataset.rule, item]));
  for (const [rule, item] of known) { // but not under the hands of an operator
    if (!findings.some((f) => f.rule === rule) && !item.querySelector(".plan")) item.remove();
  }
  findings.forEach((f, i) => {
    const item = known.get(f.rule) || el("li", { "data-rule": f.rule },
      el("button", { type: "button", class: "finding", on: { click: () => selectRule(f.rule) } }, el("b"), " ", el("span")), el("div", { class: "actions" }));
    if (list.children[i] !== item) list.insertBefore(item, list.children[i] || null);
    const [button, actions] = item.children;
    say(button.children[0], f.rule + ":");
    say(button.children[1], f.text);
    drawActions(actions, f);
  });
  const sign = { bad: "✕ ", warning: "▲ " }[v.level] || "";
  document.title = sign + "Weir · " + $("title").textContent;
}
