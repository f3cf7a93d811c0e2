// What another limit would have refused.

let whatIfRules = "", whatIfSelected = null;
function drawWhatIf() {
  const named = new Map(rows.map((r) => [r.rule + "\n" + (r.tier || ""), r]));
  const drawn = [...named.keys()].join("\0");
  if (drawn !== whatIfRules) {
    whatIfRules = drawn;
    const kept = $("whatif-rule").value;
    $("whatif-rule").replaceChildren(...[...named].map(([value, r]) => el("option", { value }, r.rule + (r.tier ? " · " + r.tier : "") + " (" + r.limit + ")")));
    if (named.has(kept)) $("whatif-rule").value = kept;
  }
  if (selected !== whatIfSelected) { // it follows the row that is looked at
    whatIfSelected = selected;
    const row = rows.find((r) => identity(r) === selected);
    if (row) $("whatif-rule").value = row.rule + "\n" + (row.tier || "");
  }
}
cards.push(drawWhatIf);

$("whatif-form").addEventListener("submit", async (e) => {
  e.preventDefault();
  const [rule, tier] = $("whatif-rule").value.split("\n"), button = $("whatif-form").querySelector("button");
  button.disabled = true;
  const answer = await inquire({ weir: "what-if", rule, tier: tier || "", limit: $("whatif-limit").value });
  button.disabled = false;
  if (answer.error) {
    $("whatif-answer").replaceChildren(el("p", { class: "error" }, answer.error));
    return;
  }
  const said = [el("p", { class: "answer" }, answer.text)];
  if (answer.now) said.push(el("p", {}, answer.now));
  said.push(el("ul", { class: "quiet" }, ...answer.notes.map((note) => el("li", {}, note))));
  $("whatif-answer").replaceChildren(...said);
});
