// Rating from the keyboard: digits choose in the first open group, the form goes off when all is chosen, j and k move.
const form = document.querySelector("form[data-keys]");
const groups = form ? [...form.querySelectorAll("[data-choice]")] : [];
const chosen = (group) => group.querySelector("input:checked");
const said = () => groups.map(chosen).filter(Boolean).map((input) => input.value);
const asked = (group) => !group.dataset.unless || !said().includes(group.dataset.unless);
const fresh = groups.every((group) => !chosen(group));
let touched = new Set();
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=radio]), textarea")) return;
  const link = document.querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
  if (link) { event.preventDefault(); link.click(); return; }
  if (!form || !/^[1-9]$/.test(event.key)) return;
  const open = groups.find((group) => asked(group) && !(fresh ? chosen(group) : touched.has(group)));
  const input = open && open.querySelectorAll("input")[Number(event.key) - 1];
  if (!input) return;
  event.preventDefault();
  input.checked = true;
  input.focus();
  touched.add(open);
  if (groups.every((group) => !asked(group) || (fresh ? chosen(group) : touched.has(group)))) form.requestSubmit();
});
