// The page as text: what can be seen, in reading order, with a number before everything that can be used. The numbers are
// left in the page as attributes, by which the elements are found again.
({ first, showLinks }) => {
  const USABLE =
    "a[href], button, input:not([type=hidden]), select, textarea, summary, [contenteditable=''], [contenteditable=true], " +
    "[onclick], [role=button], [role=link], [role=checkbox], [role=radio], [role=tab], [role=menuitem], [role=option], " +
    "[role=switch], [role=combobox], [role=textbox], [role=searchbox]";
  const SKIPPED = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "LINK", "META", "OBJECT", "EMBED"]);
  const ATTRIBUTE = "data-tool-number";
  const parts = [];
  let number = first;

  const tidy = (text, most = 300) => {
    const line = (text || "").replace(/\s+/g, " ").trim();
    return line.length > most ? line.slice(0, most) + "…" : line;
  };
  // Of a label that holds its field: the words, not the options.
  const labelled = (element) =>
    [...(element.labels || [])]
      .flatMap((label) => [...label.childNodes])
      .filter((node) => node !== element && !node.contains(element))
      .map((node) => node.textContent)
      .join(" ");
  const named = (element) => {
    const by = (element.getAttribute("aria-labelledby") || "").split(/\s+/).filter(Boolean);
    const referred = by.map((id) => document.getElementById(id)?.innerText || "").join(" ");
    const picture = element.querySelector?.("img[alt], svg[aria-label]");
    const said = [element.getAttribute("aria-label"), referred, labelled(element), element.innerText];
    said.push(element.getAttribute("placeholder"), element.getAttribute("title"), element.getAttribute("alt"));
    said.push(picture?.getAttribute("alt"), picture?.getAttribute("aria-label"), element.getAttribute("name"));
    return tidy(said.find((text) => text && text.trim()));
  };
  const describe = (element) => {
    const tag = element.tagName.toLowerCase();
    const type = tag === "input" ? element.type : "";
    if (tag === "select") {
      const all = [...element.options];
      const shown = all.slice(0, 30).map((one) => (one.selected ? "*" : "") + tidy(one.label, 60));
      const more = all.length > 30 ? `, … ${all.length - 30} more` : "";
      return `select ${tidy(element.getAttribute("aria-label") || labelled(element) || element.name)}: ${shown.join(", ")}${more}`;
    }
    if (["checkbox", "radio"].includes(type)) return `${type}${element.checked ? ", on" : ", off"}: ${named(element)}`;
    if (["submit", "button", "reset", "image"].includes(type)) return `button: ${tidy(element.value) || named(element)}`;
    if (type === "password") return `password: ${named(element)}${element.value ? " = •••" : ""}`;
    if (tag === "input" || tag === "textarea") {
      return `${type || tag}: ${named(element)}${element.value ? ` = ${tidy(element.value)}` : ""}`;
    }
    if (tag === "a" || element.getAttribute("role") === "link") {
      const leads = showLinks && element.href ? ` (${tidy(element.href, 500)})` : "";
      return `link: ${named(element)}${leads}`;
    }
    return `${element.getAttribute("role") || (tag === "button" ? "button" : "item")}: ${named(element)}`;
  };
  const visible = (element) =>
    element.checkVisibility ? element.checkVisibility({ visibilityProperty: true, opacityProperty: false }) : true;
  const children = (node) => {
    if (node.tagName === "SLOT" && node.assignedNodes().length) return node.assignedNodes();
    return (node.shadowRoot || node).childNodes;
  };
  // The signs around a superscript or subscript, as superscripts.py writes them.
  const marks = (element) => {
    const text = tidy(element.textContent);
    const raised = element.tagName === "SUP";
    const follows = element.nextSibling?.textContent || "";
    const before = element.previousSibling?.textContent || "";
    const noted = element.querySelector("a[href^='#']") || element.closest("a[href^='#']") || /^\[.*\]$/.test(text);
    const plain = noted || /^([*†‡§¶°′″®©™]+|TM|SM)$/.test(text) || (/\w$/.test(before) && /^(st|nd|rd|th|er|[eè][mr]e)$/.test(text));
    if (!text || (raised && plain)) return noted && /^\w+$/.test(text) ? ["[", "]"] : ["", ""];
    const sign = raised ? "^" : "_";
    const number = /^[+\-−]?\d+(\.\d+)?$/.test(text) && !/^([.,]?\d)/.test(follows);
    const word = /^[+\-−]?\p{L}*$/u.test(text) && !/^[\p{L}\d]/u.test(follows);
    return number || word ? [sign, ""] : [`${sign}{`, "}"];
  };
  const walk = (node, preserved) => {
    if (node.nodeType === Node.TEXT_NODE) {
      // Spaces that count are kept through the tidying at the end as spaces that do not break.
      const text = preserved ? node.data.replace(/[ \t]/g, "\u00a0") : node.data.replace(/\s+/g, " ");
      if (text) parts.push(text);
      return;
    }
    if (node.nodeType !== Node.ELEMENT_NODE || SKIPPED.has(node.tagName)) return;
    const transparent = getComputedStyle(node).display === "contents" || node.tagName === "SLOT";
    if (!transparent && !visible(node)) return;
    if (node.tagName === "BR") return void parts.push("\n");
    if (node.tagName === "IMG") {
      const alt = tidy(node.alt, 200);
      if (alt) parts.push(` (image: ${alt}) `);
      return;
    }
    if (node.tagName === "svg") {
      const title = tidy(node.getAttribute("aria-label") || node.querySelector("title")?.textContent, 200);
      if (title) parts.push(` (image: ${title}) `);
      return;
    }
    if (node.matches(USABLE)) {
      node.setAttribute(ATTRIBUTE, String(number));
      const block = !getComputedStyle(node).display.startsWith("inline");
      parts.push(block ? "\n" : " ", `[${number} ${describe(node)}]`, block ? "\n" : " ");
      number += 1;
      // What has parts of its own that can be used, such as an editor, is shown with them.
      if (!node.querySelector(USABLE) && (node.innerText || "").length <= 300) return;
    }
    const display = getComputedStyle(node).display;
    const heading = /^H([1-6])$/.exec(node.tagName);
    const cell = display === "table-cell";
    const block = !cell && !display.startsWith("inline") && display !== "contents";
    if (block) parts.push("\n");
    if (heading) parts.push("#".repeat(Number(heading[1])) + " ");
    if (node.tagName === "LI") parts.push("- ");
    const [opening, closing] = ["SUP", "SUB"].includes(node.tagName) ? marks(node) : ["", ""];
    parts.push(opening);
    for (const child of children(node)) walk(child, preserved || node.tagName === "PRE");
    parts.push(closing);
    if (cell && node.nextElementSibling) parts.push(" | ");
    if (block) parts.push(heading ? "\n\n" : "\n");
  };
  for (const old of document.querySelectorAll(`[${ATTRIBUTE}]`)) old.removeAttribute(ATTRIBUTE);
  if (document.body) walk(document.body, false);
  const text = parts.join("").replace(/[ \t]+/g, " ").replace(/\] (?=[,.;:!?)])/g, "]").replace(/ ?\n ?/g, "\n").replace(/\n{3,}/g, "\n\n");
  return { text: text.replace(/\u00a0/g, " ").trim(), next: number, media: document.contentType };
}
