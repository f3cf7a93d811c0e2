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
  while (list.childElementCount > findings.length) list.lastChild.remove();
  findings.forEach((f, i) => {
    if (!list.children[i]) list.append(el("li", {}, el("button", { type: "button" }, el("b"), " ", el("span"))));
    const button = list.children[i].firstChild;
    button.onclick = () => selectRule(f.rule);
    say(button.children[0], f.rule + ":");
    say(button.children[1], f.text);
  });
  const sign = { bad: "✕ ", warning: "▲ " }[v.level] || "";
  document.title = sign + "Weir · " + $("title").textContent;
}
