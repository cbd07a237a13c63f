"""A private rooftuned, asked through the command line: tunes operators and fetches kernels."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time


class DaemonError(Exception):
    """The daemon did not start, or a command failed; the text is the command's own."""


class Rooftune:
    """Starts rooftuned of `bin_dir` on the first GPU and stops it again. `data_dir`: a store to go on with; without it
    a new one that is removed at the end."""

    def __init__(self, bin_dir: pathlib.Path, data_dir=None, device="cuda:0"):
        self._bin, self.device = bin_dir, device
        # A socket's path must be short.
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="rtp"))
        self.data_dir = pathlib.Path(data_dir) if data_dir else self._folder / "data"
        self.reused = self.data_dir.exists()
        self._address = f"unix:{self._folder}/s"
        self._log = open(self._folder / "daemon.log", "wb")
        self._process = subprocess.Popen(
            [
                str(self._bin / "rooftuned"),
                "--listen",
                self._address,
                "--data-dir",
                str(self.data_dir),
                "--device",
                device,
                "--log-level",
                "warning",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._wait()

    def _wait(self):
        for _ in range(300):
            if (self._folder / "s").exists():
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.1)
        text = (self._folder / "daemon.log").read_text(errors="replace")[-2000:]
        self.close()
        raise DaemonError(f"rooftuned did not start: {text}")

    def close(self):
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, *arguments, timeout_s=600) -> str:
        environment = {**os.environ, "ROOFTUNE_ADDRESS": self._address, "NO_COLOR": "1"}
        try:
            done = subprocess.run(
                [str(self._bin / "rooftune"), *arguments],
                env=environment,
                capture_output=True,
                text=True,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            raise DaemonError(f"rooftune {arguments[0]} took more than {timeout_s} s") from None
        if done.returncode:
            text = next(
                (line for line in done.stderr.splitlines() if line.startswith("rooftune: ")), done.stderr[-300:]
            )
            raise DaemonError(text.removeprefix("rooftune: ").strip() or f"exit code {done.returncode}")
        return done.stdout

    def version(self) -> str:
        return self.run("--version").strip()

    def calibrate(self):
        self.run("devices", "calibrate", self.device, timeout_s=120)

    def records(self, op: str) -> list:
        """Current records of exactly this operator, best first."""
        answer = json.loads(self.run("records", "list", "--op", op, "--limit", "20", "--json"))
        return sorted(
            (r for r in answer.get("record", []) if r.get("evidence") in ("MEASURED", "PROFILED", "END_TO_END")),
            key=lambda r: int(r.get("rank", 0)),
        )

    def tune(self, op: str, max_trials: int, seed: int, retune: bool, timeout_s: float) -> tuple:
        """(records, seconds): tunes unless there are records already."""
        found = [] if retune else self.records(op)
        if found:
            return found, 0.0
        start = time.monotonic()
        self.run("tune", *op.split(), "--max-trials", str(max_trials), "--seed", str(seed), timeout_s=timeout_s)
        return self.records(op), time.monotonic() - start

    def fetch(self, record: dict) -> tuple:
        """(record with its plan, binary)."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="kernel", dir=self._folder))
        self.run("fetch", "--record", record["name"], "-o", str(folder))
        recipe = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
        return recipe, (folder / f"{recipe['artifact_digest']}.cubin").read_bytes()


def choose(records: list) -> tuple:
    """(what is served, the best template): the first record, and the first that a template made; None without."""
    served = records[0] if records else None
    return served, next((r for r in records if r.get("provider") == "TEMPLATE"), None)
