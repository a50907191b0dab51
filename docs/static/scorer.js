/* The order of search results: questions and guides before reference, tables and lists of options. */
var Scorer = {
  score: ([docname, , , , score]) => {
    if (docname === "faq") return score + 2;
    return /^(reference|tables)\/|^(benchmarks|changelog|commands|differences)$/.test(docname) ? score - 2 : score;
  },
  // What follows is as Sphinx has it.
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
