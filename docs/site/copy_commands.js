// Copying a block of a terminal takes its commands, without the prompts and without what they print.
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll(".language-console")) {
    const commands = [];
    let goesOn = false;
    for (const line of block.querySelector("code").textContent.split("\n")) {
      if (goesOn || line.startsWith("$ ")) {
        commands.push(goesOn ? line : line.slice(2));
        goesOn = line.endsWith("\\");
      }
    }
    const tell = () => {
      for (const button of block.querySelectorAll("[data-clipboard-target]")) {
        button.dataset.clipboardText = commands.join("\n");
        delete button.dataset.clipboardTarget;
      }
    };
    tell();
    new MutationObserver(tell).observe(block, { childList: true, subtree: true });  // buttons may come later
  }
});
