/* What the theme leaves out: blocks that scroll can be reached by keyboard, captions have a level. */
const wide = '.highlight pre, .table-wrapper, p:has(> img[src$=".svg"])';
for (const block of document.querySelectorAll(wide)) block.tabIndex = 0;
const asides = { "sidebar-drawer": "Pages", "toc-drawer": "On this page" };
for (const [name, label] of Object.entries(asides))
  for (const aside of document.querySelectorAll(`aside.${name}`)) aside.ariaLabel = label;
for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.ariaLevel = "2";
