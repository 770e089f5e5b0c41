// Copies a digest on click. Nothing else of ours runs in the browser.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.classList.add("copied");
  } catch {
    window.getSelection().selectAllChildren(button);
  }
});
