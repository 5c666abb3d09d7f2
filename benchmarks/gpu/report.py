"""Figures of rows as a table: floors, goals, ratios."""

SCALE = {"us": 1e3, "ms": 1.0, "s": 1e-3}
HEAD = ["", "ours", "eager", "PyTorch's best", "floor", "goal", "ours/floor", "best/ours", "rate", "peak GB", "met"]


def ceilings(results, copy, gemm):
    """Bytes and FLOP a second: the best of what either library reached in this run."""

    def best(row, field):
        answers = [a for side in ("ours", "peer") for a in results.get(row, {}).get(side, {}).values() if "ms" in a]
        return max((1e3 * a[field] / a["ms"] for a in answers if a["ms"]), default=0)

    return {"bytes": best(copy, "moved"), "flop": best(gemm, "flop")}


def floor_ms(answer, limits):
    """None where nothing was counted or the ceilings are not known."""
    compute = 1e3 * answer["flop"] / (limits["flop"] * answer["tensor_rate"]) if limits["flop"] else 0
    memory = 1e3 * answer["moved"] / limits["bytes"] if limits["bytes"] else 0
    return (compute + memory if answer["in_turn"] else max(compute, memory)) or None


def rate_of(answer, unit):
    per_ms = {"TFLOP/s": answer["flop"] / 1e9, "TB/s": answer["moved"] / 1e9, "img/s": 1e3 * answer["images"]}[unit]
    return per_ms / answer["ms"] if answer["ms"] else 0


def met(row, answer):
    """Whether the goal is met; None where there is none."""
    if not row.goal:
        return None
    value, unit = row.goal
    enough = answer["ms"] * SCALE[unit] <= value if unit in SCALE else rate_of(answer, unit) >= value
    return enough and (not row.goal_gb or answer.get("peak_bytes", 0) <= 1e9 * row.goal_gb)


def best_of(answers):
    """(how, answer) of the fastest, or None."""
    timed = [(how, a) for how, a in answers.items() if "ms" in a]
    return min(timed, key=lambda pair: pair[1]["ms"]) if timed else None


def time_text(ms, unit):
    value = ms * SCALE[unit]
    return f"{value:.1f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def line_of(name, row, entry, limits, judged=True):
    unit = row.goal[1] if row.goal and row.goal[1] in SCALE else row.unit
    ours, peer = best_of(entry["ours"]), best_of(entry["peer"])
    eager = entry["peer"].get("eager", {})
    cells = [
        name,
        "-",
        time_text(eager["ms"], unit) if "ms" in eager else "-",
        "-",
        "-",
        goal_text(row),
        "-",
        "-",
        "-",
        "-",
        "",
    ]
    if peer:
        cells[3] = f"{time_text(peer[1]['ms'], unit)} {peer[0]}"
    if not ours:
        cells[1] = "failed"
        return cells
    how, answer = ours
    cells[1] = time_text(answer["ms"], unit) + ("" if how == row.ours[0] else f" {how}")
    floor = floor_ms(answer, limits)
    if floor:
        cells[4], cells[6] = time_text(floor, unit), f"{answer['ms'] / floor:.2f}"
    if peer and answer["ms"]:
        cells[7] = f"{peer[1]['ms'] / answer['ms']:.2f}"
    rate = row.rate or (row.goal[1] if row.goal and row.goal[1] not in SCALE else "")
    if rate:
        cells[8] = f"{rate_of(answer, rate):.3g} {rate}"
    if row.goal_gb:
        cells[9] = f"{answer.get('peak_bytes', 0) / 1e9:.1f}" + (
            f" / {peer[1]['peak_bytes'] / 1e9:.1f}" if peer and "peak_bytes" in peer[1] else ""
        )
    reached = met(row, answer) if judged else None
    cells[10] = "" if reached is None else "yes" if reached else "no"
    return cells


def goal_text(row):
    if not row.goal:
        return ""
    value, unit = row.goal
    return f"{value:g} {unit}" + (f", {row.goal_gb:g} GB" if row.goal_gb else "")


def table(lines):
    widths = [max(len(line[i]) for line in [HEAD, *lines]) for i in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths)))
        for line in [HEAD, *lines]
    )


def text(rows, results, limits, not_measured, judged=True):
    parts = [
        f"ceilings of this run: {limits['bytes'] / 1e12:.2f} TB/s (copy), {limits['flop'] / 1e12:.0f} TFLOP/s "
        "(bfloat16 product of 8192)"
    ]
    for track in ("lossless", "quantised"):
        lines = [
            line_of(name, rows[name], entry, limits, judged)
            for name, entry in results.items()
            if rows[name].track == track
        ]
        if lines:
            parts.append(f"{track}\n{table(lines)}")
    errors = [
        f"{name}, {side}, {how}: {a['error']}"
        for name, e in results.items()
        for side in ("ours", "peer")
        for how, a in e[side].items()
        if "error" in a
    ]
    if errors:
        parts.append("failed:\n  " + "\n  ".join(errors))
    if not_measured:
        parts.append("not measured: " + "; ".join(not_measured))
    return "\n\n".join(parts)
