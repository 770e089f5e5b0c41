// A run's page: the live part is fetched anew when the server says that something changed; a log grows as it is written.
// The form of a new run: a JSON file is put into its field, and JSON fields are checked before they are sent.
(() => {
  let watching = null;
  const watch = () => {
    const live = document.getElementById("live");
    if (!live || !live.dataset.stream) {
      if (watching) { watching.close(); watching = null; }
      return;
    }
    if (watching && watching.readyState !== EventSource.CLOSED) return;
    watching = new EventSource(live.dataset.stream);
    let first = true;
    watching.addEventListener("changed", () => {
      if (first) { first = false; return; }
      const here = document.getElementById("live");
      if (here) htmx.trigger(here, "refresh");
    });
    watching.addEventListener("end", () => {
      watching.close();
      watching = null;
      const here = document.getElementById("live");
      if (here && here.dataset.stream) htmx.trigger(here, "refresh");
    });
  };
  const follow = () => {
    const lines = document.getElementById("lines");
    if (!lines) return;
    const source = new EventSource(lines.dataset.stream);
    source.addEventListener("lines", (event) => {
      const below = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 24;
      lines.append(JSON.parse(event.data));
      if (below) lines.scrollTop = lines.scrollHeight;
    });
    source.addEventListener("end", () => source.close());
  };
  const form = () => {
    const upload = document.getElementById("upload");
    if (!upload) return;
    upload.addEventListener("change", async () => {
      if (upload.files.length) document.getElementById("json").value = await upload.files[0].text();
    });
    const inputs = document.getElementById("inputs");
    const check = (field) => {
      let wrong = "";
      try { if (field.value.trim()) JSON.parse(field.value); } catch { wrong = inputs.dataset.jsonWrong; }
      field.setCustomValidity(wrong);
    };
    inputs.querySelectorAll("[data-json], #json").forEach((field) => field.addEventListener("input", () => check(field)));
    document.getElementById("start").addEventListener("click", () => {
      const bad = inputs.querySelector(":invalid:not(fieldset)");
      for (let part = bad && bad.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
    });
  };
  document.addEventListener("DOMContentLoaded", () => {
    watch();
    follow();
    form();
    // As the page came: a run that ends between two looks still shows the log of its last step.
    const running = Boolean(document.getElementById("live")?.dataset.stream);
    document.body.addEventListener("htmx:afterSettle", () => {
      const live = document.getElementById("live");
      const lines = document.getElementById("lines");
      const begun = running && live && live.dataset.step && !lines;
      const moved = live && lines && live.dataset.step !== lines.dataset.step;
      if ((begun && live.querySelector(`#s-${live.dataset.step}`)) || moved) location.reload();
      watch();
    });
  });
})();
