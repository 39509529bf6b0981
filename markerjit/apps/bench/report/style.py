"""The looks of the report, on a screen, and on paper in colour or grey."""

from __future__ import annotations

CSS = """
:root { --ink: #1b1b1b; --dim: #5f6368; --rule: #dcdcd6; --hot: #D55E00; }
* { box-sizing: border-box; }
html { background: #fff; color: var(--ink); }
body { max-width: 70rem; margin: 0 auto; padding: 3rem 2rem 5rem;
  font: 1rem/1.55 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
h1 { font-size: 2.3rem; line-height: 1.15; letter-spacing: -.02em; margin: 0 0 1rem; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 3.2rem 0 .7rem; break-after: avoid; }
h3 { font-size: 1rem; margin: 1.8rem 0 .4rem; break-after: avoid; }
p, li { max-width: 50rem; }
.lede { font-size: 1.15rem; line-height: 1.6; }
ul { padding-left: 1.1rem; margin: 0; }
ul li { margin: .45rem 0; }
small { font-size: .8em; color: var(--dim); }
.dim, tr.dim th { color: var(--dim); }
.noise { border-left: 4px solid var(--hot); padding: .3rem .8rem; font-weight: 600; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr));
  gap: .7rem 1.5rem; margin: 0; border-top: 1px solid var(--rule); padding-top: .9rem; }
dl .wide { grid-column: 1 / -1; }
dt { font-size: .8rem; color: var(--dim); }
dd { margin: 0; overflow-wrap: anywhere; font-size: .95rem; }
figure { margin: 0; break-inside: avoid; }
figcaption { font-size: .85rem; line-height: 1.5; color: var(--dim); max-width: 54rem;
  margin-top: .6rem; }
svg { display: block; width: 100%; height: auto; overflow: visible;
  font-family: system-ui, sans-serif; font-variant-numeric: tabular-nums; }
svg text { fill: var(--ink); font-size: 14px; }
svg .small, svg .tick { font-size: 13px; fill: var(--dim); }
svg .tiny { font-size: 11px; fill: var(--dim); }
svg .name { font-weight: 600; }
svg .heading { font-size: 12px; letter-spacing: .08em; text-transform: uppercase;
  fill: var(--dim); }
svg .figure.dim { fill: var(--dim); }
svg path { fill: none; }
svg .grid { stroke: #e8e8e4; }
svg .rule { stroke: #f0f0ec; }
svg .zero { stroke: #333; stroke-width: 1.2; }
svg .floor { fill: #000; opacity: .09; }
svg .dots { stroke-width: 2.5; stroke-linecap: round; opacity: .5; }
svg .halo { stroke: #fff; stroke-width: 6; opacity: .85; }
svg .interval { stroke: #111; stroke-width: 2.4; }
svg .mark { stroke-width: 1.6; }
svg .line { stroke-width: 2.2; stroke-linejoin: round; }
svg .band { opacity: .11; }
svg .leader { stroke-width: 1; opacity: .6; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
.figures { margin-top: 1.6rem; }
caption { text-align: left; font-size: .85rem; color: var(--dim); padding-bottom: .5rem; }
th, td { padding: .28rem .6rem; border-bottom: 1px solid var(--rule); text-align: left;
  vertical-align: baseline; }
th { font-weight: 600; }
th:first-child { padding-left: 0; }
thead th { font-size: .8rem; color: var(--dim); border-bottom-color: #777; }
tr { break-inside: avoid; }
.figures td, .figures thead th:not(:first-child) { text-align: right; }
.figures td small { display: block; line-height: 1.2; }
.verdicts td:nth-child(2) { white-space: nowrap; }
.verdicts .title th { padding-top: 1.4rem; border-bottom-color: #777; break-after: avoid; }
.code { font-size: .9rem; }
.row { display: grid; grid-template-columns: 1.2rem 10rem 1fr repeat(5, 4.6rem);
  padding: .3rem 0; border-bottom: 1px solid var(--rule); text-align: right; }
.row > span:first-child { grid-column: 2; text-align: left; font-weight: 600; }
.row > span:nth-child(2) { text-align: left; color: var(--dim); }
.columns { font-size: .8rem; color: var(--dim); border-bottom-color: #777; }
summary { cursor: pointer; list-style: none; position: relative; break-inside: avoid; }
summary::-webkit-details-marker { display: none; }
summary::before { content: "▸"; position: absolute; top: .3rem; color: var(--dim); }
details[open] > summary::before { content: "▾"; }
summary:hover { background: #f6f6f2; }
details p { margin: .7rem 0 .3rem 1.2rem; }
details ol { list-style: none; margin: 0 0 1.4rem 1.2rem; padding: 0; columns: 2; column-gap: 2rem;
  font: .8rem/1.45 ui-monospace, monospace; }
details li { display: grid; grid-template-columns: 3.2rem minmax(0, 1fr) auto; gap: .6rem;
  padding-left: .5rem; border-left: 4px solid transparent; color: var(--dim);
  break-inside: avoid; max-width: none; }
details li.hot { border-left-color: var(--hot); background: #fdf1e8; color: var(--ink); }
details li i { font-style: normal; color: var(--dim); }
details li code { font: inherit; }
details li.hot code { font-weight: 700; }
.method p { margin: .6rem 0; }
@media screen and (max-width: 50rem) {
  body { padding: 1.5rem 1rem 3rem; }
  figure { overflow-x: auto; }
  figure svg { min-width: 46rem; }
  .row { grid-template-columns: 1.2rem minmax(6rem, 1fr) repeat(5, 3.4rem); }
  .row > span:nth-child(2) { display: none; }
  details ol { columns: 1; }
}
@media print {
  @page { size: A4; margin: 14mm 13mm; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  html { font-size: 9pt; }
  body { max-width: none; padding: 0; line-height: 1.45; }
  h2 { margin-top: 2rem; }
  dl, .figures { break-inside: avoid; }
  p, li, figcaption { max-width: none; }
  .row { grid-template-columns: 1.2rem 10rem 1fr repeat(5, 4rem); }
  details ol { font-size: .75rem; }
}
"""
