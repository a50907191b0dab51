/* What the theme leaves out: blocks that scroll can be reached by keyboard, captions have a level. */
for (const block of document.querySelectorAll(".highlight pre, .table-wrapper")) block.tabIndex = 0;
for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.ariaLevel = "2";
