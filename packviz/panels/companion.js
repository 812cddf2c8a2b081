// Shows nothing. It gives the controls of a panel the names and roles that a screen reader needs (ipywidgets leaves
// sliders nameless), and reports to Python whether the page is dark.
const PLAY = ["play or pause", "stop", "repeat"]; // the buttons of ipywidgets' Play, which show icons only

function render({ model, el }) {
  el.style.display = "none";
  let frame = 0;
  const observer = new MutationObserver(() => panel() && name(panel()));
  const panel = () => el.closest(".packviz-panel, .packviz-quiz");

  function name(root) {
    for (const control of root.querySelectorAll("[role=slider], textarea, select, input:not([type=checkbox], [type=radio])")) {
      const widget = control.closest(".widget-inline-hbox");
      const label = widget?.querySelector(".widget-label");
      if (label) labelOnce(control, label.textContent);
      // Otherwise, a slider of choices has an index as its text.
      const shown = widget?.querySelector(".widget-readout")?.textContent;
      if (shown) control.setAttribute("aria-valuetext", shown);
    }
    root.querySelectorAll(".widget-play button").forEach((button, i) => labelOnce(button, PLAY[i]));
  }

  function labelOnce(control, text) {
    if (text && !control.hasAttribute("aria-label")) control.setAttribute("aria-label", text);
  }

  function start() {
    if (!panel()) return void (frame = requestAnimationFrame(start)); // not in the page yet
    name(panel());
    for (const part of panel().querySelectorAll(".packviz-summary, .packviz-note")) part.setAttribute("aria-live", "polite");
    panel().querySelector(".packviz-error")?.setAttribute("role", "alert");
    observer.observe(panel(), { childList: true, subtree: true });
  }

  function readTheme() {
    model.set("dark", document.body.dataset.jpThemeLight === "false" || document.body.classList.contains("vscode-dark"));
    model.save_changes();
  }
  const theme = new MutationObserver(readTheme);
  theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
  readTheme();
  start();

  return () => {
    cancelAnimationFrame(frame);
    observer.disconnect();
    theme.disconnect();
  };
}
export default { render };
