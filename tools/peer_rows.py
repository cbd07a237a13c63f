"""Rows of the comparisons in tests/bench/peers: their format, its check, and the statistics of their samples.

A file is JSON lines, packed if its name ends in .gz: one {"run": …} first, then a {"row": …} for each operator and
shape, then {"end": …}. tests/bench/peers/README.md says what the keys mean. Needs nothing but Python.
"""

import gzip
import json
import math
import pathlib

SCHEMA = 1
NUMBER = (int, float)
SUITES = ("memory_bound", "gemm", "moe")
ROLES = ("ours", "peer", "copy")
STATUSES = ("ok", "wrong", "failed", "unavailable")
RUN_KEYS = {
    "schema": int,
    "suite": str,
    "time": str,
    "device": str,
    "card": str,
    "driver": str,
    "versions": dict,
    "method": dict,
}
ROW_KEYS = {
    "op": str,
    "label": str,
    "shape": dict,
    "dtype": str,
    "bytes": int,
    "flops": int,
    "sets": int,
    "l2": str,
    "reference": str,
    "providers": dict,
    "bounds": dict,
    "clocks": dict,
    "phases_s": dict,
    "time": str,
    "wall_s": NUMBER,
}
# Of every provider, and of those that were timed.
PROVIDER_KEYS = {"role": str, "status": str}
TIMED_KEYS = {
    "samples_us": list,
    "median_us": NUMBER,
    "ci_us": list,
    "launches": int,
    "output": str,
    "error": NUMBER,
    "worst": NUMBER,
    "scratch_bytes": int,
    "prepare_s": NUMBER,
}


class RowError(Exception):
    """A file of rows that can't be used."""


def evidence_suite(suite: str, dtype: str) -> str:
    """Suite of docs/evidence/summary.json that a row of a comparison belongs to."""
    if suite != "gemm":
        return {"memory_bound": "rows"}.get(suite, suite)
    for prefix in ("fp8", "int"):
        if dtype.startswith(prefix):
            return f"gemm_{prefix}"
    return f"gemm_{dtype}"


def median(values) -> float:
    ordered = sorted(values)
    if not ordered:
        raise ValueError("the median of nothing")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def median_interval(values, confidence=0.95):
    """(low, high) of the median by order statistics, which assumes no distribution; all samples if there are too few
    for the confidence."""
    ordered = sorted(values)
    count = len(ordered)
    # P(the median lies outside of the k-th smallest … k-th largest) = 2 · P(Binomial(count, 1/2) < k).
    k, below = 0, 0
    while k + 1 <= count // 2:
        below += math.comb(count, k)
        if 2 * below / 2**count > 1 - confidence:
            break
        k += 1
    k = max(1, k)
    return ordered[k - 1], ordered[count - k]


def geomean(values) -> float:
    values = list(values)
    if not values or any(v <= 0 for v in values):
        raise ValueError("a geometric mean takes positive numbers")
    return math.exp(sum(math.log(v) for v in values) / len(values))


def rounds(names, count: int) -> list:
    """The order of each round: every name once, each round beginning with the next one, and backwards every other
    time, so that nobody always follows the same neighbour's heat."""
    names = list(names)
    orders = []
    for index in range(count):
        shift = index % len(names) if names else 0
        order = names[shift:] + names[:shift]
        orders.append(order if index // max(1, len(names)) % 2 == 0 else order[::-1])
    return orders


def launches_of_graph(call_us: float, sets: int, target_us: float, rotate: bool, cap: int) -> int:
    """Launches of one graph: about `target_us`, whole rotations over the buffer sets where one fits. `rotate`: fewer
    launches than sets would leave data in the L2."""
    wanted = max(1, int(target_us / max(call_us, 0.1)))
    if wanted >= sets:
        return max(sets, min(wanted, cap) // sets * sets)
    return sets if rotate else wanted


def replays_of_burst(graph_us: float, limit_us: float) -> tuple:
    """(untimed, timed) replays of a burst that is no longer than the limit where that is possible."""
    if graph_us > limit_us / 2:
        return 0, 1
    return 1, max(1, min(2, int(limit_us / graph_us) - 1))


def summary_of(samples: list) -> dict:
    """Median and interval of microseconds; ValueError for what can't be a time."""
    if not samples or any(not (isinstance(s, NUMBER) and s > 0 and math.isfinite(s)) for s in samples):
        raise ValueError(f"not times: {samples[:3]}")
    kept = [rounded(s) for s in samples]  # what the file holds is what its median is of
    low, high = median_interval(kept)
    return {"samples_us": kept, "median_us": rounded(median(kept)), "ci_us": [low, high]}


def rounded(value, digits=6) -> float:
    return float(f"{float(value):.{digits}g}")


def _missing(found, keys, where):
    bad = []
    for key, kind in keys.items():
        if key not in found:
            bad.append(f"{where} lacks '{key}'")
        elif not isinstance(found[key], kind) or isinstance(found[key], bool):
            bad.append(f"{where} has a '{key}' of the wrong type: {found[key]!r}")
    return bad


def provider_problems(name: str, provider: dict) -> list:
    bad = _missing(provider, PROVIDER_KEYS, name)
    if bad:
        return bad
    if provider["role"] not in ROLES or provider["status"] not in STATUSES:
        bad.append(f"{name} is {provider['role']!r}, {provider['status']!r}")
    if provider["status"] != "ok":
        # A wrong result has no time, whatever it would have been.
        bad += [f"{name} is {provider['status']} and has a '{k}'" for k in ("samples_us", "median_us") if k in provider]
        if not provider.get("message"):
            bad.append(f"{name} is {provider['status']} and does not say why")
        return bad
    bad += _missing(provider, TIMED_KEYS, name)
    if not bad:
        try:
            wanted = summary_of(provider["samples_us"])
            if wanted["median_us"] != provider["median_us"] or wanted["ci_us"] != provider["ci_us"]:
                bad.append(f"{name}: median or interval are not those of the samples")
        except ValueError as error:
            bad.append(f"{name}: {error}")
    return bad


def row_problems(row: dict) -> list:
    bad = _missing(row, ROW_KEYS, "row")
    if not bad:
        if row["sets"] < 1 or row["bytes"] <= 0:
            bad.append("row without buffers or bytes")
        for name, provider in row["providers"].items():
            bad += provider_problems(name, provider)
        if not any(p.get("role") == "ours" for p in row["providers"].values()):
            bad.append("row without ours")
    return [f"{row.get('label', row.get('op', '?'))}: {text}" for text in bad]


def read_file(path: pathlib.Path):
    """(run, rows, end); `end` is None if the run was cut off. RowError if a line is not what it should be."""
    opener = gzip.open if path.suffix == ".gz" else open
    run, rows, end = None, [], None
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                line = json.loads(text)
                kind = next((k for k in ("run", "row", "end") if isinstance(line, dict) and k in line), None)
                where = f"{path}:{number}"
                if kind is None:
                    raise RowError(f"{where}: neither run, row nor end")
                if kind == "run":
                    run = line["run"]
                    bad = _missing(run, RUN_KEYS, "run")
                    if not bad and run["schema"] > SCHEMA:
                        bad = [f"schema {run['schema']} is newer than this tool"]
                elif run is None:
                    bad = ["the run must come first"]
                elif kind == "row":
                    bad = row_problems(line["row"])
                    rows.append(line["row"])
                else:
                    bad, end = [], line["end"]
                if bad:
                    raise RowError("\n".join(f"{where}: {text}" for text in bad))
    except (OSError, EOFError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RowError(f"{path}: {error}") from error
    if run is None:
        raise RowError(f"{path}: empty")
    return run, rows, end


def files_of(evidence: pathlib.Path) -> list:
    """Files of rows below a folder of evidence."""
    return sorted([*evidence.glob("*/peers/*.ndjson"), *evidence.glob("*/peers/*.ndjson.gz")])


def read_all(files) -> list:
    """Rows of several files with their run under "run" and their file under "file"; of one operator on one device, the
    newest."""
    newest = {}
    for path in files:
        run, rows, _ = read_file(path)
        for row in rows:
            key = (run["suite"], run["device"], row["op"])
            if key not in newest or newest[key]["time"] <= row["time"]:
                newest[key] = {**row, "run": run, "file": path}
    return list(newest.values())


def timed(row: dict, roles=ROLES) -> dict:
    """Medians in microseconds of the providers that were right, by name."""
    return {name: p["median_us"] for name, p in row["providers"].items() if p["status"] == "ok" and p["role"] in roles}
