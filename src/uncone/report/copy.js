"use strict";
// A copy button below each piece of code, and below each sentence with commands. Nothing is loaded and nothing is sent.
(() => {
  const made = (name, fields) => Object.assign(document.createElement(name), fields);
  async function copied(code) { // some browsers keep the clipboard from pages on disk: there the selection is copied
    try { await navigator.clipboard.writeText(code.textContent); return true; } catch { getSelection().selectAllChildren(code); }
    return document.execCommand("copy");
  }
  document.addEventListener("DOMContentLoaded", () => {
    const said = made("p", { className: "unseen", role: "status" }); // screen readers read this text out
    document.body.append(said);
    for (const code of document.querySelectorAll("pre, code.command")) {
      const inline = code.matches(".command"), shown = code.textContent.slice(0, 80), sentence = inline && code.closest("p, h1");
      const button = made("button", { type: "button", className: "copy", textContent: "Copy" });
      button.append(made("span", { className: inline ? "" : "unseen", textContent: ` ${shown}` }));
      button.addEventListener("click", async () => {
        said.textContent = "";
        said.textContent = button.firstChild.data = (await copied(code)) ? "Copied" : "Selected: press Ctrl+C";
      });
      button.addEventListener("blur", () => { button.firstChild.data = "Copy"; });
      let place = sentence || (code.closest(".scroll") ?? code);
      while (place.nextElementSibling?.matches(".copy")) place = place.nextElementSibling; // the first command's comes first
      place.after(button);
    }
  });
})();
