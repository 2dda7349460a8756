// Keeps a view up to date: follows the stream that its document names, and replaces the parts of the view
// that change by those of the same address, loaded again. What is measured is loaded again after a while.
// Without this script every view is complete; it is as old as its revision says.
"use strict";
(() => {
  const PARTS = ["live", "source"];
  const PAUSE_MS = 100; // between two loads, at least
  const PAUSE_FACTOR = 4; // and as many times as long as the last one took
  const AGAIN_MS = 5000; // until a stream that is refused or lost is tried again
  const SILENCE_MS = 20000; // a stream that is alive sends something more often

  const follow = document.getElementById("follow");
  const events = document.body.dataset.events;
  if (!follow) return;

  let stream = null;
  let heard = 0;
  let again = 0;
  let isLoading = false;
  let isStale = false;
  let measured = 0;

  function say(text, tone) {
    if (follow.textContent !== text) follow.textContent = text;
    follow.className = tone;
  }

  function replace(loaded) {
    for (const id of PARTS) {
      const old = document.getElementById(id);
      const fresh = loaded.getElementById(id);
      if (!old || !fresh || old.innerHTML === fresh.innerHTML) continue;
      const opened = new Set();
      old.querySelectorAll("details").forEach((d, at) => d.open && opened.add(at));
      const focused = old.contains(document.activeElement) ? document.activeElement : null;
      const path = focused && focused.getAttribute("href");
      const scrolled = Array.from(old.querySelectorAll(".scroll"), (s) => s.scrollLeft);
      old.className = fresh.className;
      old.replaceChildren(...fresh.childNodes);
      old.querySelectorAll("details").forEach((d, at) => (d.open = opened.has(at)));
      old.querySelectorAll(".scroll").forEach((s, at) => (s.scrollLeft = scrolled[at] || 0));
      if (path) {
        const same = old.querySelector(`a[href="${CSS.escape(path)}"]`);
        if (same) same.focus({ preventScroll: true });
      }
    }
  }

  // A view with something measured, as the progress of a transfer, says after how long it is due again.
  function measure() {
    const due = document.querySelector("#live [data-again]");
    clearTimeout(measured);
    if (due) measured = setTimeout(load, Number(due.dataset.again));
  }

  async function load() {
    if (isLoading) {
      isStale = true;
      return;
    }
    isLoading = true;
    const begun = performance.now();
    try {
      const response = await fetch(location.href, { redirect: "error", cache: "no-store" });
      if (!response.ok) throw new Error(`status ${response.status}`);
      replace(new DOMParser().parseFromString(await response.text(), "text/html"));
    } catch (error) {
      say("This view could not be loaded again: what is shown may be outdated.", "bad");
    }
    const took = performance.now() - begun;
    setTimeout(() => {
      isLoading = false;
      if (isStale) {
        isStale = false;
        load();
      } else {
        measure();
      }
    }, Math.max(PAUSE_MS, took * PAUSE_FACTOR));
  }

  function revision() {
    const shown = document.getElementById("revision");
    return shown ? shown.textContent : "0";
  }

  function lost(text) {
    if (stream) stream.close();
    stream = null;
    say(text, "bad");
    // What the member has may be served without its leader.
    load();
    clearTimeout(again);
    again = setTimeout(open, AGAIN_MS);
  }

  function open() {
    const address = events.replace(/after=\d+$/, `after=${revision()}`);
    stream = new EventSource(address);
    heard = performance.now();
    const hear = () => (heard = performance.now());
    stream.addEventListener("open", () => {
      hear();
      say("Changes are shown as they happen.", "good");
    });
    stream.addEventListener("alive", hear);
    stream.addEventListener("change", () => {
      hear();
      load();
    });
    stream.addEventListener("end", (event) => lost(`No changes are followed: ${event.data}`));
    stream.addEventListener("error", () => {
      lost("No changes are followed: the stream was refused or lost. It is tried again.");
    });
  }

  measure();
  if (!events) return;
  setInterval(() => {
    if (stream && performance.now() - heard > SILENCE_MS) {
      lost("No changes are followed: the member sends nothing any more. It is tried again.");
    }
  }, 1000);
  open();
})();
