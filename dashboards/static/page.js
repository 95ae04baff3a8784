// Without this file pages are complete: pictures, tables, links and forms. With it figures can be zoomed, brushed and
// clicked, forms act at once, and pages update while a search runs. Each module has one idea and none needs a build.

import "./chosen.js";
import "./edit.js";
import { drawAll } from "./plots.js";
import { watch } from "./stream.js";
import "./visit.js";

drawAll(document);
watch();
