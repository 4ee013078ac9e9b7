"""Line charts as SVG, with nothing but text."""

import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 64, 170, 36, 48
COLOURS = ["#1b6ca8", "#c8452e", "#2e8b57", "#8a4fa3", "#b8860b", "#555555"]


def ticks(low, high, count=6):
    """Round numbers that span a range."""
    span = high - low or 1
    step = 10 ** math.floor(math.log10(span / count))
    step *= min((1, 2, 5, 10), key=lambda times: abs(span / (step * times) - count))
    first = math.ceil(low / step) * step
    return [first + i * step for i in range(int((high - first) / step + 1e-9) + 1)]


def label(value):
    return f"{value:g}"


def chart(title, x_title, y_title, series, y_range=None, marks=()):
    """`series`: {name: (xs, ys, lows, highs)}, the last two may be None. `marks`: (x, text)."""
    xs = [x for values in series.values() for x in values[0]]
    ys = [y for values in series.values() for y in values[1]]
    x_low, x_high = min(xs), max(xs)
    y_low, y_high = y_range or (min(ys), max(ys))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def at(x, y):
        y = min(max(y, y_low), y_high)
        return (LEFT + (x - x_low) / ((x_high - x_low) or 1) * (right - LEFT),
                bottom - (y - y_low) / ((y_high - y_low) or 1) * (bottom - TOP))

    def path(points):
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{title}</text>']
    for value in ticks(x_low, x_high):
        x, _ = at(value, y_low)
        out.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#eee"/>'
                   f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{label(value)}</text>')
    for value in ticks(y_low, y_high):
        _, y = at(x_low, value)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#eee"/>'
                   f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label(value)}</text>')
    for x_value, text in marks:
        x, _ = at(x_value, y_low)
        out.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#999" stroke-dasharray="4 3"/>'
                   f'<text x="{x + 4:.1f}" y="{TOP + 12}" fill="#666">{text}</text>')
    for number, (name, (x_values, y_values, lows, highs)) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        if lows is not None:
            band = [at(x, y) for x, y in zip(x_values, highs)] + [at(x, y) for x, y in zip(x_values, lows)][::-1]
            out.append(f'<polygon points="{path(band)}" fill="{colour}" opacity="0.15"/>')
        points = [at(x, y) for x, y in zip(x_values, y_values)]
        out.append(f'<polyline points="{path(points)}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        y = TOP + 10 + 18 * number
        out.append(f'<line x1="{right + 10}" y1="{y}" x2="{right + 30}" y2="{y}" stroke="{colour}" stroke-width="3"/>'
                   f'<text x="{right + 36}" y="{y + 4}">{name}</text>')
    out.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{x_title}</text>'
               f'<text transform="translate(16,{(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">{y_title}</text></svg>')
    return "\n".join(out) + "\n"
