// Copying a block of a terminal takes its commands, without the prompts and without what they print.
function commandsOf(block) {
  const commands = [];
  let goesOn = false;
  for (const line of block.querySelector("code").textContent.split("\n")) {
    if (goesOn || line.startsWith("$ ")) {
      commands.push(goesOn ? line : line.slice(2));
      goesOn = line.endsWith("\\");
    }
  }
  return commands.join("\n");
}

document.addEventListener("DOMContentLoaded", () => {
  const content = document.querySelector(".md-content");
  const complete = () => {
    for (const button of content.querySelectorAll(".language-console [data-clipboard-target]")) {
      button.dataset.clipboardText = commandsOf(button.closest(".language-console"));
      delete button.dataset.clipboardTarget;
    }
    // What the theme leaves out of reach of the keyboard, or without a name of its own.
    for (const each of content.querySelectorAll("pre > code, .md-typeset__scrollwrap")) each.tabIndex = 0;
    for (const each of content.querySelectorAll(".md-code__nav")) each.setAttribute("role", "presentation");
  };
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  complete();
  new MutationObserver(complete).observe(content, { childList: true, subtree: true });  // buttons come later
});
