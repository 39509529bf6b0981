// Shared by both pages: elements, the stream of states, and commands. Nothing here makes HTML from text.
"use strict";

const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Rebuild an element's content if the value that it is made from has changed.
const made = new WeakMap();
function renew(element, value, build) {
  const key = JSON.stringify(value);
  if (made.get(element) === key) return;
  made.set(element, key);
  element.replaceChildren(...build(value));
}

function say(sentence, refused) {
  const message = byId("message");
  message.classList.toggle("refused", refused);
  message.textContent = "";
  message.textContent = (refused ? "Refused: " : "") + sentence;
}

async function act(command) {
  try {
    const answer = await fetch("act", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(command),
    });
    const document = await answer.json();
    if (!answer.ok) say(document.sentence, true);
    return document;
  } catch {
    say("markerjit does not answer", true);
    return {};
  }
}

// The browser restores a lost connection by itself.
function connect(show) {
  const source = new EventSource("state");
  const link = byId("link");
  source.onopen = () => setText(link, "live");
  source.onerror = () => setText(link,
    source.readyState === EventSource.CLOSED ? "this address is served no more" : "connection lost, trying again");
  source.onmessage = (event) => {
    const state = JSON.parse(event.data);
    show(state);
    if (!state.ended) return;
    source.close();
    setText(link, "ended");
    say(state.ended, false);
    for (const control of document.querySelectorAll("button, select, input")) control.disabled = true;
  };
}

// A line of bytes as cells, with the assembly after them. `data` is [{value, lit}].
function instruction(address, data, assembly) {
  const cells = data.map(({ value, lit }) =>
    make(lit ? "mark" : "span", { class: "byte mono" }, value.toString(16).padStart(2, "0")));
  return make("li", { class: "instruction" },
    make("span", { class: "mono faint" }, address.toString(16)),
    make("span", { class: "bytes" }, ...cells.flatMap((cell) => [cell, " "])),
    make("code", {}, assembly));
}
