// Pages also work without JavaScript: pictures, tables, links and forms. With it, figures zoom and show labels, forms
// act at once, and pages follow a search. Each module has one subject. There is no build step.

import "./edit.js";
import "./figures.js";
import "./live.js";
