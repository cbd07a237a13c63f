#!/usr/bin/env python3
"""tools/import_devices.py on a small table: units, clocks, sources and doubts come out as the profiles promise."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(os.environ["ROOFTUNE_SOURCE_DIR"])
TABLE = {
    "schema": 1,
    "written": "2026-01-02",
    "source_legend": {"AAA": "a vendor's page", "BBB": "a benchmark"},
    "cc_limits": {"9.0": {"smem_reserved_kb": 1, "smem_gran": 128, "regs_thread": 255, "threads_block": 1024,
                          "reg_alloc_gran": 256}},
    "ex2_per_clk_sm": {"9.0": 16, "note": "measured"},
    "smem_bytes_per_clk_sm": 128,
    "devices": [{
        "id": "card-1", "name_match": "ACME Card 1", "cc": "9.0", "sms": 100, "boost_mhz": 2000,
        "tensor_peak_clock_mhz": 1000, "memory": {"type": "HBM9", "size_gb": 2, "bw_gbs": 1234.5}, "l2_mb": 1.5,
        "smem_sm_kb": 228, "smem_optin_kb": 227, "thr_sm": 2048, "blk_sm": 32, "regs_sm": 65536,
        "peak_dense_tflops": {"fp64": 1, "fp32": 60, "bf16": 400, "fp8": 800}, "tdp_w": 300,
        "sources": {"*": ["AAA"], "fp8": ["BBB"]}, "unsure": ["fp8", "sms"], "note": "a remark",
    }],
}


def run(table, out):
    path = out / "table.json"
    path.write_text(json.dumps(table))
    return subprocess.run([sys.executable, ROOT / "tools" / "import_devices.py", path, "--out", out],
                          capture_output=True, text=True)


with tempfile.TemporaryDirectory() as tmp:
    out = pathlib.Path(tmp)
    result = run(TABLE, out)
    assert result.returncode == 0, result.stderr
    text = (out / "card-1.txtpb").read_text()
    for expected in [
            'name: "ACME Card 1"', "cc: 90", "memory_bytes: 2147483648", "l2_bytes: 1572864",
            'memory_gbps { value: 1234.5 source: "AAA" }',
            'dtype: BF16 tera_ops { value: 400 source: "AAA" }',
            'dtype: FP8_E4M3 tera_ops { value: 800 source: "BBB" unsure: true }',
            # fp32 is stated at the boost clock and written at the profile's peak clock.
            'pipe: "fp32" dtype: FP32 tera_ops { value: 30 source: "AAA" } }  # 60 at 2000 MHz',
            'note: "a remark; unsure: sms"']:
        assert expected in text, (expected, text)
    assert "fp64" not in text.lower()
    assert "| BBB | a benchmark |" in (out / "SOURCES.md").read_text()
    assert run({**TABLE, "schema": 2}, out).returncode != 0
