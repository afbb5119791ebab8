// The menu on small screens, anchors beside headings, and the search. The index is loaded with the first use of the
// search box, as a script, so that the pages also work from the disk (file://).
(function () {
  const root = document.documentElement.dataset.root;
  const menu = document.getElementById("menu"), sidebar = document.getElementById("sidebar");
  menu.addEventListener("click", () => menu.setAttribute("aria-expanded", sidebar.classList.toggle("open")));
  const here = sidebar.querySelector("[aria-current]");
  if (here) sidebar.scrollTop = Math.max(0, here.offsetTop - sidebar.clientHeight / 2);

  for (const heading of document.querySelectorAll("main h1[id], main h2[id], main h3[id]")) {
    const anchor = document.createElement("a");
    anchor.className = "anchor";
    anchor.href = "#" + heading.id;
    anchor.textContent = "#";
    anchor.setAttribute("aria-label", "Link to this section");
    heading.append(anchor);
  }

  const query = document.getElementById("query"), results = document.getElementById("results");
  let loading = null, chosen = -1;

  function loadIndex() {
    loading = loading || new Promise((done) => {
      const script = document.createElement("script");
      script.src = root + "search-index.js";
      script.onload = () => {
        for (const entry of window.searchIndex) entry.push(entry[3].toLowerCase(), entry[4].toLowerCase());
        done();
      };
      document.head.append(script);
    });
    return loading;
  }

  // An entry is [page, anchor, title, heading, text, weight, heading in lower case, text in lower case].
  function score(entry, words) {
    let sum = 0;
    for (const word of words) {
      const heading = entry[6], at = heading.indexOf(word);
      if (heading === word || heading.endsWith("::" + word)) sum += 60;
      else if (at === 0) sum += 30;
      else if (at > 0) sum += /\W/.test(heading[at - 1]) ? 20 : 10;
      else if (entry[7].includes(word)) sum += 3;
      else if (entry[2].toLowerCase().includes(word)) sum += 4;
      else return 0;
    }
    return sum + entry[5] - entry[6].length / 100;
  }

  function excerpt(entry, words) {
    const at = Math.max(0, entry[7].indexOf(words[0]) - 40);
    return (at ? "… " : "") + entry[4].slice(at, at + 130);
  }

  async function show() {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) { results.hidden = true; return; }
    await loadIndex();
    const found = window.searchIndex.map((e) => [score(e, words), e]).filter((f) => f[0] > 0)
      .sort((a, b) => b[0] - a[0]).slice(0, 20);
    results.replaceChildren(...found.map(([, entry]) => {
      const item = document.createElement("li"), link = document.createElement("a");
      link.href = root + entry[0] + "#" + entry[1];
      const name = document.createElement("b"), where = document.createElement("small");
      name.textContent = entry[3];
      where.textContent = entry[2] === entry[3] ? excerpt(entry, words) : entry[2] + " — " + excerpt(entry, words);
      link.append(name, where);
      item.append(link);
      return item;
    }));
    if (!found.length) {
      const none = document.createElement("li");
      none.className = "none";
      none.textContent = "Nothing found.";
      results.append(none);
    }
    chosen = -1;
    results.hidden = false;
  }

  query.addEventListener("focus", loadIndex);
  query.addEventListener("input", show);
  query.addEventListener("keydown", (event) => {
    const links = [...results.querySelectorAll("a")];
    if (event.key === "Escape") { results.hidden = true; query.blur(); }
    if (event.key === "Enter" && links.length) { links[Math.max(0, chosen)].click(); results.hidden = true; }
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    if (!links.length) return;
    if (chosen >= 0) links[chosen].classList.remove("chosen");
    chosen = (chosen + (event.key === "ArrowDown" ? 1 : -1) + links.length) % links.length;
    links[chosen].classList.add("chosen");
    links[chosen].scrollIntoView({ block: "nearest" });
  });
  results.addEventListener("click", () => { results.hidden = true; });
  document.addEventListener("click", (event) => { if (!event.target.closest(".search")) results.hidden = true; });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/INPUT|TEXTAREA/.test(document.activeElement.tagName)) { event.preventDefault(); query.focus(); }
  });
  // For tests and for links: a page opened with ?q=words shows their results.
  const asked = new URLSearchParams(location.search).get("q");
  if (asked) { query.value = asked; show(); }
})();
