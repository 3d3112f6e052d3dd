#!/usr/bin/env python3
"""Records a command on a terminal of its own, as an asciicast (asciinema, version 2) and as an animated SVG picture.

    scripts/record.py OUT [--columns N] [--rows N] COMMAND...

writes OUT.cast and OUT.svg. Nothing is edited but two things, which both files share: waits longer than two seconds
last two seconds, and the folder of this repository is written as ~/driftless. `make recording` records the demo.
"""

import argparse
import fcntl
import html
import json
import os
import pty
import re
import select
import struct
import sys
import termios
import time

LONGEST_WAIT = 2.0
HOLD_AT_END = 6.0
LINE, CHARACTER, PADDING = 18.0, 8.4, 12.0
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea"}
SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


def record(command, columns, rows):
    """Runs the command. Returns its output as (seconds, text) and its exit code."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns), LINES=str(rows))
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    pieces, now, last = [], 0.0, time.monotonic()
    while True:
        select.select([terminal], [], [])
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        if not data:
            break
        moment = time.monotonic()
        now, last = now + min(moment - last, LONGEST_WAIT), moment
        pieces.append((now, data))
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return pieces, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def spans(line):
    """The parts of a line as (style, text)."""
    bold, dim, colour, at, parts = False, False, None, 0, []

    def add(text):
        if text:
            style = "".join([
                "font-weight:bold;" if bold else "",
                "opacity:.6;" if dim else "",
                f"fill:{colour};" if colour else "",
            ])
            parts.append((style, text))

    for match in SEQUENCE.finditer(line):
        add(line[at:match.start()])
        at = match.end()
        if match[2] != "m":
            continue
        for code in (match[1] or "0").split(";"):
            if code in ("", "0"):
                bold, dim, colour = False, False, None
            elif code == "1":
                bold = True
            elif code == "2":
                dim = True
            elif code in COLOURS:
                colour = COLOURS[code]
            elif code == "39":
                colour = None
    add(line[at:])
    return parts


def wrap(parts, columns):
    """A line as the terminal breaks it."""
    rows, row, room = [], [], columns
    for style, text in parts:
        while text:
            row.append((style, text[:room]))
            text, room = text[room:], room - len(text[:room])
            if room == 0:
                rows.append(row)
                row, room = [], columns
    if row or not rows:
        rows.append(row)
    return rows


def picture(pieces, columns, rows):
    """The recording as SVG: lines appear as a cover moves down, then the text moves up."""
    lines, frames, text = [], [], ""
    for moment, piece in pieces:
        text += piece
        *whole, text = text.split("\n")
        for line in whole:
            # A line that was written over shows what was written last.
            lines.extend(wrap(spans(line.rstrip("\r").split("\r")[-1]), columns))
        frames.append((moment, len(lines)))
    length = frames[-1][0] + HOLD_AT_END
    height, width = rows * LINE + 2 * PADDING, columns * CHARACTER + 2 * PADDING
    moves, covers, before = [], [], None
    for moment, count in frames:
        share = f"{100 * moment / length:.3f}%"
        up = -max(0, count - rows) * LINE
        if (count, up) == before:
            continue
        before = (count, up)
        moves.append(f"{share}{{transform:translateY({up:g}px)}}")
        covers.append(f"{share}{{transform:translateY({count * LINE:g}px)}}")
    final_up, final_cover = -max(0, len(lines) - rows) * LINE, len(lines) * LINE
    moves.append(f"100%{{transform:translateY({final_up:g}px)}}")
    covers.append(f"100%{{transform:translateY({final_cover:g}px)}}")
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img">',
        "<title>A recording of make demo</title><style>",
        "text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e6edf3;white-space:pre}",
        f".m{{transform:translateY({final_up:g}px);animation:m {length:.2f}s step-end infinite}}",
        f".c{{transform:translateY({final_cover:g}px);animation:c {length:.2f}s step-end infinite}}",
        "@keyframes m{0%{transform:translateY(0)}" + "".join(moves) + "}",
        "@keyframes c{0%{transform:translateY(0)}" + "".join(covers) + "}",
        "@media (prefers-reduced-motion:reduce){.m,.c{animation:none}}",
        "</style>",
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/><svg x="{PADDING:g}" y="{PADDING:g}" width="{width - 2 * PADDING:g}" height="{rows * LINE:g}" overflow="hidden"><g class="m">',
    ]
    for index, row in enumerate(lines):
        if not row:
            continue
        body = "".join(
            f'<tspan style="{style}">{html.escape(text)}</tspan>' if style else html.escape(text) for style, text in row
        )
        out.append(f'<text xml:space="preserve" y="{index * LINE + 13:g}">{body}</text>')
    out.append(f'<rect class="c" width="100%" height="{final_cover + height:g}" fill="#0d1117"/></g></svg></svg>')
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--columns", type=int, default=112)
    parser.add_argument("--rows", type=int, default=28)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    raw, code = record(options.command, options.columns, options.rows)
    if code != 0:
        sys.exit(f"record: {options.command[0]} ended with {code}; nothing was written")
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    pieces = [(now, data.decode(errors="replace").replace(root, "~/driftless")) for now, data in raw]
    header = {"version": 2, "width": options.columns, "height": options.rows, "title": " ".join(options.command)}
    with open(options.out + ".cast", "w", encoding="utf-8") as file:
        file.write(json.dumps(header) + "\n")
        for now, text in pieces:
            file.write(json.dumps([round(now, 3), "o", text], ensure_ascii=False) + "\n")
    with open(options.out + ".svg", "w", encoding="utf-8") as file:
        file.write(picture(pieces, options.columns, options.rows))


main()
