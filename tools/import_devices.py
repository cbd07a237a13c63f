#!/usr/bin/env python3
"""Makes device profiles (costmodel/profiles/*.txtpb) from a device table (JSON, schema 1).

The table gives limits per compute capability, data-sheet peaks (dense, FMA = 2) and where each value comes
from. One profile a device is written, and SOURCES.md with the legend. A profile that the table no longer
has is left alone. Run it again when the table changes and review the difference.
"""
import argparse
import json
import pathlib
import re

GIB = 1 << 30
# Table name of a rate -> (pipe, dtypes, names under which its sources are listed).
RATES = {
    "fp16_acc32": ("tensor", ["FP16"], ["fp16_acc32", "fp16"]),
    "bf16": ("tensor", ["BF16"], ["bf16", "fp16_acc32", "fp16"]),
    "fp8": ("tensor", ["FP8_E4M3", "FP8_E5M2"], ["fp8"]),
    "int8": ("tensor", ["INT8"], ["int8"]),
    "fp32": ("fp32", ["FP32"], ["fp32"]),
}
# Memory is sold in "GB" of 2^30 bytes less what the driver keeps, except here: usable MiB from the table's note.
USABLE_MIB = {"b300": 275040, "gb300": 275040}


def number(value):
    """Shortest text: 66.9 and not 66.90000000000001; integers without a point."""
    text = "%.6g" % value
    return text


def sourced(value, table_name, source_names, device):
    """Fields of a Sourced message."""
    sources = device["sources"]
    found = next((sources[n] for n in source_names if n in sources), sources.get("*", []))
    unsure = table_name in device["unsure"] or not found
    fields = ["value: " + number(value)]
    fields += ['source: "%s"' % s.replace('"', "'") for s in found]
    if unsure:
        fields.append("unsure: true")
    return "{ " + " ".join(fields) + " }"


def peaks(device):
    """Peak messages; all at the tensor peak's clock, as the profile states one clock."""
    lines = []
    for name, (pipe, dtypes, source_names) in RATES.items():
        value = device["peak_dense_tflops"].get(name)
        if value is None:
            continue
        comment = ""
        # The table states fp32 at the boost clock.
        if pipe == "fp32" and device["boost_mhz"] != device["tensor_peak_clock_mhz"]:
            comment = "  # %s at %d MHz" % (number(value), device["boost_mhz"])
            value = value * device["tensor_peak_clock_mhz"] / device["boost_mhz"]
        for dtype in dtypes:
            lines.append('peak { pipe: "%s" dtype: %s tera_ops %s }%s'
                         % (pipe, dtype, sourced(value, name, source_names, device), comment))
    return lines


def note(device):
    """The table's remark, with what the profile itself has no field for."""
    unsure = [u for u in device["unsure"] if u not in ("bw_gbs", *RATES)]
    parts = [device["note"]] if device["note"] and "not asked for" not in device["note"] else []
    if unsure:
        parts.append("unsure: " + ", ".join(unsure))
    return "; ".join(parts).replace("\\", "/").replace('"', "'")


def profile(device, table):
    limits = table["cc_limits"][device["cc"]]
    major, minor = device["cc"].split(".")
    memory = USABLE_MIB[device["id"]] << 20 if device["id"] in USABLE_MIB else int(device["memory"]["size_gb"] * GIB)
    lines = [
        "# proto-file: rooftune/device/v1/profile.proto",
        "# proto-message: DeviceProfile",
        "# Made by tools/import_devices.py from the device table of %s; codes are explained in SOURCES.md." % table["written"],
        "# Peaks are dense (never 2:4 sparse) data-sheet rates, FMA = 2, at peak_clock_mhz. TF32 has no operand type here.",
        'id: "%s"' % device["id"],
        'name: "%s"' % device["name_match"],
        "cc: %d" % (int(major) * 10 + int(minor)),
        "sm_count: %d" % device["sms"],
        "max_clock_mhz: %d" % device["boost_mhz"],
        "peak_clock_mhz: %d" % device["tensor_peak_clock_mhz"],
        "memory_bytes: %d  # %s GB %s" % (memory, number(device["memory"]["size_gb"]), device["memory"]["type"]),
        "memory_gbps %s" % sourced(device["memory"]["bw_gbs"], "bw_gbs", ["bw"], device),
        "l2_bytes: %d" % int(device["l2_mb"] * (1 << 20)),
        "shared_per_sm_bytes: %d" % (device["smem_sm_kb"] << 10),
        "shared_per_block_optin_bytes: %d" % (device["smem_optin_kb"] << 10),
        "shared_reserved_per_block_bytes: %d" % (limits["smem_reserved_kb"] << 10),
        "shared_allocation_granularity: %d" % limits["smem_gran"],
        "registers_per_sm: %d" % device["regs_sm"],
        "registers_per_thread_max: %d" % limits["regs_thread"],
        "register_allocation_granularity: %d" % limits["reg_alloc_gran"],
        "threads_per_sm: %d" % device["thr_sm"],
        "threads_per_block_max: %d" % limits["threads_block"],
        "blocks_per_sm_max: %d" % device["blk_sm"],
    ]
    lines += peaks(device)
    lines += [
        "sfu_per_clk_sm: %s" % number(table["ex2_per_clk_sm"][device["cc"]]),
        "shared_bytes_per_clk_sm: %s" % number(table["smem_bytes_per_clk_sm"]),
        "tdp_watts: %d" % device["tdp_w"],
    ]
    if note(device):
        lines.append('note: "%s"' % note(device))
    return "\n".join(lines) + "\n"


def sources(table):
    lines = [
        "# Where the device profiles come from",
        "",
        "Made by `tools/import_devices.py` from the device table of %s. A value marked `unsure` is not confirmed by a"
        % table["written"],
        "vendor page, or sources disagree; a source may carry a remark after its code.",
        "",
        "| code | source |",
        "|---|---|",
    ]
    for code, text in table["source_legend"].items():
        # Without the circumstances in which the table's authors looked it up.
        lines.append("| %s | %s |" % (code, re.split(r" on this |, NOT |: verify| \(see ", text)[0].replace("|", "/")))
    lines += ["", "Limits per compute capability (shared memory, registers, threads, allocation granularities): CCCL and OCC.",
              "EX2 results per clock and SM: " + table["ex2_per_clk_sm"]["note"] + ".", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=pathlib.Path, help="device table (JSON)")
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "costmodel" / "profiles")
    args = parser.parse_args()
    table = json.loads(args.table.read_text(encoding="utf-8"))
    if table.get("schema") != 1:
        parser.error("%s: schema %r is not 1" % (args.table, table.get("schema")))
    args.out.mkdir(parents=True, exist_ok=True)
    for device in table["devices"]:
        text = profile(device, table)
        (args.out / (device["id"] + ".txtpb")).write_text(text.encode("ascii", "replace").decode(), encoding="ascii")
    (args.out / "SOURCES.md").write_text(sources(table), encoding="utf-8")
    print("%d profiles in %s" % (len(table["devices"]), args.out))


if __name__ == "__main__":
    main()
