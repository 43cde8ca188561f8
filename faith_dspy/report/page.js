// Everything in `data` comes from records and LMs. It reaches the page as text nodes only: see el().
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const VERDICTS = data.verdicts; // the worst first: [mark, words]
  const OUTCOMES = {
    faithful: ["✓", "Faithful"],
    unfaithful: ["✗", "Not faithful"],
    unscored: ["–", "Unscored"],
  };
  const WORST_FIRST = Object.keys(VERDICTS);
  const $ = (id) => document.getElementById(id);
  const el = (tag, attributes, ...children) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) if (value != null) node.setAttribute(key, value);
    node.append(...children.filter((c) => c != null && c !== false));
    return node;
  };
  const text = (tag, name, value) => el(tag, { class: name, dir: "auto" }, value);
  const mark = (symbol) => el("span", { class: "mark", "aria-hidden": "true", dir: "ltr" }, symbol);
  const number = (n) => n.toLocaleString("en");
  const percent = (share) => `${Math.round(100 * share)} %`;
  const words = (reason) => reason.replaceAll("_", " ").replace(/^lm\b/, "LM");
  const outcome = (i) => (i.unscored ? "unscored" : i.faithful ? "faithful" : "unfaithful");
  const PAGE = 200; // answers
  const labelled = (i) => typeof i.people === "boolean" && !i.unscored;
  const miscites = (x) => x.cited_chunk_ids.length > 0 && x.citations_support === false;
  const wrongCitation = () => el("span", { class: "mark miscites", title: "what it cites does not support it" }, "\u2060≠");
  const KINDS = { // of answers to be shown alone, by the word in the list
    disagree: (i) => labelled(i) && i.people !== i.faithful,
    miscited: (i) => i.citations && i.statements.some(miscites),
  };

  // The summary
  const count = (names) => {
    const counts = new Map();
    for (const name of names) counts.set(name, (counts.get(name) || 0) + 1);
    return counts;
  };
  const n = data.items.length;
  const scored = data.items.filter((i) => !i.unscored);
  const faithful = scored.filter((i) => i.faithful).length;
  const unscored = [...count(data.items.flatMap((i) => i.unscored || []))].sort((a, b) => b[1] - a[1]);
  const byVerdict = count(data.items.flatMap((i) => i.statements.map((x) => x.display)));
  const isDefault = (i) => i.fitted_to === "default";
  const allDefault = data.items.some(isDefault) && data.items.every((i) => i.unscored || isDefault(i));
  if (allDefault) document.querySelector("h1").after(el("p", { class: "soft" }, "By a default judge, not fitted to your labels."));
  const tile = (figure, line, name = "") => el("div", { class: `tile ${name}` }, el("b", {}, figure), el("p", {}, line));
  const reasons = unscored.map(([reason, n]) => `${n}\u00a0${words(reason)}`);
  const people = data.items.filter(labelled);
  const agree = people.filter((i) => !KINDS.disagree(i)).length;
  const isSelection = document.querySelector(".tables section"); // of disagreements: their shares say nothing
  if (!isSelection) $("summary").append(
    tile(number(n), data.total > n ? `first answers of ${number(data.total)}` : n === 1 ? "answer" : "answers"),
    tile(scored.length ? percent(faithful / scored.length) : "–", `faithful: ${faithful} of ${scored.length} scored`),
    tile(n ? percent(scored.length / n) : "–", "coverage" + (reasons.length ? `; not scored: ${reasons.join(", ")}` : "")),
  );
  if (people.length && !isSelection) {
    $("summary").append(tile(percent(agree / people.length), `agrees with the labels on ${agree} of ${people.length}`));
  }
  const counts = Object.keys(VERDICTS).reverse().filter((v) => byVerdict.has(v)).map((v) => [v, byVerdict.get(v)]);
  if (counts.length && !isSelection) {
    const bar = el("div", { class: "bar", "aria-hidden": "true" });
    const legend = el("ul", { class: "legend", "aria-label": "Statements by verdict" });
    for (const [verdict, n] of counts) {
      const [symbol, name] = VERDICTS[verdict];
      const piece = el("i", { class: verdict });
      piece.style.flexGrow = n;
      bar.append(piece);
      legend.append(el("li", { class: verdict }, mark(symbol), `${name} ${n}`));
    }
    const total = counts.reduce((sum, [, n]) => sum + n, 0);
    const line = el("p", {}, `${total} ${total === 1 ? "statement" : "statements"}`);
    $("summary").append(el("div", { class: "tile wide" }, line, bar, legend));
  }

  // One answer
  const cards = new Map(); // item → article
  const states = new WeakMap(); // article → what can be pointed at in it
  let names = 0;

  const decides = (item) => item.probability ?? item.score;
  const finding = (item) => {
    const kind = outcome(item);
    const [symbol, name] = OUTCOMES[kind];
    const label = item.unscored ? `${name}: ${words(item.unscored)}` : name;
    const line = el("div", { class: `finding ${kind}` }, el("span", { class: "badge" }, mark(symbol), label));
    if (item.decided_by) {
      const figure = el("span", {}, item.decided_by);
      if (item.threshold != null) {
        const value = el("i"), pass = el("u");
        value.style.width = `${100 * decides(item)}%`;
        pass.style.left = `${100 * item.threshold}%`;
        figure.append(el("span", { class: "meter", "aria-hidden": "true" }, value, pass));
      }
      line.append(figure);
    }
    if (isDefault(item) && !allDefault) line.append(el("span", {}, "not fitted to your labels"));
    if (typeof item.people === "boolean") {
      const said = OUTCOMES[item.people ? "faithful" : "unfaithful"][1].toLowerCase();
      line.append(el("span", { class: KINDS.disagree(item) ? "differs" : null }, "label: ", el("b", {}, said)));
    }
    line.append(text("span", "id", item.id == null ? `#${item.number}` : `#${item.number} · ${item.id}`));
    return line;
  };

  const statement = (item, index, written) => {
    const found = item.statements[index];
    const [symbol, name] = VERDICTS[found.display];
    const line = el("div", { class: "finding" }, el("span", { class: "badge" }, mark(symbol), name));
    const chips = (label, ids, wrong = []) => ids.length && line.append(el("span", { class: "chips" }, label, ...ids.map((id) => {
      const [name, fault] = wrong.includes(id) ? ["chip wrong", ", which does not support it"] : ["chip", ""];
      const chip = el("button", { class: name, type: "button", "aria-label": `Go to chunk ${id}${fault}` }, `[${id}]`);
      return item.chunks.length ? chip : `[${id}]`;
    })));
    const supporting = found.supporting_chunk_ids;
    if (supporting.length) chips("evidence ", supporting);
    else chips("closest ", item.chunks.length > 1 ? found.closest_chunk_ids : []);
    if (item.citations) {
      const cited = found.cited_chunk_ids;
      const overlap = supporting.some((id) => cited.includes(id)); // without one a verdict on what is cited decided
      const unchecked = cited.length && found.citations_support === null;
      const right = unchecked || (found.citations_support && !overlap) ? cited : supporting;
      chips("cites ", cited, cited.filter((id) => !right.includes(id)));
      const verdict = unchecked ? "was not checked" : "does not support it";
      const fault = cited.length ? `what it cites ${verdict}` : "cites no chunk of the context";
      if (!found.citations_support) line.append(el("span", { class: "fault" }, fault));
    }
    return el("li", { class: `statement ${found.display}` }, line,
      found.text.trim() !== written && text("p", "text", found.text),
      found.grounds && text("p", "reason", found.grounds),
      ...found.quotes.map((quote) => text("blockquote", "", quote)));
  };

  const card = (item) => {
    const name = `n${++names}`;
    const article = el("article", { class: `card${item.unscored ? " none" : ""}`, "aria-labelledby": name });
    const heading = el("h2", { id: name, dir: "auto" }, item.question || `Answer ${item.number}`);
    const notes = [item.detail, ...item.notes].filter(Boolean).map((note) => text("p", "note", note));
    article.append(el("header", {}, finding(item), heading, ...notes));
    const panel = el("ul", { class: "panel", id: `${name}p` });
    const answer = el("div", { class: "answer", dir: "auto" });
    const sentences = [];
    for (const [piece, verdict, statements] of item.parts) {
      if (!verdict) { answer.append(piece); continue; }
      const span = el("span", { class: `s ${verdict}`, role: "button", tabindex: "-1", "aria-pressed": "false" },
        el("span", { class: "sr", dir: "ltr" }, `${VERDICTS[verdict][1]}: `), piece,
        verdict !== "fully_supported" && mark("\u2060" + VERDICTS[verdict][0]), // joined: never alone on a line
        verdict === "fully_supported" && statements.some((i) => miscites(item.statements[i])) && wrongCitation());
      sentences.push({ span, verdict, statements, written: piece.trim() });
      answer.append(span);
    }
    const box = el("ol", { class: "chunks", tabindex: "0", "aria-label": `Context, ${item.chunks.length} chunks` });
    const chunks = new Map();
    const marks = [];
    for (const chunk of item.chunks) {
      const passage = el("p", { class: "words", dir: "auto" });
      for (const [piece, quoted] of chunk.parts) {
        const node = quoted ? el("mark", {}, piece) : piece;
        if (quoted) marks.push([node, quoted]);
        passage.append(node);
      }
      const where = el("p", { class: "where" }, el("b", {}, `[${chunk.id}]`), chunk.source && text("span", "", chunk.source),
        el("span", { class: "cited" }, "cited"), el("span", { class: "is" }, "◂ evidence"), el("span", { class: "closest" }, "◂ closest"));
      const row = el("li", { class: "chunk", tabindex: "-1" }, where, passage);
      chunks.set(chunk.id, row);
      box.append(row);
    }
    const left = el("section", {}, el("h3", {}, "Answer"), answer, sentences.length > 0 && panel);
    const right = el("section", { class: "context" }, el("h3", {}, "Context"),
      item.chunks.length ? box : el("p", { class: "note" }, item.bare ? "The texts were not given to this page." : "There is no context."));
    if (item.parts.length || item.chunks.length) article.append(el("div", { class: "body" }, left, right));
    article.classList.toggle("long", answer.textContent.length > 900);
    const state = { item, article, sentences, panel, box, chunks, marks, active: null, held: false };
    states.set(article, state);
    const worst = WORST_FIRST.map((v) => sentences.find((x) => x.verdict === v)).find(Boolean);
    if (worst) { point(state, worst); worst.span.tabIndex = 0; }
    return article;
  };

  const point = (state, sentence) => {
    if (state.active === sentence) return;
    if (state.active) {
      state.panel.style.minHeight = `${state.panel.offsetHeight}px`; // what is below does not jump
      state.active.span.classList.remove("on");
      state.active.span.removeAttribute("aria-describedby");
    }
    state.active = sentence;
    sentence.span.classList.add("on");
    sentence.span.setAttribute("aria-describedby", state.panel.id);
    state.panel.replaceChildren(...sentence.statements.map((i) => statement(state.item, i, sentence.written)));
    const chunksOf = (name) => new Set(sentence.statements.flatMap((i) => state.item.statements[i][name]));
    const supporting = chunksOf("supporting_chunk_ids"), cited = chunksOf("cited_chunk_ids");
    const closest = chunksOf("closest_chunk_ids").values().next().value; // where to look
    for (const [id, row] of state.chunks) {
      row.classList.toggle("lit", supporting.has(id));
      row.classList.toggle("near", !supporting.size && id === closest);
      row.classList.toggle("by", cited.has(id));
    }
    for (const [node, quoted] of state.marks) node.classList.toggle("on", quoted.some((i) => sentence.statements.includes(i)));
    if (state.article.isConnected) showEvidence(state);
  };
  const showEvidence = ({ box, active }) => {
    const lit = active && (box.querySelector("mark.on") || box.querySelector(".lit, .near"));
    if (!lit || box.scrollHeight <= box.clientHeight) return;
    const shift = lit.getBoundingClientRect().top - box.getBoundingClientRect().top;
    if (shift < 0 || shift > box.clientHeight - 60) box.scrollTop += shift - 40;
  };
  const hold = (state, yes) => {
    state.held = yes;
    for (const { span } of state.sentences) span.setAttribute("aria-pressed", String(yes && span === state.active.span));
  };
  const at = (target) => {
    const article = target.closest && target.closest(".card");
    const state = article && states.get(article);
    const span = target.closest && target.closest(".s");
    return [state, state && span && state.sentences.find((x) => x.span === span)];
  };
  const stop = (state, sentence) => { // one tab stop an answer
    for (const { span } of state.sentences) span.tabIndex = span === sentence.span ? 0 : -1;
  };

  const list = $("answers");
  list.addEventListener("pointerover", (event) => {
    const [state, sentence] = at(event.target);
    if (sentence && !state.held) point(state, sentence);
  });
  list.addEventListener("focusin", (event) => {
    const [state, sentence] = at(event.target);
    if (!sentence) return;
    if (state.active !== sentence) { hold(state, false); point(state, sentence); }
    stop(state, sentence);
  });
  list.addEventListener("click", (event) => {
    const [state, sentence] = at(event.target);
    if (sentence) { point(state, sentence); hold(state, !state.held); }
    const chip = event.target.closest(".chip");
    if (!chip) return;
    const row = state.chunks.get(Number(chip.textContent.slice(1, -1)));
    if (row) { row.focus({ preventScroll: true }); row.scrollIntoView({ block: "nearest" }); }
  });
  list.addEventListener("keydown", (event) => {
    const [state, sentence] = at(event.target);
    if (!state || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape" && state.active) { hold(state, false); state.active.span.focus(); return; }
    if (!sentence) return;
    const here = state.sentences.indexOf(sentence);
    const rtl = getComputedStyle(sentence.span.parentNode).direction === "rtl";
    const step = { ArrowRight: rtl ? -1 : 1, ArrowLeft: rtl ? 1 : -1 }[event.key];
    if (step) (state.sentences[here + step] || sentence).span.focus();
    else if (event.key === "Home") state.sentences[0].span.focus();
    else if (event.key === "End") state.sentences.at(-1).span.focus();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const next = event.key === "ArrowDown" ? "nextElementSibling" : "previousElementSibling";
      let other = state.article[next];
      while (other && !other.querySelector(".s")) other = other[next];
      if (other) { other.scrollIntoView({ block: "nearest" }); other.querySelector(".s[tabindex='0']").focus(); }
    } else if (event.key === "Enter" || event.key === " ") hold(state, !state.held);
    else return;
    event.preventDefault();
  });

  // Filters. The first answers are drawn at once, the others while the page is already there to be read.
  let shown = [], page = 0, drawn = 0, timer = 0;
  list.addEventListener("contentvisibilityautostatechange", (event) => { // a card comes into sight
    if (!event.skipped && states.has(event.target)) showEvidence(states.get(event.target));
  });
  const last = () => Math.min(shown.length, (page + 1) * PAGE);
  const draw = (count) => {
    const end = Math.min(last(), drawn + count);
    const some = document.createDocumentFragment();
    for (; drawn < end; drawn++) {
      const item = shown[drawn];
      if (!cards.has(item)) cards.set(item, card(item));
      some.append(cards.get(item));
    }
    list.append(some);
  };
  const goOn = () => {
    if (drawn === last()) return;
    timer = setTimeout(() => {
      const end = performance.now() + 60;
      do draw(25); while (drawn < last() && performance.now() < end);
      goOn();
    }, 0);
  };
  const haystack = (i) => (i.haystack ??= [i.id, i.question, i.detail, i.parts.map((p) => p[0]).join(""),
    ...i.statements.flatMap((x) => [x.text, x.grounds, ...x.quotes]),
    ...i.chunks.flatMap((c) => [c.source, c.parts.map((p) => p[0]).join("")])].join("\n").toLowerCase());
  const by = (sign) => (a, b) => // what has no figure comes last
    (decides(a) == null) - (decides(b) == null) || sign * (decides(a) - decides(b)) || a.number - b.number;
  const ORDERS = { up: by(1), down: by(-1) };
  const turnTo = (to) => {
    clearTimeout(timer);
    page = to;
    drawn = page * PAGE;
    list.replaceChildren();
    draw(12);
    $("pages").hidden = shown.length <= PAGE;
    $("earlier").disabled = page === 0;
    $("later").disabled = last() === shown.length;
    $("where").textContent = `${number(page * PAGE + 1)}–${number(last())} of ${number(shown.length)}`;
    goOn();
  };
  const update = () => {
    const query = $("search").value.trim().toLowerCase();
    const [kind, reason] = $("outcome").value.split(":");
    const wanted = [...$("verdicts").querySelectorAll(":checked")].map((x) => x.value);
    const fits = KINDS[kind] || ((i) => !kind || outcome(i) === kind);
    shown = data.items.filter((i) => fits(i) && (!reason || i.unscored === reason)
      && (!wanted.length || i.statements.some((x) => wanted.includes(x.display))) && (!query || haystack(i).includes(query)));
    const order = ORDERS[$("sort").value];
    if (order) shown.sort(order);
    turnTo(0);
    if (!shown.length) list.append(el("p", { class: "empty" }, data.items.length ? "No answer matches." : "There are no answers."));
    $("count").textContent = shown.length === n ? `${n} shown` : `${shown.length} of ${n} shown`;
  };
  for (const [name, step] of [["earlier", -1], ["later", 1]]) {
    $(name).addEventListener("click", () => {
      turnTo(page + step);
      list.scrollIntoView();
      list.focus({ preventScroll: true });
    });
  }
  data.items.forEach((item, i) => { item.number = i + 1; });
  const choice = (value, label, n) => n && $("outcome").append(el("option", { value }, `${label} (${n})`));
  choice("", "all", n || "0");
  for (const [kind, [, name]] of Object.entries(OUTCOMES)) choice(kind, name.toLowerCase(), data.items.filter((i) => outcome(i) === kind).length);
  choice("disagree", "label differs", people.filter(KINDS.disagree).length);
  choice("miscited", "citations that do not support", data.items.filter(KINDS.miscited).length);
  for (const [reason, n] of unscored) choice(`unscored:${reason}`, `unscored: ${words(reason)}`, n);
  for (const [verdict] of counts) {
    const [symbol, name] = VERDICTS[verdict];
    $("verdicts").append(el("label", { class: `toggle ${verdict}` }, el("input", { type: "checkbox", value: verdict }),
      el("span", {}, mark(symbol), el("em", {}, name))));
  }
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("filters").addEventListener("change", update);
  let typing = 0;
  $("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(update, 150); });
  addEventListener("beforeprint", () => { // on paper nothing can be pointed at: all statements are listed
    draw(Infinity);
    for (const article of list.querySelectorAll(".card")) {
      const { item } = states.get(article);
      if (item.statements.length) article.querySelector(".answer")?.after(el("ol", { class: "all" }, ...item.statements.map((_, i) => statement(item, i))));
    }
  });
  addEventListener("afterprint", () => list.querySelectorAll(".all").forEach((x) => x.remove()));
  update();
})();
