"""Plots as SVG by hand: readable in light and dark, wherever they are shown."""
import math
import pathlib
from xml.sax.saxutils import escape

WIDTH = 760
LEFT = 170  # of the names
RIGHT = 150  # of the figures
ROW = 24
TOP = 58

STYLE = """
.ground { fill: #ffffff; stroke: #d1d9e0 } text { fill: #1f2328; font: 13px system-ui, sans-serif }
.heading { font-weight: 600; font-size: 15px } .small { fill: #59636e; font-size: 12px }
.group { font-weight: 600 } .grid { stroke: #d1d9e0 } .range { stroke: #1f2328; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117; stroke: #3d444d } text { fill: #e6edf3 } .small { fill: #9198a1 }
.grid { stroke: #3d444d } .range { stroke: #e6edf3 } }
"""


class Plot:
    def __init__(self, title, note):
        self.parts, self.title, self.note = [], title, note

    def add(self, text):
        self.parts.append(text)

    def text(self, x, y, words, kind="", anchor="start"):
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>')

    def line(self, x1, y1, x2, y2, kind):
        self.add(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def box(self, x, y, width, height, colour):
        self.add(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height}" rx="2" '
                 f'fill="{colour}"/>')

    def dot(self, x, y, colour, hollow=False):
        fill = "none" if hollow else colour
        self.add(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}" stroke="{colour}" stroke-width="2"/>')

    def legend(self, entries, y=50):
        x = 16
        for name, colour in entries:
            self.box(x, y - 10, 12, 12, colour)
            self.text(x + 17, y, name, "small")
            x += 34 + 6.6 * len(name)

    def write(self, path, height):
        pathlib.Path(path).write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" role="img" aria-label="{escape(self.title)}">\n<style>{STYLE}</style>\n'
            f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>\n'
            f'<text x="16" y="24" class="heading">{escape(self.title)}</text>\n'
            f'<text x="{WIDTH - 16}" y="24" class="small" text-anchor="end">{escape(self.note)}</text>\n'
            + "\n".join(self.parts) + "\n</svg>\n", encoding="utf-8")


def bars(path, title, note, groups):
    """groups: (name, [(name, colour, median, least, most, words)]); a thin line is the range."""
    plot, y = Plot(title, note), TOP
    most = max(row[4] for _, rows in groups for row in rows) or 1
    scale = (WIDTH - LEFT - RIGHT) / most
    for group, rows in groups:
        if group:
            plot.text(16, y, group, "group")
            y += 10
        else:
            y -= 18
        for name, colour, median, least, high, words in rows:
            plot.text(LEFT - 10, y + 15, name, anchor="end")
            plot.box(LEFT, y + 3, median * scale, ROW - 8, colour)
            if high > least:
                plot.line(LEFT + least * scale, y + 11, LEFT + high * scale, y + 11, "range")
            plot.text(LEFT + max(median, high) * scale + 8, y + 15, words)
            y += ROW
        y += 22
    plot.write(path, y - 8)


def stacks(path, title, note, parts, rows):
    """parts: (name, colour); rows: (name, [figure of each part], words)."""
    plot, y = Plot(title, note), TOP + 14
    scale = (WIDTH - LEFT - RIGHT) / (max(sum(figures) for _, figures, _ in rows) or 1)
    plot.legend(parts)
    for name, figures, words in rows:
        plot.text(LEFT - 10, y + 15, name, anchor="end")
        x = LEFT
        for (_, colour), figure in zip(parts, figures):
            plot.box(x, y + 3, figure * scale, ROW - 8, colour)
            x += figure * scale
        plot.text(x + 8, y + 15, words)
        y += ROW
    plot.write(path, y + 14)


def pairs(path, title, note, names, rows):
    """Two figures of each row on a logarithmic axis; names: of the first and the second;
    rows: (name, colour, first, second, words)."""
    plot, y = Plot(title, note), TOP + 18
    floor = 10 ** math.floor(math.log10(max(min(row[2] for row in rows), 1e-3)))
    ceiling = 10 ** math.ceil(math.log10(max(row[3] for row in rows) * 1.01))
    span = math.log10(ceiling / floor)

    def place(figure):
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log10(max(figure, floor) / floor) / span

    bottom = y + ROW * len(rows)
    tick = floor
    while tick <= ceiling * 1.001:
        plot.line(place(tick), y - 4, place(tick), bottom, "grid")
        plot.text(place(tick), bottom + 16, f"{tick:g}", "small", "middle")
        tick *= 10
    plot.dot(22, 46, "#8c959f")
    plot.text(32, 50, names[0], "small")
    plot.dot(82, 46, "#8c959f", hollow=True)
    plot.text(92, 50, names[1], "small")
    for name, colour, first, second, words in rows:
        plot.text(LEFT - 10, y + 15, name, anchor="end")
        plot.add(f'<line x1="{place(first):.1f}" y1="{y + 11}" x2="{place(second):.1f}" y2="{y + 11}" '
                 f'stroke="{colour}" stroke-width="3"/>')
        plot.dot(place(first), y + 11, colour)
        plot.add(f'<circle cx="{place(second):.1f}" cy="{y + 11}" r="5" class="ground" style="stroke: {colour}; '
                 'stroke-width: 2"/>')
        plot.text(WIDTH - RIGHT + 12, y + 15, words)
        y += ROW
    plot.write(path, bottom + 28)


def curves(path, title, note, axes, rows):
    """axes: (of x, of y); rows: (name, colour, [(x, y)])."""
    plot, top, height = Plot(title, note), TOP + 34, 240
    left, right = 70, WIDTH - 24
    xs = [x for _, _, points in rows for x, _ in points]
    most = max(y for _, _, points in rows for _, y in points) or 1
    least_x, most_x = math.floor(min(xs)), math.ceil(max(xs))
    plot.legend([(name, colour) for name, colour, _ in rows])

    def at(x, y):
        return (left + (right - left) * (x - least_x) / ((most_x - least_x) or 1), top + height - height * y / most)

    step = 10 ** math.floor(math.log10(most))
    while most / step < 4:
        step /= 2
    for number in range(int(most / step) + 1):
        plot.line(left, at(0, number * step)[1], right, at(0, number * step)[1], "grid")
        plot.text(left - 8, at(0, number * step)[1] + 4, f"{number * step:,.0f}", "small", "end")
    for x in range(least_x, most_x + 1):
        plot.text(at(x, 0)[0], top + height + 18, str(x), "small", "middle")
    plot.text((left + right) / 2, top + height + 38, axes[0], "small", "middle")
    plot.text(16, top - 12, axes[1], "small")
    plot.line(*at(0, 0), *at(0, most), "range")
    for _, colour, points in rows:
        path_of = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in points))
        plot.add(f'<polyline points="{path_of}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
    plot.write(path, top + height + 52)
