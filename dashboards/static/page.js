// Pages also work without JavaScript: pictures, tables, links and forms. With it, figures can be zoomed, brushed and
// clicked, forms act at once, and pages update during a search. Each module has one subject. There is no build step.

import "./chosen.js";
import "./edit.js";
import { drawAll } from "./plots.js";
import { watch } from "./stream.js";
import "./visit.js";

drawAll(document);
watch();
