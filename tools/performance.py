#!/usr/bin/env python3
"""Makes the tables of docs/performance.md from the rows of tests/bench/peers (docs/evidence/DEVICE/peers/*.ndjson.gz).

  performance.py                       print the summaries
  performance.py --check               fail if a file of rows is not what it should be
  performance.py --table FILE…         write the tables between the markers of these files
  performance.py --check-tables FILE…  fail if a table is not what the rows give

A table stands between `<!-- performance:NAME -->` and `<!-- /performance -->`; NAME is memory_bound_summary,
memory_bound, rearranging, gemm_summary, gemm_bf16, gemm_fp8, gemm_int8, moe_summary or moe. Of an operator that was
measured several times on one device, the newest row counts. Ratios are a peer's time divided by ours of the same race: above 1, ours is faster.
"""

import argparse
import pathlib
import sys

import peer_rows
import tables
from peer_rows import RowError, geomean

OURS, COPY = "rooftune", "copy"
NOT_MEASURED = "Not measured yet."
LARGE_BYTES, SMALL_BYTES = 256_000_000, 8_000_000
LAUNCH_BOUND = ("LAUNCH", "LATENCY")
# Peers by column; of several of a column the fastest counts.
COLUMNS = {
    "memory_bound": {
        "PyTorch": ("torch", "torch fp32", "torch copy_"),
        "torch.compile": ("torch.compile",),
        "Triton": ("triton",),
    },
    "gemm": {
        "cuBLAS": ("cublas",),
        "cuBLASLt first": ("cublaslt_first",),
        "cuBLASLt best": ("cublaslt_best",),
        "Triton": ("triton", "triton tma"),
    },
    "fp8": {
        "torch tensorwise": ("torch tensorwise",),
        "torch rowwise": ("torch rowwise",),
        "cuBLASLt best": ("cublaslt_best",),
    },
    "int8": {
        "torch.compile": ("torch.compile",),
        "cuBLASLt best": ("cublaslt_best",),
        "Triton": ("triton",),
    },
    "moe": {
        "loop of cuBLAS": ("loop of cublas", "loop of cublaslt"),
        "torch grouped": ("torch grouped",),
        "Triton": ("triton",),
    },
}


def us(value) -> str:
    return f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def ratio(value) -> str:
    return "–" if value is None else f"{value:.2f}×"


def percent(value) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def ours_us(row):
    return peer_rows.timed(row, ("ours",)).get(OURS)


def column_us(row, names):
    """Time of the fastest of these providers, or None."""
    times = [t for name, t in peer_rows.timed(row, ("peer",)).items() if name in names]
    return min(times) if times else None


def against(row, names):
    """Their time over ours; None if one of both is missing."""
    mine, theirs = ours_us(row), column_us(row, names)
    return theirs / mine if mine and theirs else None


def best_peer(row):
    """(name, time) of the fastest peer, or None."""
    times = peer_rows.timed(row, ("peer",))
    return min(times.items(), key=lambda item: item[1]) if times else None


def against_best(row):
    peer, mine = best_peer(row), ours_us(row)
    return peer[1] / mine if peer and mine else None


def attainable_share(row):
    mine, attainable = ours_us(row), row["bounds"].get("attainable_us", 0)
    return attainable / mine if mine and attainable else None


def copy_share(row):
    """Our time over that of a copy of the same bytes: 1 is as fast as the copy."""
    mine, copy = ours_us(row), peer_rows.timed(row, ("copy",)).get(COPY)
    return mine / copy if mine and copy else None


def served_us(row):
    """Time of what the daemon serves: the template's, or where it serves the library, that of the library's best
    algorithm in this race."""
    provider = row["providers"].get(OURS, {}).get("served")
    return column_us(row, ("cublaslt_best",)) if provider == "CUBLASLT" else ours_us(row)


def is_small(row) -> bool:
    return row["bounds"].get("bound") in LAUNCH_BOUND or row["bytes"] < SMALL_BYTES


def geomean_line(title: str, rows, value) -> str:
    """ "title: geomean over n shapes, worst and where"; says so if there is nothing."""
    found = [(value(row), row["label"]) for row in rows if value(row) is not None]
    if not found:
        return f"- {title}: not measured"
    worst, where = min(found)
    above = sum(v > 1 for v, _ in found)
    return (
        f"- {title}: {geomean(v for v, _ in found):.3f}× over {len(found)} shape{'s' if len(found) > 1 else ''}, {above} above 1, worst {worst:.3f}× "
        f"({where})"
    )


def memory_bound_summary(rows: list) -> str:
    columns = COLUMNS["memory_bound"]
    lines = [geomean_line(f"against {name}", rows, lambda r, n=names: against(r, n)) for name, names in columns.items()]
    lines.append(geomean_line("against the fastest peer of each shape", rows, against_best))
    large = [(attainable_share(r), r["label"]) for r in rows if r["bytes"] >= LARGE_BYTES and attainable_share(r)]
    if large:
        worst, where = min(large)
        lines.append(
            f"- share of `attainable` from 256 MB on: {percent(worst)} or more ({len(large)} shapes, least: {where})"
        )
    small = [(copy_share(r), r["label"]) for r in rows if is_small(r) and copy_share(r)]
    if small:
        worst, where = max(small)
        lines.append(
            f"- small shapes: at most {worst:.2f} of the time of a copy of the same bytes ({len(small)} shapes, most: "
            f"{where})"
        )
    return "\n".join(lines)


def gemm_summary(rows: list) -> str:
    plain, eights = [r for r in rows if r["dtype"] == "bf16"], [r for r in rows if r["dtype"].startswith("fp8")]
    large, small = [r for r in plain if r["shape"]["m"] >= 512], [r for r in plain if r["shape"]["m"] <= 128]
    columns = COLUMNS["gemm"]
    served = lambda r: (
        column_us(r, columns["cuBLAS"]) / served_us(r) if column_us(r, columns["cuBLAS"]) and served_us(r) else None
    )
    lines = [geomean_line("bf16, served (template or library) against cuBLAS", plain, served)]
    for title, group in (("m ≥ 512", large), ("m ≤ 128", small)):
        lines += [
            geomean_line(f"bf16, {title}, template against {name}", group, lambda r, n=names: against(r, n))
            for name, names in columns.items()
        ]
    shares = [(attainable_share(r), r["label"]) for r in small if attainable_share(r)]
    if shares:
        lines.append(
            f"- bf16, m ≤ 128, share of `attainable`: {percent(geomean(s for s, _ in shares))} (geometric mean), least "
            f"{percent(min(shares)[0])} ({min(shares)[1]})"
        )
    for title, low, high in (("m ≥ 512", 512, 1 << 40), ("m ≤ 64", 1, 64)):
        group = [r for r in eights if low <= r["shape"]["m"] <= high]
        lines.append(
            geomean_line(
                f"fp8, {title}, template against the best of cuBLASLt",
                group,
                lambda r: against(r, ("cublaslt_best", "torch tensorwise")),
            )
        )
    for title, names in (("the best of cuBLASLt, which only multiplies", ("cublaslt_best",)), ("Triton", ("triton",))):
        group = [r for r in rows if r["dtype"] == "int8"]
        lines.append(geomean_line(f"int8, template against {title}", group, lambda r, n=names: against(r, n)))
    return "\n".join(lines)


def moe_summary(rows: list) -> str:
    lines = [geomean_line(f"against {name}", rows, lambda r, n=names: against(r, n)) for name, names in COLUMNS["moe"].items()]
    return "\n".join([*lines, geomean_line("against the fastest peer of each layer", rows, against_best)])


def table_of(head: list, rows: list) -> str:
    """The first column stands left, the others right."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] + ["---:"] * (len(head) - 1), *rows))


def ours_cell(row) -> str:
    entry = row["providers"].get(OURS, {})
    if entry.get("status") != "ok":
        return entry.get("status", "–")
    return f"{us(entry['median_us'])} ({us(entry['ci_us'][0])}–{us(entry['ci_us'][1])})"


def cell(row, names) -> str:
    time = column_us(row, names)
    return "–" if time is None else f"{us(time)} ({ratio(against(row, names))})"


def memory_bound(rows: list) -> str:
    columns = COLUMNS["memory_bound"]
    head = [
        "operator",
        "MB",
        "rooftune µs",
        "of attainable",
        "of a copy's time",
        *(f"{name} µs" for name in columns),
        "compile wall s",
        "fastest peer",
    ]
    body = []
    for row in rows:
        wall = row["providers"].get("torch.compile", {}).get("prepare_s")
        body.append(
            [
                row["label"],
                f"{row['bytes'] / 1e6:.4g}",
                ours_cell(row),
                percent(attainable_share(row)),
                "–" if copy_share(row) is None else f"{copy_share(row):.2f}",
                *(cell(row, names) for names in columns.values()),
                "–" if wall is None else f"{wall:.1f}",
                ratio(against_best(row)),
            ]
        )
    return table_of(head, body)


def rearranging(rows: list) -> str:
    """`.contiguous()` and patches beside PyTorch's own, with the memory beyond input and output."""
    names = ("torch", "torch copy_", "torch.compile")
    head = [
        "operator",
        "MB",
        "rooftune µs",
        "scratch MB",
        *(f"{name}{what}" for name in names for what in (" µs", " scratch MB")),
    ]
    body = []
    for row in rows:
        cells = [row["label"], f"{row['bytes'] / 1e6:.4g}", ours_cell(row)]
        for name in (OURS, *names):
            entry = row["providers"].get(name, {})
            good = entry.get("status") == "ok"
            if name != OURS:
                cells.append(cell(row, (name,)))
            cells.append(f"{entry['scratch_bytes'] / 1e6:.3g}" if good else "–")
        body.append(cells)
    return table_of(head, body)


def gemm_table(rows: list, columns: dict) -> str:
    head = [
        "layer, m × n × k",
        "rooftune µs",
        "template",
        "of attainable",
        "TFLOP/s",
        *(f"{name} µs" for name in columns),
        "fastest peer",
    ]
    body = []
    for row in rows:
        mine, entry = ours_us(row), row["providers"].get(OURS, {})
        rate = f"{row['flops'] / mine / 1e6:.0f}" if mine else "–"
        body.append(
            [
                row["label"],
                ours_cell(row),
                entry.get("record", {}).get("template_id", "–"),
                percent(attainable_share(row)),
                rate,
                *(cell(row, names) for names in columns.values()),
                ratio(against_best(row)),
            ]
        )
    return table_of(head, body)


def left_out(rows: list) -> str:
    """Providers that were wrong or failed, so that nobody takes a missing time for a slow one."""
    found = [
        f"{name} of {row['label']}: {p['status']}, {p['message'][:160]}"
        for row in rows
        for name, p in row["providers"].items()
        if p["status"] != "ok"
    ]
    return "\n\nNot timed: " + "; ".join(sorted(found)) + "." if found else ""


def notes(rows: list, root: pathlib.Path) -> str:
    runs = [r["run"] for r in rows]
    facts = sorted({f"{r['device']}, driver {r['driver']}" for r in runs})
    versions = sorted({f"{name} {text}" for r in runs for name, text in r["versions"].items()})
    dates = sorted({r["time"][:10] for r in runs})
    cards = sorted({r["card"] for r in runs if r["card"]})
    sources = sorted(
        {r["file"].relative_to(root).as_posix() if r["file"].is_relative_to(root) else r["file"].name for r in rows}
    )
    return (
        f"\n\n{'; '.join(facts)}; {', '.join(dates)}; cards {', '.join(cards)}. "
        f"{', '.join(versions)}. Source: {', '.join(f'`{s}`' for s in sources)}."
    )


def table(rows: list, name: str, root: pathlib.Path) -> str:
    """Text of one marker."""
    suite = next((s for s in ("gemm", "moe") if name.startswith(s)), "memory_bound")
    mine = [row for row in rows if row["run"]["suite"] == suite]
    makers = {
        "memory_bound_summary": memory_bound_summary,
        "memory_bound": memory_bound,
        "rearranging": rearranging,
        "gemm_summary": gemm_summary,
        "gemm_bf16": lambda r: gemm_table(r, COLUMNS["gemm"]),
        "gemm_fp8": lambda r: gemm_table(r, COLUMNS["fp8"]),
        "gemm_int8": lambda r: gemm_table(r, COLUMNS["int8"]),
        "moe_summary": moe_summary,
        "moe": lambda r: gemm_table(r, COLUMNS["moe"]),
    }
    if name not in makers:
        raise RowError(f"no table is called '{name}'")
    if not mine:
        return NOT_MEASURED
    if name.endswith("_summary"):
        return makers[name](mine) + notes(mine, root)
    selected = {
        "gemm_bf16": lambda r: r["dtype"] == "bf16",
        "gemm_fp8": lambda r: r["dtype"].startswith("fp8"),
        "gemm_int8": lambda r: r["dtype"] == "int8",
        "rearranging": lambda r: r["op"].startswith(("permute", "contiguous")),
    }
    shown = [r for r in mine if selected.get(name, lambda _: True)(r)]
    if not shown:
        return NOT_MEASURED
    return makers[name](shown) + ("" if name == "rearranging" else left_out(shown))


def load(evidence: pathlib.Path) -> list:
    rows = peer_rows.read_all(peer_rows.files_of(evidence))
    for row in rows:
        floor = row["bounds"].get("floor_us", 0)
        for name, time in peer_rows.timed(row).items():
            if time < floor:
                raise RowError(
                    f"{row['file']}: {row['label']}: {name} took {time} µs, less than the floor of {floor} µs"
                )
    rows.sort(key=lambda r: (r["run"]["suite"], r["dtype"]))  # stable: the order of the suite within
    return rows


def main(arguments) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--evidence", type=pathlib.Path, help="folder of the evidence (ROOT/docs/evidence)")
    parser.add_argument("--check", action="store_true")
    tables.add_options(parser)
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    try:
        rows = load((options.evidence or root / "docs" / "evidence").resolve())
        tables.update(options, "performance", lambda key: table(rows, key, root), "performance.py")
        if not (options.table or options.check_tables or options.check):
            for name in ("memory_bound_summary", "gemm_summary", "moe_summary"):
                print(f"{name}\n{table(rows, name, root)}\n")
    except (RowError, tables.TableError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
