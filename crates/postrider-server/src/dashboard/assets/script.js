// What only a script can do: keep a page up to date, count down, copy. Everything else works without it.
"use strict";

(() => {
  const root = document.documentElement;

  // --- Time, by the server's clock -----------------------------------------------------------------------------------

  const ahead = Number(root.dataset.now) - Date.now();
  const now = () => Date.now() + ahead;

  const about = (milliseconds) => {
    const seconds = Math.floor(Math.abs(milliseconds) / 1000);
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} d`;
  };

  const until = (milliseconds) => {
    const seconds = Math.ceil(milliseconds / 1000);
    if (seconds <= 0) return "now";
    if (seconds < 3600) {
      const rest = String(seconds % 60).padStart(2, "0");
      return seconds < 60 ? `in ${seconds} s` : `in ${Math.floor(seconds / 60)}:${rest} min`;
    }
    return `in ${about(milliseconds)}`;
  };

  const write = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };

  const tick = () => {
    for (const element of document.querySelectorAll("time[data-relative]")) {
      const span = Date.parse(element.dateTime) - now();
      if (Math.abs(span) < 1000) write(element, "now");
      else write(element, span > 0 ? `in ${about(span)}` : `${about(span)} ago`);
    }
    for (const element of document.querySelectorAll("time[data-countdown]")) {
      write(element, until(Date.parse(element.dateTime) - now()));
    }
  };

  // --- Copying -------------------------------------------------------------------------------------------------------

  const copy = async (text) => {
    if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
    // Over plain http there is only the old way.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "visually-hidden";
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const label = button.querySelector(".visually-hidden");
    try {
      await copy(button.dataset.copy);
      button.dataset.copied = "";
      label.textContent = "Copied";
    } catch {
      label.textContent = "Could not copy";
    }
    button.focus();
    setTimeout(() => {
      delete button.dataset.copied;
      label.textContent = "Copy";
    }, 1500);
  });

  // --- Choosing rows, closing panels ---------------------------------------------------------------------------------

  document.addEventListener("change", (event) => {
    const form = event.target.dataset.chooseAll;
    if (!form) return;
    for (const box of document.querySelectorAll(`input[name="id"][form="${form}"]`)) box.checked = event.target.checked;
  });

  const panels = "details.considered[open]:not(.wide)";

  document.addEventListener("click", (event) => {
    for (const panel of document.querySelectorAll(panels)) {
      if (!panel.contains(event.target)) panel.open = false;
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const panel of document.querySelectorAll(panels)) {
      const within = panel.contains(document.activeElement);
      panel.open = false;
      if (within) panel.querySelector("summary").focus();
    }
  });

  // --- Keeping up to date --------------------------------------------------------------------------------------------

  const enhance = () => {
    for (const element of document.querySelectorAll("button[data-copy][hidden], .choose-all[hidden]")) element.hidden = false;
    tick();
  };

  // Rows that move away under somebody who aims at one of them would be worse than rows that are a few seconds old.
  const AIMING = 3000;
  let movedAt = -AIMING;
  document.addEventListener("pointermove", (event) => {
    if (event.pointerType === "mouse" && (event.movementX || event.movementY)) movedAt = performance.now();
  }, { passive: true });

  // A part is left alone while somebody uses it: types, has opened or chosen something, marks text, aims at a row, or is about
  // to press a button in it.
  const inUse = (part) => {
    if (part.matches(":hover")) {
      if (part.querySelector("button:not(.copy), input, summary.button")) return true;
      if (part.querySelector("table.rows") && performance.now() - movedAt < AIMING) return true;
    }
    const selection = document.getSelection();
    const marked = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    return marked || part.contains(document.activeElement) || part.querySelector("details[open].considered, input:checked");
  };

  const replace = (part, fresh) => {
    const opened = [...part.querySelectorAll("details")].map((details) => details.open);
    const copy = document.importNode(fresh, true);
    const details = [...copy.querySelectorAll("details")];
    if (details.length === opened.length) details.forEach((one, at) => { one.open = opened[at]; });
    part.replaceChildren(...copy.childNodes);
  };

  let asking = false;

  const refresh = async () => {
    if (asking || document.hidden) return;
    asking = true;
    try {
      const answer = await fetch(location.href, { headers: { "postrider-again": "1" }, credentials: "same-origin" });
      if (answer.redirected) return location.reload();
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const fresh = page.getElementById(part.id);
        if (fresh && !inUse(part) && fresh.innerHTML !== part.dataset.shown) {
          replace(part, fresh);
          part.dataset.shown = fresh.innerHTML;
        }
      }
      enhance();
    } catch {
      // The stream says when the server is back.
    } finally {
      asking = false;
    }
  };

  const live = () => {
    const sign = document.getElementById("live");
    if (!sign || !document.querySelector("[data-live]")) return;
    const say = (state, words) => {
      sign.dataset.state = state;
      write(sign.querySelector("[data-live-state]"), words);
    };
    sign.hidden = false;
    let source = null;
    let polling = null;

    const stop = () => {
      if (source) source.close();
      clearInterval(polling);
      source = polling = null;
    };

    const start = () => {
      stop();
      source = new EventSource("/live");
      source.addEventListener("open", () => say("live", "Live"));
      source.addEventListener("beat", () => {
        sign.dataset.beat = "";
        setTimeout(() => { delete sign.dataset.beat; }, 700);
        refresh();
      });
      source.addEventListener("error", () => {
        // A browser connects again by itself, unless it was refused: then it is asked now and then.
        if (source && source.readyState === EventSource.CLOSED && !polling) {
          say("away", "Every 10 s");
          polling = setInterval(refresh, 10000);
        } else if (!polling) {
          say("away", "Reconnecting");
        }
      });
    };

    // Browsers allow few connections to one server: pages that nobody sees leave theirs to others.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        stop();
        say("away", "Paused");
      } else {
        start();
        refresh();
      }
    });
    window.addEventListener("pagehide", stop);
    if (!document.hidden) start();
  };

  // --- Going on by itself --------------------------------------------------------------------------------------------

  const goOn = () => {
    const form = document.querySelector("form[data-continue]");
    if (form) setTimeout(() => form.requestSubmit(), 600);
  };

  // On a narrow screen the names of the parts move sideways: the one where somebody is should be in sight.
  const current = document.querySelector(".side nav [aria-current]");
  const names = current && current.closest("nav");
  if (names) names.scrollLeft = current.offsetLeft - (names.clientWidth - current.offsetWidth) / 2;

  enhance();
  setInterval(tick, 1000);
  live();
  goOn();
})();
