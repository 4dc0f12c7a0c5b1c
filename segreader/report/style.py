"""What the report's page looks like: light, dark, printed, and without colour."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--quiet:#57606a;--line:#d5dae0;--soft:#f3f5f7;--live:#2f6fb3;
--live2:#7fb0e0;--bad:#b42318;--warn:#8a5a00;--fine:#1a6b3c;--other:#7a4fa3}
@media (prefers-color-scheme:dark){:root{--paper:#14171b;--ink:#e4e8ec;--quiet:#9aa5b1;--line:#343b44;--soft:#1d2228;
--live:#5b9bdc;--live2:#2d5580;--bad:#ff8278;--warn:#e5b04a;--fine:#6cc492;--other:#b993e0}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1180px;padding:1.5rem 1.25rem 3rem;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
h1{font-size:1.5rem;line-height:1.25;margin:0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.2rem 0 .7rem;padding-bottom:.25rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1.6rem 0 .5rem;overflow-wrap:anywhere}
h3 small,.quiet,small{color:var(--quiet);font-weight:normal}
p{margin:.4rem 0}
code{font:.92em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
a{color:var(--live)}
.verdict{font-size:1.05rem;font-weight:600;margin:.8rem 0 0;padding:.5rem .8rem;
border-left:4px solid;background:var(--soft)}
.error .sign,.verdict.error{color:var(--bad)}
.warning .sign,.verdict.warning,.sign.incomplete,.sign.orphan{color:var(--warn)}
text.sign.gap{fill:var(--bad);font-size:11px;font-weight:700;stroke:none}
.swatch{vertical-align:-2px}
span.sign.incomplete,span.sign.orphan{display:inline-block;width:22px;text-align:center;font-weight:700}
.verdict.fine{color:var(--fine)}
.finding{border:1px solid var(--line);border-radius:6px;margin:.5rem 0;padding:.5rem .8rem}
.finding summary{cursor:pointer}
.finding.error{border-left:4px solid var(--bad)}
.finding.warning{border-left:4px solid var(--warn)}
.finding td:first-child{overflow-wrap:anywhere;min-width:14rem;width:50%}
.finding td:last-child{overflow-wrap:anywhere;min-width:9rem}
header code{white-space:nowrap}
.count{color:var(--quiet)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92em}
th{font-weight:600;color:var(--quiet);text-align:left;white-space:nowrap}
th,td{padding:.28rem .6rem .28rem 0;vertical-align:top;border-bottom:1px solid var(--line)}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.time{white-space:nowrap;font-variant-numeric:tabular-nums}
.topics td:first-child{overflow-wrap:anywhere;min-width:10rem}
.topics td:last-child{min-width:12rem}
.share{width:5rem;min-width:3rem}
.share i{display:block;height:.7rem;margin-top:.4rem;min-width:1px;background:var(--live)}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(11.5rem,1fr));gap:.6rem;margin:0}
.cards div{background:var(--soft);border-radius:6px;padding:.6rem .8rem}
.cards dt{color:var(--quiet);font-size:.85rem}
.cards dd{margin:0;font-size:1.25rem;font-weight:600;font-variant-numeric:tabular-nums}
.cards small{display:block;font-size:.8rem}
.lane{display:grid;grid-template-columns:22rem 1fr;column-gap:1rem;align-items:start;margin:.35rem 0}
.who{font-size:.8rem;line-height:1.25;display:flex;gap:.5rem}
.who b{min-width:1.6rem;text-align:right}
.who span{color:var(--quiet)}
.track{position:relative;background:var(--soft);border-radius:3px}
.track svg{display:block;width:100%}
.mark{position:absolute;top:-.15rem;transform:translateX(-50%);font-size:.8rem;line-height:1.3;font-weight:700;
background:var(--paper);border-radius:50%;padding:0 .15rem}
.mark.gap{color:var(--bad)}.mark.incomplete{color:var(--warn)}.mark.compacted{display:none}
.told{grid-column:2;margin:.2rem 0 .4rem;padding:0;list-style:none;font-size:.85rem}
#changes .told{margin-top:.6rem}
.told li{overflow-wrap:anywhere}
.axis{display:flex;justify-content:space-between;margin-left:23rem;font-size:.78rem;color:var(--quiet);
font-variant-numeric:tabular-nums}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1.1rem;font-size:.85rem}
.legend span{display:inline-flex;align-items:center;gap:.35rem}
.track rect.thin{stroke:none;shape-rendering:crispEdges}
rect{stroke:var(--paper);stroke-width:1;vector-effect:non-scaling-stroke}
.live{fill:var(--live)}
.partly-live{fill:url(#halves)}
rect.active{stroke:var(--ink);stroke-dasharray:3 2}
.lost-branch{fill:url(#slanted);stroke:var(--bad)}
.duplicate{fill:url(#dotted);stroke:var(--other)}
.below-log-start{fill:none;stroke:var(--quiet);stroke-dasharray:2 2}
.unfinished{fill:url(#crossed);stroke:var(--warn)}
rect.gap{fill:var(--paper);stroke:var(--bad);stroke-width:2;stroke-dasharray:4 3}
rect.compacted{fill:none;stroke:var(--quiet);stroke-dasharray:1 3}
.defs{position:absolute;width:0;height:0}
footer{margin-top:2.5rem;font-size:.82rem;color:var(--quiet)}
@media (max-width:760px){body{padding:1rem .8rem 2rem}.lane{grid-template-columns:1fr;row-gap:.15rem;margin:.7rem 0}
.told{grid-column:1}.axis{margin-left:0}.axis span:nth-child(2){display:none}}
@media print{:root{--paper:#fff;--ink:#000;--quiet:#444;--line:#bbb;--soft:#f3f5f7;--live:#2f6fb3;--live2:#7fb0e0;
--bad:#b42318;--warn:#8a5a00;--fine:#1a6b3c;--other:#7a4fa3}
body{max-width:none;padding:0;font-size:10pt}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
.lane,.finding tr,.cards div{break-inside:avoid}h2,h3{break-after:avoid}.scroll{overflow:visible}
details::details-content{content-visibility:visible;height:auto}a{color:inherit;text-decoration:none}}
"""

_PAPER: Final = '<rect width="6" height="16" style="fill:var(--paper);stroke:none"/>'


def _pattern(name: str, width: int, height: int, drawn: str, turned: str = "") -> str:
    size = f'width="{width}" height="{height}" patternUnits="userSpaceOnUse"{turned}'
    return f'<pattern id="{name}" {size}>{_PAPER}{drawn}</pattern>'


def _block(width: int, height: int, colour: str) -> str:
    return f'<rect width="{width}" height="{height}" style="fill:var(--{colour});stroke:none"/>'


_PATTERNS: Final = (
    _pattern("slanted", 6, 6, _block(3, 6, "bad"), ' patternTransform="rotate(45)"')
    + _pattern("dotted", 5, 4, _block(2, 2, "other"))
    + _pattern("crossed", 6, 6, '<path d="M0 0L6 6M6 0L0 6" style="stroke:var(--warn)"/>')
    + _pattern("halves", 6, 16, _block(4, 16, "live"))
)

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

DOCUMENT: Final = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<meta name="referrer" content="no-referrer">\n'
    "<title>{title}</title><style>{style}</style></head><body>\n"
    f'<svg class="defs" aria-hidden="true"><defs>{_PATTERNS}</defs></svg>\n'
    "{body}\n</body></html>\n"
)
"""The page around its parts: it may run no script and ask for nothing, whatever names in a bucket say."""
