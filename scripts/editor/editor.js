// The editor of the explorer: a text area becomes CodeMirror, with mistakes at their lines. scripts/vendor_editor bundles
// it into dashboards/static/editor.js. The text area stays in the form and holds the same text.
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

// Colours are those of the page, so the editor follows its theme.
const theme = EditorView.theme({
  "&": { margin: ".3rem 0", border: "1px solid var(--edge)", borderRadius: "6px", backgroundColor: "var(--back)", color: "var(--text)" },
  "&.cm-focused": { outline: "3px solid var(--focus)", outlineOffset: "2px" },
  ".cm-scroller": { font: ".85rem/1.5 ui-monospace, monospace", minHeight: "12rem" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--faint)", borderRight: "1px solid var(--edge)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--raised)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--grid)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--edge)" },
  ".cm-diagnostic": { maxWidth: "34rem", whiteSpace: "pre-wrap" },
});
const words = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--link)" },
  { tag: [tags.typeName, tags.tagName, tags.keyword], color: "var(--c3)" },
  { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
]);

// Returns a function that shows mistakes: [{line: 3, message: "..."}]; a mistake without a line stands at the first.
window.tesseraEditor = function (area) {
  const most = area.maxLength > 0 ? area.maxLength : Infinity;
  const view = new EditorView({
    parent: area.parentElement,
    state: EditorState.create({
      doc: area.value,
      extensions: [
        lineNumbers(), history(), drawSelection(), indentOnInput(), bracketMatching(), highlightActiveLine(), lintGutter(),
        yaml(), syntaxHighlighting(words), theme, keymap.of([...defaultKeymap, ...historyKeymap]),
        EditorView.contentAttributes.of({ "aria-label": area.labels[0]?.textContent ?? "", "aria-describedby": "problems", tabindex: "0" }),
        EditorState.changeFilter.of(change => change.newDoc.length <= most || change.newDoc.length < change.startState.doc.length),
        EditorView.updateListener.of(update => {
          if (!update.docChanged) return;
          area.value = update.state.doc.toString();
          area.dispatchEvent(new Event("input", { bubbles: true }));
        }),
      ],
    }),
  });
  area.after(view.dom);
  view.scrollDOM.style.height = `${area.offsetHeight}px`;  // the page does not jump
  area.hidden = true;
  return problems => {
    const found = problems.map(({ line, message }) => {
      const { from, to } = view.state.doc.line(Math.min(Math.max(line || 1, 1), view.state.doc.lines));
      return { from, to, severity: "error", message };
    });
    view.dispatch(setDiagnostics(view.state, found));
  };
};
